// Drawing the page from what is known now.

import { drawBar } from "/answer_buttons.js";
import { drawCutoff } from "/cutoff.js";
import { classAt, drawPlaces, headingOf, sectionsOf } from "/places.js";
import { currentImage, settleCursor } from "/selection.js";
import { editing, repaint } from "/tiles.js";
import { $ } from "/words.js";

export function draw(page, glide = true, focusedImage = currentImage(page)) {
  const { state, place, least, grid, outbox } = page;
  if (!state) return;
  page.arranged = state.arrange(least);
  drawPlaces(page);
  const [title, lead] = headingOf(page);
  $("title").textContent = title;
  $("lead").textContent = lead;
  const orderable = place === "none" || place.startsWith("class:");
  $("order").hidden = !orderable;
  const index = classAt(state, place);
  $("edit").hidden = index < 0;
  if (index >= 0) editing($("edit"), state, index);
  $("order").textContent = least ? "Least sure first" : "Surest first";
  const hadFocus = document.activeElement?.classList.contains("tile");
  grid.show(sectionsOf(page), state, glide);
  settleCursor(page, focusedImage, hadFocus);
  drawBar(page);
  $("cutoff").hidden = !state.judged || (page.phone.matches && place !== "none");
  if (!$("cutoff").hidden) drawCutoff(state);
  drawTools(state);
  window.semishot = { epoch: state.epoch, version: state.version, event: state.event, rows: state.rows, judged: () => !outbox.waiting.length && page.state.event >= outbox.last };
  document.dispatchEvent(new CustomEvent("drawn"));
}

function drawTools(state) {
  for (const kind of ["undo", "redo"]) {
    $(kind).disabled = !state[kind];
    $(kind).title = state[kind] ? `${kind === "undo" ? "Undo" : "Redo"}: ${state[kind]}` : "";
  }
}

/** What is selected, or where the cursor is, has changed. */
export function repaintAll(page) {
  for (const tile of page.grid.tiles.values()) repaint(page, tile);
  drawBar(page);
}
