// Templates, and numbers, names, colors and short messages as the page shows them.

import htm from "/htm.js";
import { h } from "/preact.js";
import { NONE, page, STEPS, UNKNOWN } from "/state.js";

const COLORS = 12, BRIEFLY = 2600, WITH_UNDO = 7000;
const ICONS = {
  find: "M14.5 9a5.5 5.5 0 1 1-11 0 5.5 5.5 0 0 1 11 0M13.2 13.2 17 17",
  undo: "M4 8h8a4 4 0 0 1 0 8H8M7.5 4l-4 4 4 4",
  redo: "M16 8H8a4 4 0 0 0 0 8h4M12.5 4l4 4-4 4",
  help: "M17 10a7 7 0 1 1-14 0 7 7 0 0 1 14 0M8 8a2 2 0 1 1 2.7 1.9c-.5.2-.7.6-.7 1.3M10 13.6v.3",
  back: "m12.5 4-6 6 6 6",
  on: "m7.5 4 6 6-6 6",
  close: "m5 5 10 10M15 5 5 15",
};

/** The template of elements and components: html`<b class=${name}>${text}</b>`. */
export const html = htm.bind(h);
export const $ = (id) => document.getElementById(id);
export const number = (value) => value.toLocaleString("en");
export const counted = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;

/** A probability of STEPS. */
export function percent(steps) {
  const share = steps / STEPS;
  return share > 0.995 ? "> 99\u202f%" : share < 0.005 ? "< 1\u202f%" : `${Math.round(100 * share)}\u202f%`;
}

/** A file's name as text: what would turn the direction of the text around it, or break the line, is a sign. */
export const plainText = (name) =>
  name.replace(/[\p{Cc}\u061c\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069]/gu, "\ufffd");

export const nameOf = (image) => page.names.get(image) || `image ${image}`;
export const pictureOf = (image, size) => `/${size}/${image}?of=${page.state.pile}`;

/** The key and the color of a class are its own while it lives. */
export function colorOf(index) {
  if (index < 0) return index === NONE ? "var(--none)" : "var(--soft)";
  return `var(--c${page.state.classes[index][2] % COLORS})`;
}

export function keyOf(index) {
  const slot = page.state.classes[index]?.[2];
  return index === NONE ? "0" : slot < 9 ? String(slot + 1) : "";
}

/** What is known of a row, in words. */
export function known(row) {
  const { state } = page, where = state.shownIn(row), kind = state.kindOf(row);
  const before = { confirmed: "confirmed", ask: "worth asking, guessed", guess: "guessed", open: "not sorted" }[kind];
  const chance = kind === "confirmed" ? "" : ` ${percent(state.chance(row))}`;
  return where === UNKNOWN ? before.split(",")[0] : `${before} ${state.className(where)}${chance}`;
}

export const Icon = ({ of }) => html`<svg viewBox="0 0 20 20" aria-hidden="true"><path d=${ICONS[of]} /></svg>`;

/** The key of a class in its color, or another sign. */
export function Badge({ index, sign, ask }) {
  if (index === undefined) return html`<span class="key ${ask ? "ask" : "plain"}" aria-hidden="true">${sign}</span>`;
  const style = { "--color": colorOf(index) };
  return html`<span class="key" style=${style} aria-hidden="true">${keyOf(index) || "·"}</span>`;
}

/** What went wrong, as a short message. */
export const complain = ({ message }) => toast(message);

let briefly = 0;
/** A short message; `undo` takes back what it tells. */
export function toast(text, undo = null) {
  const hide = () => { page.message = { ...page.message, on: false }; page.paint(); };
  page.message = { text, on: true, undo: undo && (() => { hide(); undo(); }) };
  page.paint();
  clearTimeout(briefly);
  briefly = setTimeout(hide, undo ? WITH_UNDO : BRIEFLY);
}
