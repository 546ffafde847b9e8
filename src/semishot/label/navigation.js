// Cursor and selection; moving from tile to tile and from view to view, by key, mouse and touch.

import { accept, acceptSection, answer, clear, notThis, step } from "/answers.js";
import { $, element, number, on, toast } from "/dom.js";
import { applyFilter, NO_FILTER } from "/dialogs.js";
import { draw, isFiltered, isGone, repaintAll, viewsOf } from "/views.js";

const FAR = 6, LONG_PRESS = 480, EDGE = 40;

export function currentImage(page) {
  const section = page.state && page.grid.section(page.cursor.section);
  const row = section?.rows[page.cursor.index];
  return row === undefined ? null : page.grid.state.image[row];
}

/** What an answer is for. */
export function chosen(page) {
  if (page.view === "audit") return page.state.audit ? toJudge(page).slice(0, 1).map(([image]) => image) : [];
  if (page.view === "kinds") return ofKind(page, page.cursor.section);
  if (page.selected.size) return [...page.selected];
  const image = currentImage(page);
  return image === null ? [] : [image];
}

/** The images of a row of kinds that have not been clicked away; of an open kind, all. */
export function ofKind(page, key) {
  const section = page.grid.section(key);
  return section ? section.rows.slice(0, section.shown).map((row) => page.state.image[row]).filter((image) => !page.crossed.has(image)) : [];
}

/** Click away all of a row of kinds, or none of it any more. */
export function skipRow(page, key) {
  const { grid, state, crossed } = page, change = ofKind(page, key).length ? "add" : "delete";
  for (const row of grid.section(key).rows) crossed[change](state.image[row]);
  repaintAll(page);
}

/** Images of the audit, and what was decided of them, that have not been judged. */
export function toJudge({ state, judged }) {
  return state.audit.waiting.filter(([image]) => !judged.has(image) && !state.isConfirmed(state.rowOf.get(image)));
}

export function toggle(selected, image) {
  if (!selected.delete(image)) selected.add(image);
}

export function focusTiles(page) {
  (page.grid.tileAt(page.cursor.section, page.cursor.index) || $("main")).focus({ preventScroll: true });
}

/** The image stays under the cursor if it is still in its section; else the next one comes under it. */
export function settleCursor(page, image, hadFocus) {
  const { state, grid } = page;
  let section = grid.section(page.cursor.section);
  if (!section?.shown) section = grid.sections.find(({ shown }) => shown);
  if (!section) { page.cursor = { section: null, index: 0 }; return; }
  let index = section.key === page.cursor.section ? page.cursor.index : 0;
  const row = image === null ? undefined : state.rowOf.get(image);
  if (row !== undefined && section.rows[index] !== row) {
    const now = section.rows.indexOf(row);
    if (now >= 0 && now < section.shown) index = now;
  }
  const cursor = page.cursor = { section: section.key, index: Math.min(index, section.shown - 1) };
  markRow(page);
  for (const tile of grid.tiles.values()) {
    const here = tile.section === cursor.section && tile.index === cursor.index;
    tile.classList.toggle("cursor", here);
    tile.tabIndex = here ? 0 : -1;
    if (here && hadFocus) tile.focus({ preventScroll: true });
  }
}

/** The row of kinds that an answer is for. */
function markRow({ grid, view, cursor }) {
  for (const { key, root } of grid.sections) root.classList.toggle("current", view === "kinds" && key === cursor.section);
}

/** Show a view; the one that is shown already, without the filter. */
export function go(page, to) {
  page.fresh = false;
  if (to === page.view) { if (isFiltered(page)) applyFilter(page, NO_FILTER); return; }
  if (isGone(page.state, to)) { toast("This class is gone."); return; }
  history.pushState({ view: to }, "");
  show(page, to);
}

/** The browser's Back closes what is open, or else leads to the view before. */
export function back(page, event) {
  const open = document.querySelectorAll("dialog[open]");
  if (open.length) {
    history.pushState({ view: page.view }, "");
    open.forEach((dialog) => dialog.close());
    return;
  }
  if (!page.state) return;
  const to = event.state?.view || "all";
  show(page, isGone(page.state, to) ? "all" : to);
  focusTiles(page);
}

function show(page, to) {
  page.view = to;
  page.fresh = false;
  page.selected.clear();
  page.crossed.clear();
  page.cursor = { section: null, index: 0 };
  $("main").scrollTop = 0;
  draw(page, false);
}

function neighbourView(page, by) {
  const views = viewsOf(page).map(({ id }) => id).filter((id) => id && id !== "new");
  const to = views[views.indexOf(page.view) + by];
  if (to) { go(page, to); focusTiles(page); }
}

export function moveTo(page, section, index, extend = false) {
  const { grid, selected } = page, before = currentImage(page), here = grid.section(section);
  if (!here?.shown) return;
  const cursor = page.cursor = { section, index: Math.max(0, Math.min(index, here.shown - 1)) };
  if (extend) {
    if (before !== null) selected.add(before);
    selected.add(currentImage(page));
  }
  const tile = grid.reveal(cursor.section, cursor.index);
  markRow(page);
  repaintAll(page);
  tile?.focus({ preventScroll: true });
}

function arrow(page, dx, dy, extend) {
  const { grid, cursor } = page, { columns, sections } = grid;
  const at = sections.findIndex(({ key }) => key === cursor.section), section = sections[at];
  if (!section) return;
  const line = (index) => Math.floor(index / columns), column = cursor.index % columns;
  const index = cursor.index + dx + dy * columns, last = section.shown - 1;
  const below = sections.slice(at + 1).find(({ shown }) => shown), above = sections.slice(0, at).findLast(({ shown }) => shown);
  if (index >= 0 && index <= last) moveTo(page, section.key, index, extend);
  else if (index > last && dy && line(cursor.index) < line(last)) moveTo(page, section.key, last, extend);
  else if (index > last && below) moveTo(page, below.key, dy ? column : 0, extend);
  else if (index < 0 && above) moveTo(page, above.key, dy ? line(above.shown - 1) * columns + column : above.shown - 1, extend);
}

function selectAll(page) {
  const { state, grid, selected } = page, section = grid.section(page.cursor.section) || grid.sections[0];
  if (!section || page.view === "kinds") return;
  for (const row of section.rows) selected.add(state.image[row]);
  repaintAll(page);
  toast(`${number(selected.size)} selected`);
}

/** The keys of the page, and of the large picture. */
export function listenToKeys(page) {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || !page.state || document.querySelector("dialog[open]:not(#large)")) return;
    const work = workOf(page, event);
    if (!work) return;
    event.preventDefault();
    work();
  });
}

/** What a key does, if it does something. */
function workOf(page, { key, target, shiftKey, altKey, ctrlKey, metaKey }) {
  const { state, selected, cursor, dialogs } = page, inLarge = $("large").open, letter = key.toLowerCase();
  if (target.matches("#filter-form *")) return { Escape: () => $("find").click(), Enter: () => focusTiles(page) }[key]; // others are typed
  if (ctrlKey || metaKey) {
    if (letter === "z") return () => step(page, shiftKey ? "redo" : "undo");
    if (letter === "y") return () => step(page, "redo");
    return letter === "a" && !inLarge ? () => selectAll(page) : null;
  }
  if (altKey) return null;
  const images = inLarge ? [dialogs.large.image()] : chosen(page);
  const onTile = target.classList.contains("tile") || target === document.body || target === $("main") || inLarge || page.view === "audit";
  if (/^[1-9]$/.test(key)) {
    const numbered = state.classes.find(([, , slot]) => slot === Number(key) - 1);
    return () => (numbered ? answer(page, numbered[0], images) : dialogs.newClass(images));
  }
  if (key === "0") return () => answer(page, 0, images);
  if (key === "-") return () => notThis(page, images);
  if (key === "Backspace" || key === "Delete") return () => clear(page, images);
  if (letter === "n") return () => dialogs.newClass(images);
  if (key === "/" && !inLarge) return () => $("find").click();
  if (key === "?") return dialogs.help;
  if (key === "Enter" && shiftKey && !inLarge) return () => acceptSection(page, cursor.section);
  if (key === "Enter" && onTile && !target.matches("button, a")) return () => accept(page, images);
  if (inLarge) {
    if (key === "ArrowLeft" || key === "ArrowRight") return () => dialogs.large.step(key === "ArrowLeft" ? -1 : 1);
    if (letter === "z") return dialogs.large.zoom;
    return key === " " && !target.matches("button") ? () => $("large").close() : null;
  }
  if (key === "Escape") return () => (selected.size || !isFiltered(page) ? (selected.clear(), repaintAll(page)) : applyFilter(page, NO_FILTER));
  if (letter === "t") return () => $("captions").click();
  if (key === "PageDown" || key === "PageUp") return () => neighbourView(page, key === "PageDown" ? 1 : -1);
  if (!onTile) return null;
  const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
  if (by) return () => arrow(page, ...by, shiftKey);
  if (key === "Home") return () => moveTo(page, cursor.section, 0, shiftKey);
  if (key === "End") return () => moveTo(page, cursor.section, Infinity, shiftKey);
  if (key === " ") return () => dialogs.large.open(cursor.section, cursor.index);
  if (letter === "x") return () => { const image = currentImage(page); if (image !== null) toggle(page.view === "kinds" ? page.crossed : selected, image); repaintAll(page); };
  return null;
}

/** Mouse and touch on the tiles: click, range, box, long press. */
export function listenToPointer(page) {
  const { grid, selected } = page, main = $("main");
  let press = null;
  on("main", "pointerdown", (event) => {
    if (event.button !== 0 || event.target.closest("button, a, input, form, .banner, #map-card, #audit, #skipped")) return;
    const tile = event.target.closest(".tile"), touch = event.pointerType === "touch";
    const base = event.ctrlKey || event.metaKey || event.shiftKey ? new Set(selected) : new Set();
    press = { x: event.clientX, y: event.clientY, tile, touch, extend: event.shiftKey, base, box: null, scroll: main.scrollTop };
    if (touch && tile) press.long = setTimeout(() => { if (press) { press = null; page.dialogs.large.open(tile.section, tile.index); } }, LONG_PRESS);
  });
  on("main", "pointermove", (event) => {
    if (!press) return;
    const far = Math.hypot(event.clientX - press.x, event.clientY - press.y) > FAR;
    if (press.touch) { if (far) cancel(); return; }
    if (!press.box && far) {
      if (page.view === "kinds") { cancel(); return; }
      press.box = element("div", "rubber");
      $("grid").append(press.box);
      main.setPointerCapture(event.pointerId);
    }
    if (!press.box) return;
    const frame = $("grid").getBoundingClientRect(), view = main.getBoundingClientRect();
    const from = { x: press.x - frame.left, y: press.y - frame.top - (main.scrollTop - press.scroll) };
    const x = event.clientX - frame.left, y = event.clientY - frame.top;
    const box = { left: Math.min(x, from.x), right: Math.max(x, from.x), top: Math.min(y, from.y), bottom: Math.max(y, from.y) };
    Object.assign(press.box.style, { left: `${box.left}px`, top: `${box.top}px`, width: `${box.right - box.left}px`, height: `${box.bottom - box.top}px` });
    selected.clear();
    for (const image of [...press.base, ...grid.inside(box)]) selected.add(image);
    if (event.clientY > view.bottom - EDGE) main.scrollTop += 14;
    if (event.clientY < view.top + EDGE) main.scrollTop -= 14;
    repaintAll(page);
  });
  on("main", "pointerup", (event) => {
    if (!press) return;
    const { tile, box, extend } = press;
    cancel();
    if (box) return;
    if (tile?.isConnected) pick(tile, extend);
    else if (!tile && !event.target.closest("button")) { selected.clear(); repaintAll(page); }
  });
  function pick(tile, extend) {
    const { section, index, image } = tile;
    if (page.view === "kinds") toggle(page.crossed, image);
    else if (extend && page.anchor?.section === section) {
      const range = grid.section(section).rows.slice(Math.min(page.anchor.index, index), Math.max(page.anchor.index, index) + 1);
      for (const row of range) selected.add(page.state.image[row]);
    } else {
      toggle(selected, image);
      page.anchor = { section, index };
    }
    page.cursor = { section, index };
    markRow(page);
    repaintAll(page);
    tile.focus({ preventScroll: true });
  }
  function cancel() {
    clearTimeout(press?.long);
    press?.box?.remove();
    press = null;
  }
  on("main", "pointercancel", cancel);
  on("main", "dblclick", (event) => {
    const tile = event.target.closest(".tile");
    if (tile) page.dialogs.large.open(tile.section, tile.index);
  });
}

/** Whether a button or a finger is down: nothing moves away under it then, and a slider stays in the hand. */
export function watchHeld() {
  let held = false, releasing = 0;
  document.addEventListener("pointerdown", () => { held = true; clearTimeout(releasing); }, true); // pressed again: not yet released
  for (const type of ["pointerup", "pointercancel"]) document.addEventListener(type, () => { releasing = setTimeout(() => { held = false; }, 60); }, true); // the click comes after it
  document.addEventListener("pointermove", (event) => { if (!event.buttons) held = false; }, true); // released elsewhere
  addEventListener("blur", () => { held = false; });
  return () => held;
}
