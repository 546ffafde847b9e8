// What the page tells: a toast, the banner, and how far reading is.

import { $, number } from "/words.js";

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

export function drawReading({ phase, done, total, rate }) {
  const busy = phase === "reading" || phase === "listing";
  $("reading").hidden = !busy;
  if (!busy) return;
  $("reading-bar").max = total || 1;
  $("reading-bar").value = done;
  const left = rate > 0 ? (total - done) / rate : 0;
  const time = left > 5400 ? `${Math.round(left / 3600)} h` : left > 90 ? `${Math.round(left / 60)} min` : `${Math.ceil(left)} s`;
  $("reading-text").textContent = phase === "listing" ? "Looking for images" :
    `${number(done)} of ${number(total)} images read${rate ? `, ${rate < 10 ? rate.toFixed(1) : Math.round(rate)} per second, ${time} left` : ""}`;
}
