// Answers: what a person says of images, shown at once and sent; and the buttons for them.

import { Badge, complain, counted, html, number, toast } from "/dom.js";
import { open, stepLarge } from "/navigation.js";
import { outbox, refetch } from "/server.js";
import { chosen, deselect, NONE, page, sectionOf, toJudge, UNKNOWN } from "/state.js";

/** Send an event and show at once what it says of these images: [[answer, images], …]. */
function say(event, set, text) {
  const overlay = set.flatMap(([value, images]) => images.map((image) => [image, value]));
  document.dispatchEvent(new CustomEvent("answered"));
  const sent = outbox.add(event, overlay);
  page.state.overlay(overlay);
  if (page.view === "audit") for (const [image] of overlay) page.judged.add(image);
  deselect();
  page.draw();
  toast(text, () => step("undo"));
  if (page.large) stepLarge(1);
  sent.catch((error) => { toast(error.message); refetch(); });
}

/** Answers to keep: [[class, images], …]. */
const sayAll = (set, text) => say({ kind: "answer", set }, set, text);

export function answer(classId, images = chosen()) {
  const { state } = page, index = classId === 0 ? NONE : state.index(classId);
  if (classId > 0 && index < 0) toast("This class is gone.");
  else if (images.length) sayAll([[classId, images]], `${counted(images.length, "image")}: ${state.className(index)}`);
}

/** [[class, images], …] by the class that `indexOf` says of each row; what is of none is left out. */
function grouped(images, indexOf) {
  const { state } = page, groups = Map.groupBy(images, (image) => indexOf(state.rowOf.get(image), image));
  groups.delete(UNKNOWN);
  return [...groups].map(([index, those]) => [index === NONE ? 0 : state.classes[index][0], those]);
}

/** The index of what is asked about a row: whether it is of this class. */
function askedOf(row, image) {
  const { state, view } = page, audited = view === "audit" && toJudge().find(([waiting]) => waiting === image);
  if (audited) return audited[1] === 0 ? NONE : state.index(audited[1]);
  if (view === "doubtful" && state.doubts.has(image)) return state.doubts.get(image);
  return state.isConfirmed(row) ? UNKNOWN : state.shownIn(row);
}

export function accept(images) {
  const set = grouped(images, askedOf), count = set.reduce((sum, [, accepted]) => sum + accepted.length, 0);
  if (count) sayAll(set, `${counted(count, "guess", "guesses")} accepted`);
  else toast("There is no guess to accept.");
}

/** Accept all guesses of a section, after a glance at it. */
export function acceptSection(key) {
  const { rows = [] } = sectionOf(key) || {};
  if (rows.length) accept(rows.map((row) => page.state.image[row]));
}

export function notThis(images) {
  const { state, view } = page;
  const groups = grouped(images, view === "audit" ? askedOf : (row) => state.shownIn(row));
  for (const [classId, those] of groups) {
    const name = state.className(classId ? state.index(classId) : NONE);
    const text = `${counted(those.length, "image")}: not ${name}`;
    say({ kind: "not", class: classId, images: those }, [[-1, those]], text);
  }
  if (!groups.length) toast("This is in no class.");
}

export function clear(images) {
  const confirmed = images.filter((image) => page.state.isConfirmed(page.state.rowOf.get(image)));
  if (confirmed.length) sayAll([[-1, confirmed]], `${counted(confirmed.length, "answer")} taken back`);
}

/** Undo or redo; pressed again before the page has followed, it is sent all the same. */
export async function step(kind) {
  const title = outbox.isJudged() ? page.state[kind] : "";
  if (title === null) { toast(`Nothing to ${kind}.`); return; }
  const done = kind === "undo" ? "Undone" : "Redone";
  await send({ kind }, title ? `${done}: ${title}` : done).catch(complain);
}

/** Send what says nothing of images but `text`; `undo`: whether to offer to take it back. */
export async function send(event, text = "", undo = false) {
  await outbox.add(event);
  if (text) toast(text, undo && (() => step("undo")));
}

/** Ask for the name of a new class of these images. */
export const nameImages = (images) => open({ kind: "name", images, typed: "", wrong: "" });

/** The answers that fit these images. */
function answersFor(images) {
  const { state, view } = page, { classes } = state, begun = classes.length > 0, ofKinds = view === "kinds";
  const rows = images.map((image) => state.rowOf.get(image));
  const unconfirmed = rows.filter((row) => !state.isConfirmed(row));
  const guesses = new Set(unconfirmed.map((row) => state.shownIn(row)));
  guesses.delete(UNKNOWN);
  const guessed = begun && !ofKinds && view !== "audit", doubted = view === "doubtful";
  const isSorted = rows.some((row) => state.shownIn(row) !== UNKNOWN);
  const acceptName = doubted || guesses.size === 1 ? "Accept" : "Accept all";
  const newName = ofKinds ? "Name row" : begun ? "New class" : "Name them";
  const naming = { id: "new", sign: "N", name: newName, does: nameImages, primary: ofKinds || !begun };
  return [
    ofKinds && naming,
    guessed && (guesses.size || doubted) && { id: "accept", sign: "↵", name: acceptName, does: accept },
    ...classes.map(([id, name], index) => ({ id, index, name, does: () => answer(id, images) })),
    (begun || ofKinds) && { id: 0, index: NONE, name: "Stranger", does: () => answer(0, images) },
    guessed && isSorted && { id: "not", sign: "-", name: "Not this", does: notThis },
    begun && unconfirmed.length < rows.length && { id: "clear", sign: "⌫", name: "Take back", does: clear },
    !ofKinds && naming,
  ].filter(Boolean);
}

/** `pressed`: the index of the class that one image is confirmed to be in. */
export function Answers({ images, pressed, ...attributes }) {
  const buttons = answersFor(images).map(({ id, index, sign, name, does, primary }) => html`
    <button key=${id} class=${primary && "primary wide"} data-does=${id} onClick=${() => does(images)}
      aria-pressed=${pressed === undefined || index === undefined ? undefined : pressed === index}>
      <${Badge} index=${index} sign=${sign} /><span class="name">${name}</span>
    </button>`);
  return html`<div class="answers" ...${attributes}>${buttons}</div>`;
}

/** The answers to what is selected, or has the ring, below the tiles. */
export function Bar() {
  const { view, selected, phone } = page, images = chosen(), atCursor = !selected.size && images.length === 1;
  if (view === "skipped" || (["audit", "map", "kinds"].includes(view) && !images.length)) return null;
  const count = view === "kinds" ? counted(images.length, "image") : `${number(images.length)} selected`;
  const isEmpty = !images.length || (atCursor && phone.matches);
  const text = !images.length ? "Nothing to answer here" : atCursor ? "" : count;
  return html`<section id="bar" class="bar ${isEmpty ? "empty" : ""}" aria-label="Answer">
    <span id="chosen" class="chosen">${text}</span>
    ${images.length > 0 && html`<${Answers} id="answers" images=${images} />`}
  </section>`;
}
