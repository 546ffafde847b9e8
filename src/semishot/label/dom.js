// Elements, numbers, names and colors as the page shows them; short messages.

import { NONE } from "/state.js";

const COLORS = 10;

export const $ = (id) => document.getElementById(id);
export const on = (id, type, listener) => $(id).addEventListener(type, listener);
export const number = (value) => value.toLocaleString("en");
export const counted = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;
export const percent = (byte) => {
  const share = byte / 255;
  return share > 0.99 ? "> 99\u202f%" : share < 0.01 ? "< 1\u202f%" : `${Math.round(share * 100)}\u202f%`;
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

export function colorOf(index) {
  return index === NONE ? "var(--none)" : index < 0 ? "var(--soft)" : `var(--c${index % COLORS})`;
}

export function keyOf(index) {
  return index < 9 ? String(index + 1) : "";
}

export function badge(index) {
  const made = element("span", "key", index === NONE ? "0" : keyOf(index) || "·");
  made.style.setProperty("--color", colorOf(index));
  made.ariaHidden = "true";
  return made;
}

let toasting = 0;
export function toast(text) {
  $("toast").textContent = text;
  $("toast").classList.add("on");
  clearTimeout(toasting);
  toasting = setTimeout(() => $("toast").classList.remove("on"), 2600);
}

export function banner(text) {
  $("banner").hidden = !text;
  if ($("banner").textContent !== text) $("banner").textContent = text;
}
