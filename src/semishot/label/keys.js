// The keys of the page, and of the large picture.

import { accept, answer, clear, notThis, step } from "/answers.js";
import { repaintAll } from "/draw.js";
import { arrow, moveTo, neighbourPlace, selectAll } from "/moving.js";
import { chosen, currentImage, toggle } from "/selection.js";
import { $ } from "/words.js";

export function listenToKeys(page) {
  document.addEventListener("keydown", (event) => onKey(page, event));
}

function onKey(page, event) {
  const { state, selected, cursor, dialogs } = page;
  if (event.defaultPrevented || document.querySelector("dialog[open]:not(#large)")) return;
  const inLarge = $("large").open;
  const target = event.target;
  if (!state) return;
  const mod = event.ctrlKey || event.metaKey;
  const key = event.key;
  if (mod && key.toLowerCase() === "z") return run(event, () => step(page, event.shiftKey ? "redo" : "undo"));
  if (mod && key.toLowerCase() === "y") return run(event, () => step(page, "redo"));
  if (mod && key.toLowerCase() === "a" && !inLarge) return run(event, () => selectAll(page));
  if (mod || event.altKey) return;
  const images = inLarge ? [dialogs.large.image()] : chosen(page);
  if (/^[1-9]$/.test(key)) {
    const held = state.classes[Number(key) - 1];
    return run(event, () => (held ? answer(page, held[0], images) : dialogs.newClass(images)));
  }
  if (key === "0") return run(event, () => answer(page, 0, images));
  if (key === "-") return run(event, () => notThis(page, images));
  if (key === "Backspace" || key === "Delete") return run(event, () => clear(page, images));
  if (key.toLowerCase() === "n") return run(event, () => dialogs.newClass(inLarge || selected.size ? images : []));
  if (key === "/") return run(event, dialogs.find);
  if (key === "?") return run(event, dialogs.help);
  const onTile = target.classList.contains("tile") || target === document.body || target === $("main") || inLarge;
  if (key === "Enter" && onTile && !target.matches("button, a")) return run(event, () => accept(page, images));
  if (inLarge) {
    if (key === "ArrowLeft" || key === "ArrowRight") run(event, () => dialogs.large.step(key === "ArrowLeft" ? -1 : 1));
    if (key === " " && !target.matches("button")) run(event, () => $("large").close());
    return;
  }
  if (key === "Escape") return run(event, () => { selected.clear(); repaintAll(page); });
  if (key === "PageDown" || key === "PageUp") return run(event, () => neighbourPlace(page, key === "PageDown" ? 1 : -1));
  if (!onTile) return;
  const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
  if (by) return run(event, () => arrow(page, ...by, event.shiftKey));
  if (key === "Home") return run(event, () => moveTo(page, cursor.section, 0, event.shiftKey));
  if (key === "End") return run(event, () => moveTo(page, cursor.section, Infinity, event.shiftKey));
  if (key === " ") return run(event, () => dialogs.large.open(cursor.section, cursor.index));
  if (key.toLowerCase() === "x") return run(event, () => { const image = currentImage(page); if (image !== null) toggle(selected, image); repaintAll(page); });
}

function run(event, work) {
  event.preventDefault();
  work();
}
