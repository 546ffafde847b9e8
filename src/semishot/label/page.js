// The page: views at the side, tiles in the middle, answers by key, click and box; here its parts come together.

import { press, step } from "/answers.js";
import { editClassDialog, findDialog, helpDialog, listenToDialogs, newClassDialog } from "/dialogs.js";
import { $, on, toast } from "/dom.js";
import { finishDialog } from "/finish.js";
import { Grid } from "/grid.js";
import { largeView } from "/large_view.js";
import { back, focusTiles, go, listenToKeys, listenToPointer, watchHeld } from "/navigation.js";
import { fileNames, outboxOf, serverOf } from "/server.js";
import { draw, drawHead, paint } from "/tiles.js";

history.replaceState(history.state, "", "/"); // the token is used

/** What the parts share. */
const page = {
  state: null, // what the server says of every image
  arranged: null, // its rows by class
  view: "all", // what is shown
  least: false, // whether it shows the least sure first
  search: null, // what was found last: { text, images }
  cursor: { section: null, index: 0 },
  anchor: null, // where a range begins
  selected: new Set(), // images
  names: new Map(), // of the file of an image
  phone: matchMedia("(max-width: 760px)"),
};
page.grid = new Grid($("main"), $("grid"), {
  paint: (tile, row, section) => paint(page, tile, row, section),
  shown: fileNames(page),
  head: (section) => drawHead(page, section),
});
page.server = serverOf(page, watchHeld());
page.outbox = outboxOf(page);
listenToDialogs(page);
const large = largeView(page);
page.dialogs = { large, newClass: newClassDialog(page, large), edit: editClassDialog(page), find: findDialog(page), help: helpDialog(), finish: finishDialog() };

$("size").value = tileSize();
on("size", "input", ({ target }) => { localStorage.setItem("size", target.value); page.grid.relayout(Number(target.value)); });
on("order", "click", () => { page.least = !page.least; draw(page); });
on("undo", "click", () => step(page, "undo"));
on("redo", "click", () => step(page, "redo"));
on("find", "click", page.dialogs.find);
on("help", "click", page.dialogs.help);
on("finish", "click", page.dialogs.finish);
on("cutoff-slider", "input", ({ target }) => { page.state.rejectNow = page.state.rejects[target.value]; draw(page, false); });
on("cutoff-slider", "change", ({ target }) => { page.outbox.add({ kind: "reject", value: page.state.rejects[target.value] }).catch((error) => toast(error.message)); });
listenToKeys(page);
listenToPointer(page);
addEventListener("popstate", (event) => back(page, event));
document.addEventListener("click", (event) => {
  const pressed = event.target.closest("button"), { view, edit } = pressed?.dataset || {};
  if (view === "new") page.dialogs.newClass([...page.selected]);
  else if (view) { go(page, view); focusTiles(page); }
  else if (edit) page.dialogs.edit(Number(edit));
  else if (pressed?.closest("#answers")) { press(pressed, page); focusTiles(page); }
});
page.phone.addEventListener("change", settleCutoff);
page.server.fetchState();
page.server.follow();
settleCutoff();
page.outbox.send();

function settleCutoff() {
  if (page.phone.matches) $("grid").before($("cutoff"));
  else document.querySelector(".side").append($("cutoff"));
  page.grid.relayout(tileSize());
  draw(page, false);
}

function tileSize() {
  if (page.phone.matches) return 108;
  return Number(localStorage.getItem("size")) || (innerWidth > 3200 ? 330 : innerWidth > 2400 ? 240 : 172);
}
