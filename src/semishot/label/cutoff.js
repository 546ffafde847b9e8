// The slider of the cutoff: how many go out, in words and as a histogram of scores.

import { $, number } from "/words.js";

export function drawCutoff(state) {
  const slider = $("cutoff-slider");
  const at = nearest(state.rejects, state.rejectNow);
  if (document.activeElement !== slider || slider.value !== String(at)) slider.value = at;
  slider.max = state.rejects.length - 1;
  const now = state.putOut(); // at the cutoff itself, which may lie between two stops
  const [expected, fewest, greatest] = (state.strangers || [0, 0, 0]).map((value) => number(Math.round(value)));
  const total = state.strangers ? ` In all, about ${expected} (${fewest} to ${greatest}) belong to none of your classes.` : "";
  const about = (value) => (value < 0.5 ? "none" : `about ${number(Math.round(value))}`);
  $("cutoff-text").textContent = `Puts out ${number(now.out)} of ${number(now.of)}. Of these, ${about(now.lost)} likely ${Math.round(now.lost) === 1 ? "belongs" : "belong"} to a class; among the rest, ${about(now.missed)} likely ${Math.round(now.missed) === 1 ? "does" : "do"} not.${total}`;
  slider.setAttribute("aria-valuetext", $("cutoff-text").textContent);
  state.bins ||= state.histogram(60);
  const { counts, low, high } = state.bins;
  const most = Math.max(...counts, 1), cut = ((state.cutoff() - low) / (high - low || 1)) * 240;
  const bars = counts.map((count, i) => {
    const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    const height = count ? Math.max(1.5, (count / most) * 54) : 0;
    for (const [key, value] of Object.entries({ x: i * 4 + 0.4, y: 56 - height, width: 3.2, height })) bar.setAttribute(key, value);
    bar.setAttribute("class", i * 4 + 2 < cut ? "out" : "kept");
    return bar;
  });
  const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  for (const [key, value] of Object.entries({ x1: cut, x2: cut, y1: 0, y2: 56, class: "cut" })) line.setAttribute(key, value);
  $("cutoff-picture").replaceChildren(...bars, line);
}

function nearest(values, wanted) {
  let best = 0;
  values.forEach((value, i) => { if (Math.abs(Math.log(value / wanted)) < Math.abs(Math.log(values[best] / wanted))) best = i; });
  return best;
}
