// Answers: what a person says of images, shown at once and sent.

import { draw } from "/draw.js";
import { toast } from "/messages.js";
import { chosen } from "/selection.js";
import { NONE, UNKNOWN } from "/state.js";
import { counted } from "/words.js";

/** Send an event and show at once what it says of these images: [[answer, images], …]. */
function say(page, event, set, text) {
  const overlay = set.flatMap(([value, images]) => images.map((image) => [image, value]));
  document.dispatchEvent(new CustomEvent("answered", { detail: performance.now() }));
  const promise = page.outbox.add(event, overlay);
  page.state.overlay(overlay);
  page.state.bins = null;
  page.selected.clear();
  page.anchor = null;
  draw(page);
  if (text) toast(text);
  return promise.catch((error) => { toast(error.message); page.server.refetch(); });
}

export function answer(page, classId, images = chosen(page)) {
  const { state } = page;
  if (!images.length) return;
  if (classId === 0 && !state.classes.length) { toast("Make a class first: press N."); return; }
  if (classId > 0 && state.index(classId) < 0) { toast("This class is gone."); return; }
  const name = classId === 0 ? "none of these" : state.className(state.index(classId));
  const set = [[classId, images]];
  say(page, { kind: "answer", set }, set, `${counted(images.length, "image")}: ${name}`);
}

export function accept(page, images) {
  const { state, place } = page;
  const by = new Map();
  for (const image of images) {
    const row = state.rowOf.get(image), doubt = place === "doubtful" && state.doubts.get(image);
    const where = doubt ? doubt.suggested : state.isSaid(row) ? UNKNOWN : state.placeOf(row);
    if (where === UNKNOWN) continue;
    const value = where === NONE ? 0 : state.classes[where][0];
    by.set(value, [...(by.get(value) || []), image]);
  }
  if (!by.size) { toast("There is no guess to accept."); return; }
  const set = [...by];
  const count = set.reduce((sum, [, held]) => sum + held.length, 0);
  say(page, { kind: "answer", set }, set, `${counted(count, "guess", "guesses")} accepted`);
}

export function notThis(page, images) {
  const { state } = page;
  const by = new Map();
  for (const image of images) {
    const where = state.placeOf(state.rowOf.get(image));
    if (where >= 0) by.set(where, [...(by.get(where) || []), image]);
  }
  if (!by.size) { toast("This is in no class."); return; }
  for (const [where, held] of by) say(page, { kind: "not", class: state.classes[where][0], images: held }, [[-1, held]], `${counted(held.length, "image")}: not ${state.className(where)}`);
}

export function clear(page, images) {
  const held = images.filter((image) => page.state.isSaid(page.state.rowOf.get(image)));
  if (held.length) say(page, { kind: "answer", set: [[-1, held]] }, [[-1, held]], `${counted(held.length, "answer")} taken back`);
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

/** What a button of answers does that has no class. */
export function does(page, what, images = chosen(page)) {
  if (what === "accept") accept(page, images);
  else if (what === "not") notThis(page, images);
  else if (what === "clear") clear(page, images);
  else if (what === "new") page.dialogs.newClass(images);
}
