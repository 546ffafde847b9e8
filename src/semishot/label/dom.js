// Elements, numbers, names and colors as the page shows them; short messages.

import { NONE, STEPS } from "/state.js";

const COLORS = 12, BRIEFLY = 2600, WITH_UNDO = 7000;

export const $ = (id) => document.getElementById(id);
export const on = (id, type, listener) => $(id).addEventListener(type, listener);
export const number = (value) => value.toLocaleString("en");
export const counted = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;
/** A probability of STEPS. */
export const percent = (steps) => {
  const share = steps / STEPS;
  return share > 0.995 ? "> 99\u202f%" : share < 0.005 ? "< 1\u202f%" : `${Math.round(100 * share)}\u202f%`;
};
/** A file's name as text: what would turn the direction of the text around it, or break the line, is shown as a sign. */
export const plainText = (name) => name.replace(/[\p{Cc}\u061c\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069]/gu, "\ufffd");

export function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

export function button(className, text) {
  return Object.assign(element("button", className, text), { type: "button" });
}

export function shape(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

export function colorOf(state, index) {
  return index === NONE ? "var(--none)" : index < 0 ? "var(--soft)" : `var(--c${state.slot(index) % COLORS})`;
}

export function keyOf(state, index) {
  const slot = state.slot(index);
  return index === NONE ? "0" : slot >= 0 && slot < 9 ? String(slot + 1) : "";
}

export function badge(state, index) {
  const made = element("span", "key", keyOf(state, index) || "·");
  made.style.setProperty("--color", colorOf(state, index));
  made.ariaHidden = "true";
  return made;
}

let toasting = 0;
/** A short message; with `undo`, a button that takes back what it tells. */
export function toast(text, undo = null) {
  const shown = $("toast");
  shown.replaceChildren(text);
  if (undo) {
    const back = button("", "Undo");
    back.addEventListener("click", () => { shown.classList.remove("on"); undo(); });
    shown.append(back);
  }
  shown.classList.add("on");
  clearTimeout(toasting);
  toasting = setTimeout(() => shown.classList.remove("on"), undo ? WITH_UNDO : BRIEFLY);
}

export function banner(text) {
  $("banner").hidden = !text;
  if ($("banner").textContent !== text) $("banner").textContent = text;
}
