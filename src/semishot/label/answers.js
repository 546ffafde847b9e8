// Answers: what a person says of images, shown at once and sent; and the buttons for them.

import { $, badge, button, counted, element, number, toast } from "/dom.js";
import { chosen, toJudge } from "/navigation.js";
import { NONE, UNKNOWN } from "/state.js";
import { draw } from "/views.js";

/** Send an event and show at once what it says of these images: [[answer, images], …]. */
function say(page, event, set, text) {
  const overlay = set.flatMap(([value, images]) => images.map((image) => [image, value]));
  document.dispatchEvent(new CustomEvent("answered", { detail: performance.now() }));
  const promise = page.outbox.add(event, overlay);
  page.state.overlay(overlay);
  page.selected.clear();
  page.crossed.clear();
  if (page.view === "audit") for (const [, images] of set) for (const image of images) page.judged.add(image);
  page.anchor = null;
  draw(page);
  toast(text, () => step(page, "undo"));
  return promise.catch((error) => { toast(error.message); page.server.refetch(); });
}

export function answer(page, classId, images = chosen(page)) {
  const { state } = page, index = classId === 0 ? NONE : state.index(classId);
  if (!images.length) return;
  if (classId > 0 && index < 0) { toast("This class is gone."); return; }
  const set = [[classId, images]];
  say(page, { kind: "answer", set }, set, `${counted(images.length, "image")}: ${state.className(index)}`);
}

/** Images by what `keyOf` says of each; those without are left out. */
function grouped(images, keyOf) {
  const groups = new Map();
  for (const image of images) {
    const key = keyOf(image);
    if (key === undefined) continue;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(image);
  }
  return [...groups];
}

export function accept(page, images) {
  const { state, view } = page;
  if (view === "audit") {
    const [image, decision] = toJudge(page)[0] || [];
    if (image) say(page, { kind: "answer", set: [[decision, [image]]] }, [[decision, [image]]], "Right");
    return;
  }
  const set = grouped(images, (image) => {
    const row = state.rowOf.get(image), doubt = view === "doubtful" && state.doubts.get(image);
    const where = doubt ? doubt.suggested : state.isConfirmed(row) ? UNKNOWN : state.shownIn(row);
    return where === UNKNOWN ? undefined : where === NONE ? 0 : state.classes[where][0];
  });
  if (!set.length) { toast("There is no guess to accept."); return; }
  const count = set.reduce((sum, [, accepted]) => sum + accepted.length, 0);
  say(page, { kind: "answer", set }, set, `${counted(count, "guess", "guesses")} accepted`);
}

/** Accept all guesses of a section, after a glance at it. */
export function acceptSection(page, key) {
  const section = page.grid.section(key);
  if (section) accept(page, section.rows.map((row) => page.state.image[row]));
}

export function notThis(page, images) {
  const { state } = page;
  if (page.view === "audit") {
    const [image, decision] = toJudge(page)[0] || [];
    if (image) say(page, { kind: "not", class: decision, images: [image] }, [[-1, [image]]], "Wrong");
    return;
  }
  const groups = grouped(images, (image) => {
    const where = state.shownIn(state.rowOf.get(image));
    return where === UNKNOWN ? undefined : where;
  });
  if (!groups.length) { toast("This is in no class."); return; }
  for (const [where, those] of groups) say(page, { kind: "not", class: where === NONE ? 0 : state.classes[where][0], images: those }, [[-1, those]], `${counted(those.length, "image")}: not ${state.className(where)}`);
}

export function clear(page, images) {
  const confirmed = images.filter((image) => page.state.isConfirmed(page.state.rowOf.get(image))), set = [[-1, confirmed]];
  if (confirmed.length) say(page, { kind: "answer", set }, set, `${counted(confirmed.length, "answer")} taken back`);
}

/** Undo or redo; pressed again before the page has followed, it is sent all the same. */
export async function step(page, kind) {
  const title = window.semishot.judged() ? page.state[kind] : "";
  if (title === null) { toast(`Nothing to ${kind}.`); return; }
  try {
    await page.outbox.add({ kind });
    toast(`${kind === "undo" ? "Undone" : "Redone"}${title ? `: ${title}` : ""}`);
  } catch (error) { toast(error.message); }
}

/** What a button of answers does. */
export function press({ dataset }, page, images = chosen(page)) {
  if (dataset.answer) answer(page, Number(dataset.answer), images);
  else if (dataset.does === "accept") accept(page, images);
  else if (dataset.does === "not") notThis(page, images);
  else if (dataset.does === "clear") clear(page, images);
  else if (dataset.does === "new") page.dialogs.newClass(images);
}

/** pressed: the index of the class that one image is confirmed to be in. */
export function answerButtons(page, images, pressed) {
  const { state, view } = page, buttons = [];
  const make = (key, name, data, index) => {
    const made = button();
    made.append(typeof key === "number" ? badge(state, key) : Object.assign(element("span", "key plain", key), { ariaHidden: "true" }), element("span", "name", name));
    Object.assign(made.dataset, data);
    if (index !== undefined && pressed !== undefined) made.setAttribute("aria-pressed", pressed === index);
    return made;
  };
  if (view === "kinds" && !state.classes.length) buttons.push(make(NONE, "Stranger", { answer: 0 }));
  if (state.classes.length) {
    const rows = images.map((image) => state.rowOf.get(image));
    const guesses = new Set(rows.filter((row) => !state.isConfirmed(row)).map((row) => state.shownIn(row)));
    guesses.delete(UNKNOWN);
    if (view !== "kinds" && view !== "audit" && (guesses.size || view === "doubtful")) buttons.push(make("↵", view === "doubtful" || guesses.size === 1 ? "Accept" : "Accept all", { does: "accept" }));
    buttons.push(...state.classes.map(([id, name], index) => make(index, name, { answer: id }, index)));
    buttons.push(make(NONE, "Stranger", { answer: 0 }, NONE));
    if (view !== "kinds" && view !== "audit" && rows.some((row) => state.shownIn(row) !== UNKNOWN)) buttons.push(make("-", "Not this", { does: "not" }));
    if (rows.some((row) => state.isConfirmed(row))) buttons.push(make("⌫", "Take back", { does: "clear" }));
  }
  const naming = view === "kinds" || !state.classes.length;
  buttons.push(make("N", view === "kinds" ? "Name row" : naming ? "Name them" : "New class", { does: "new" }));
  if (naming) buttons.at(-1).className = "primary wide";
  if (view === "kinds") buttons.unshift(buttons.pop());
  return buttons;
}

export function drawBar(page) {
  const images = chosen(page), atCursor = !page.selected.size && images.length === 1;
  $("bar").classList.toggle("empty", !images.length || (atCursor && page.phone.matches));
  $("bar").hidden = page.view === "skipped" || (["audit", "map", "kinds"].includes(page.view) && !images.length);
  $("chosen").textContent = !images.length ? "Nothing to answer here" : atCursor ? "" : page.view === "kinds" ? counted(images.length, "image") : `${number(images.length)} selected`;
  $("answers").replaceChildren(...(images.length ? answerButtons(page, images) : []));
}
