// Mouse and touch on the tiles: click, range, box, long press; and whether a button is held down.

import { repaintAll } from "/draw.js";
import { toggle } from "/selection.js";
import { $, element } from "/words.js";

export function listenToPointer(page) {
  const { grid, selected } = page;
  let press = null;
  function onDown(event) {
    if (event.button !== 0 || event.target.closest("button, a, input, .banner")) return;
    const tile = event.target.closest(".tile");
    press = { x: event.clientX, y: event.clientY, tile, touch: event.pointerType === "touch", extend: event.shiftKey, box: null, scroll: $("main").scrollTop };
    if (press.touch && tile) press.long = setTimeout(() => { if (press) { press = null; page.dialogs.large.open(tile.section, tile.index); } }, 480);
    else if (!press.touch) press.base = event.ctrlKey || event.metaKey || event.shiftKey ? new Set(selected) : new Set();
  }
  function onMove(event) {
    if (!press) return;
    const far = Math.hypot(event.clientX - press.x, event.clientY - press.y) > 6;
    if (press.touch) { if (far) { clearTimeout(press.long); press = null; } return; }
    if (!press.box && far) {
      press.box = element("div", "rubber");
      $("grid").append(press.box);
      $("grid").style.position = "relative";
      $("main").setPointerCapture(event.pointerId);
    }
    if (!press.box) return;
    const frame = $("grid").getBoundingClientRect(), main = $("main");
    const from = { x: press.x - frame.left, y: press.y - frame.top - (main.scrollTop - press.scroll) };
    const x = event.clientX - frame.left, y = event.clientY - frame.top;
    const box = { left: Math.min(x, from.x), right: Math.max(x, from.x), top: Math.min(y, from.y), bottom: Math.max(y, from.y) };
    Object.assign(press.box.style, { left: `${box.left}px`, top: `${box.top}px`, width: `${box.right - box.left}px`, height: `${box.bottom - box.top}px` });
    selected.clear();
    for (const image of [...press.base, ...grid.inside(box)]) selected.add(image);
    const view = main.getBoundingClientRect();
    if (event.clientY > view.bottom - 40) main.scrollTop += 14;
    if (event.clientY < view.top + 40) main.scrollTop -= 14;
    repaintAll(page);
  }
  function onUp(event) {
    if (!press) return;
    const { tile, box, extend } = press;
    clearTimeout(press.long);
    press = null;
    if (box) { box.remove(); return; }
    if (!tile || !tile.isConnected) {
      if (!tile && event.target.closest("main") && !event.target.closest("button")) { selected.clear(); repaintAll(page); }
      return;
    }
    const section = grid.section(tile.section);
    if (extend && page.anchor?.section === tile.section) {
      const [a, b] = [Math.min(page.anchor.index, tile.index), Math.max(page.anchor.index, tile.index)];
      for (let i = a; i <= b; i++) selected.add(page.state.image[section.rows[i]]);
    } else {
      toggle(selected, tile.image);
      page.anchor = { section: tile.section, index: tile.index };
    }
    page.cursor = { section: tile.section, index: tile.index };
    repaintAll(page);
    tile.focus({ preventScroll: true });
  }
  $("main").addEventListener("pointerdown", onDown);
  $("main").addEventListener("pointermove", onMove);
  $("main").addEventListener("pointerup", onUp);
  $("main").addEventListener("pointercancel", () => { clearTimeout(press?.long); press?.box?.remove(); press = null; });
  $("main").addEventListener("dblclick", (event) => {
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
