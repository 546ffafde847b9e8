// Keys, mouse and touch.

import { accept, acceptSection, answer, clear, nameImages, notThis, step } from "/answers.js";
import { $, number, toast } from "/dom.js";
import { inside } from "/grid.js";
import { zoomTo } from "/large_view.js";
import { applyFilter, arrow, close, enlarge, find, focusTiles, go, moveTo, open, stepLarge } from "/navigation.js";
import { chosen, NO_FILTER, page, sectionOf } from "/state.js";
import { viewsOf } from "/views.js";

const FAR = 6, LONG_PRESS = 480, EDGE = 40;
const OTHERS = "button, a, input, select, .filter, .banner, .map, .audit, .skipped"; // no part of the tiles

/* Keys: each table is for where the focus is; functions get the images to answer for, and whether Shift is down */

const WITH_CONTROL = {
  z: (images, shift) => step(shift ? "redo" : "undo"),
  y: () => step("redo"),
  a: selectAll,
};
const WHILE_TYPING = { Escape: find, Enter: focusTiles };
const ANSWERS = {
  0: (images) => answer(0, images),
  "-": notThis,
  Backspace: clear,
  Delete: clear,
  n: nameImages,
  "?": () => open({ kind: "help", address: "" }),
};
const IN_LARGE = {
  ArrowLeft: () => stepLarge(-1),
  ArrowRight: () => stepLarge(1),
  Enter: accept,
  " ": close,
  z: () => zoomTo(page.large.zoom.scale > 1 ? 1 : 3),
};
const ON_PAGE = {
  "/": find,
  t: () => showNames(!page.captions),
  PageUp: () => neighbourView(-1),
  PageDown: () => neighbourView(1),
  Escape: () => (page.selected.size ? selectNothing() : applyFilter(NO_FILTER)),
};
const ON_TILES = {
  Enter: accept,
  ArrowLeft: (images, shift) => arrow(-1, 0, shift),
  ArrowRight: (images, shift) => arrow(1, 0, shift),
  ArrowUp: (images, shift) => arrow(0, -1, shift),
  ArrowDown: (images, shift) => arrow(0, 1, shift),
  Home: (images, shift) => moveTo(page.cursor.section, 0, shift),
  End: (images, shift) => moveTo(page.cursor.section, Infinity, shift),
  " ": () => enlarge(page.cursor.section, page.cursor.index),
  x: () => pick(page.cursor),
};

export function pressKey(event) {
  if (event.defaultPrevented || !page.state || page.dialog) return;
  const images = page.large ? [page.large.image] : chosen(), work = workOf(event);
  if (!work) return;
  event.preventDefault();
  work(images, event.shiftKey);
}

/** What a key does, if it does something. */
function workOf({ key, target, shiftKey, altKey, ctrlKey, metaKey }) {
  const { state, large, view } = page, name = key.length === 1 ? key.toLowerCase() : key;
  if (target.matches("#filter-form *")) return WHILE_TYPING[key]; // others are typed
  if (ctrlKey || metaKey) return name === "a" && large ? null : WITH_CONTROL[name];
  if (altKey) return null;
  if (/^[1-9]$/.test(key)) {
    const numbered = state.classes.find(([, , slot]) => slot === Number(key) - 1);
    return (images) => (numbered ? answer(numbered[0], images) : nameImages(images));
  }
  if (ANSWERS[name]) return ANSWERS[name];
  const onButton = target.matches("button, a") && (key === "Enter" || key === " "); // which does its own
  if (large) return onButton ? null : IN_LARGE[name];
  if (key === "Enter" && shiftKey) return () => acceptSection(page.cursor.section);
  const onTiles = target.matches("body, main, .tile") || view === "audit";
  return ON_PAGE[name] || (onTiles && !onButton ? ON_TILES[name] : null);
}

function selectAll() {
  const { state, selected, sections, view } = page, section = sectionOf(page.cursor.section) || sections[0];
  if (!section || view === "kinds") return;
  for (const row of section.rows) selected.add(state.image[row]);
  toast(`${number(selected.size)} selected`);
}

function selectNothing() {
  page.selected.clear();
  page.paint();
}

function neighbourView(by) {
  const views = viewsOf().filter(({ view, does }) => view && !does).map(({ view }) => view);
  const to = views[views.indexOf(page.view) + by];
  if (to) go(to);
}

export function showNames(shown) {
  page.captions = shown;
  localStorage.setItem("captions", shown ? "on" : "");
  page.relayout();
}

/* Mouse and touch on the tiles: click, range, box, long press */

/** Select an image, or select it no longer; among kinds, click it away. */
function pick({ section, index, image }, extend = false) {
  const { anchor, selected, view } = page, set = view === "kinds" ? page.crossed : selected;
  if (image === null) return;
  if (extend && anchor?.section === section && view !== "kinds") {
    const range = sectionOf(section).rows.slice(Math.min(anchor.index, index), Math.max(anchor.index, index) + 1);
    for (const row of range) selected.add(page.state.image[row]);
  } else {
    if (!set.delete(image)) set.add(image);
    page.anchor = { section, index };
  }
  page.cursor = { section, index, image };
  page.paint();
  focusTiles();
}

/** What the cursor would be on the tile of an event. */
function tileOf({ target }) {
  const { section, index } = target.closest(".tile")?.dataset || {};
  if (!section) return null;
  return { section, index: Number(index), image: page.state.image[sectionOf(section).rows[index]] };
}

let press = null; // since a button or finger is down

function endPress() {
  clearTimeout(press?.long);
  press = page.box = null;
}

/** The listeners of what scrolls. */
export const pointer = {
  onPointerDown(event) {
    if (event.button !== 0 || event.target.closest(OTHERS)) return;
    const { ctrlKey, metaKey, shiftKey, clientX: x, clientY: y } = event;
    const tile = tileOf(event), touch = event.pointerType === "touch";
    const base = ctrlKey || metaKey || shiftKey ? [...page.selected] : [];
    press = { x, y, tile, touch, base, extend: shiftKey, scroll: $("main").scrollTop };
    if (touch && tile) press.long = setTimeout(() => { endPress(); enlarge(tile.section, tile.index); }, LONG_PRESS);
  },
  onPointerMove({ clientX, clientY, pointerId }) {
    if (!press) return;
    const far = Math.hypot(clientX - press.x, clientY - press.y) > FAR, main = $("main");
    if (far && (press.touch || page.view === "kinds")) endPress();
    if (!press || press.touch || !(far || page.box)) return;
    if (!page.box) main.setPointerCapture(pointerId);
    const frame = $("grid").getBoundingClientRect(), view = main.getBoundingClientRect();
    const xs = [clientX, press.x].map((x) => x - frame.left);
    const ys = [clientY, press.y + press.scroll - main.scrollTop].map((y) => y - frame.top);
    const left = Math.min(...xs), top = Math.min(...ys);
    page.box = { left, top, width: Math.max(...xs) - left, height: Math.max(...ys) - top };
    page.selected = new Set([...press.base, ...inside(page.box)]);
    if (clientY > view.bottom - EDGE) main.scrollTop += 14;
    if (clientY < view.top + EDGE) main.scrollTop -= 14;
    page.paint();
  },
  onPointerUp({ target }) {
    if (!press) return;
    const { tile, extend } = press, boxed = page.box;
    endPress();
    if (tile && !boxed) { pick(tile, extend); return; }
    if (boxed || target.closest("button")) page.paint();
    else selectNothing();
  },
  onPointerCancel: () => { endPress(); page.paint(); },
  onDblClick(event) {
    const tile = tileOf(event);
    if (tile) enlarge(tile.section, tile.index);
  },
};

/** Know whether a button or a finger is down: nothing moves away under it then, and a slider stays in the hand. */
export function watchHeld() {
  let releasing = 0;
  const release = () => { releasing = setTimeout(() => { page.held = false; }, 60); }; // the click comes after it
  const capture = (type, listener) => document.addEventListener(type, listener, true);
  capture("pointerdown", () => { page.held = true; clearTimeout(releasing); }); // pressed again: not yet released
  capture("pointerup", release);
  capture("pointercancel", release);
  capture("pointermove", ({ buttons }) => { if (!buttons) page.held = false; }); // released elsewhere
  addEventListener("blur", () => { page.held = false; });
}
