// The buttons for answers: in the bar below, and beside the large picture.

import { chosen } from "/selection.js";
import { NONE, UNKNOWN } from "/state.js";
import { $, badge, element, number } from "/words.js";

export function answerButtons(page, images, pressed) {
  const { state, place } = page;
  const classes = element("div", "classes"), buttons = [];
  classes.append(...state.classes.map(([id, name], index) => {
    const button = element("button");
    button.append(badge(index), element("span", "name", name));
    button.dataset.answer = id;
    if (pressed !== undefined) button.setAttribute("aria-pressed", pressed === index);
    return button;
  }));
  if (state.classes.length) buttons.push(classes);
  const plain = (key, name, does) => {
    const button = element("button");
    button.append(Object.assign(element("span", "key plain", key), { ariaHidden: "true" }), element("span", "name", name));
    button.dataset.does = does;
    return button;
  };
  if (state.classes.length) {
    const none = element("button");
    none.append(badge(NONE), element("span", "name", "None"));
    none.setAttribute("aria-label", "None of these");
    none.dataset.answer = "0";
    if (pressed !== undefined) none.setAttribute("aria-pressed", pressed === NONE);
    buttons.push(none);
    const rows = images.map((image) => state.rowOf.get(image));
    const guesses = new Set(rows.filter((row) => !state.isSaid(row)).map((row) => state.placeOf(row)));
    guesses.delete(UNKNOWN);
    if (guesses.size || place === "doubtful") buttons.unshift(plain("↵", place === "doubtful" || guesses.size === 1 ? "Accept" : "Accept all", "accept"));
    if (rows.some((row) => state.placeOf(row) >= 0)) buttons.push(plain("-", "Not this", "not"));
    if (rows.some((row) => state.isSaid(row))) buttons.push(plain("⌫", "Take back", "clear"));
  }
  buttons.push(plain("n", state.classes.length ? "New" : "Name them", "new"));
  if (!state.classes.length) buttons.at(-1).className = "primary";
  for (const button of [...buttons, ...classes.children]) button.type = "button";
  return buttons;
}

export function drawBar(page) {
  const images = chosen(page);
  const one = !page.selected.size && images.length === 1;
  $("bar").classList.toggle("empty", !images.length || (one && page.phone.matches));
  $("chosen").textContent = !images.length ? "Nothing to answer here" : one ? "" : `${number(images.length)} selected`;
  $("answers").replaceChildren(...(images.length ? answerButtons(page, images) : []));
}
