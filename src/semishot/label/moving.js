// Moving about: from tile to tile, and from place to place.

import { draw, repaintAll } from "/draw.js";
import { toast } from "/messages.js";
import { isGone, placesOf } from "/places.js";
import { currentImage, focusTiles } from "/selection.js";
import { $, number } from "/words.js";

export function go(page, to) {
  if (to === page.place) return;
  if (isGone(page.state, to)) { toast("This class is gone."); return; }
  history.pushState({ place: to }, "");
  show(page, to);
}

/** The browser's Back closes what is open, or else leads to the place before. */
export function back(page, event) {
  const open = document.querySelectorAll("dialog[open]");
  if (open.length) {
    history.pushState({ place: page.place }, "");
    open.forEach((dialog) => dialog.close());
    return;
  }
  if (!page.state) return;
  const to = event.state?.place || "all";
  const gone = to === "find" ? !page.found : isGone(page.state, to);
  show(page, gone ? "all" : to);
  focusTiles(page);
}

function show(page, to) {
  page.place = to;
  page.selected.clear();
  page.cursor = { section: null, index: 0 };
  $("main").scrollTop = 0;
  draw(page, false);
}

/** Show the files that were found, with the cursor on one of them. */
export function showFound(page, text, images, image) {
  page.found = { text, images };
  if (page.place !== "find") history.pushState({ place: "find" }, "");
  page.place = "find";
  page.cursor = { section: "find", index: Math.max(0, images.indexOf(image)) };
  draw(page, false);
  moveTo(page, "find", page.cursor.index);
}

export function neighbourPlace(page, by) {
  const list = placesOf(page).filter((one) => one.id && one.id !== "new").map((one) => one.id);
  const to = list[list.indexOf(page.place) + by];
  if (to) { go(page, to); focusTiles(page); }
}

export function moveTo(page, section, index, extend = false) {
  const { grid, selected } = page;
  const before = currentImage(page);
  const here = grid.section(section);
  if (!here || !here.shown) return;
  const cursor = page.cursor = { section, index: Math.max(0, Math.min(index, here.shown - 1)) };
  if (extend) {
    if (before !== null) selected.add(before);
    selected.add(currentImage(page));
  }
  const tile = grid.reveal(cursor.section, cursor.index);
  repaintAll(page);
  tile?.focus({ preventScroll: true });
}

export function arrow(page, dx, dy, extend) {
  const { grid, cursor } = page;
  const place = grid.sections.findIndex((one) => one.key === cursor.section);
  const section = grid.sections[place];
  if (!section) return;
  const index = cursor.index + dx + dy * grid.columns;
  const next = (by) => {
    for (let i = place + by; grid.sections[i]; i += by) if (grid.sections[i].shown) return grid.sections[i];
    return null;
  };
  if (index >= 0 && index < section.shown) moveTo(page, section.key, index, extend);
  else if (index >= section.shown) {
    const lastLine = Math.floor((section.shown - 1) / grid.columns);
    const below = next(1);
    if (dy && Math.floor(cursor.index / grid.columns) < lastLine) moveTo(page, section.key, section.shown - 1, extend);
    else if (below) moveTo(page, below.key, dy ? cursor.index % grid.columns : 0, extend);
  } else {
    const above = next(-1);
    if (above && dy) {
      const start = Math.floor((above.shown - 1) / grid.columns) * grid.columns;
      moveTo(page, above.key, start + (cursor.index % grid.columns), extend);
    } else if (above) moveTo(page, above.key, above.shown - 1, extend);
  }
}

export function selectAll(page) {
  const { state, grid, selected } = page;
  const section = grid.section(page.cursor.section) || grid.sections[0];
  if (!section) return;
  for (const row of section.rows) selected.add(state.image[row]);
  repaintAll(page);
  toast(`${number(selected.size)} selected`);
}
