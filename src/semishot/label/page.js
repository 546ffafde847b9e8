// The page: views at the side, tiles in the middle, answers by key, click and box; here its parts come together.

import { acceptSection, answer, press, step } from "/answers.js";
import { editClassDialog, helpDialog, listenToDialogs, listenToFilter, newClassDialog, NO_FILTER } from "/dialogs.js";
import { $, on, toast } from "/dom.js";
import { finishDialog } from "/finish.js";
import { Grid } from "/grid.js";
import { auditView, largeView } from "/large_view.js";
import { mapView } from "/map.js";
import { back, focusTiles, go, listenToKeys, listenToPointer, ofKind, skipRow, watchHeld } from "/navigation.js";
import { fileNames, outboxOf, serverOf } from "/server.js";
import { cutoffAt, draw, drawHead, paint } from "/views.js";

history.replaceState(history.state, "", "/"); // the token is used

/** What the parts share. */
const page = {
  state: null, // what the server says of every image
  arranged: null, // its rows by class
  view: "all", // what is shown
  least: false, // whether it shows the least sure first
  filter: NO_FILTER,
  matches: null, // images whose files fit it; null: all
  cursor: { section: null, index: 0 },
  fresh: true, // whether no view has been chosen yet: kinds are shown when they are found
  crossed: new Set(), // images that do not belong to the row of kinds they are in
  lassoed: [], // images that were selected on the map
  judged: new Set(), // images of the audit whose answer is on its way
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
page.dialogs = { large, newClass: newClassDialog(page, large), edit: editClassDialog(page), help: helpDialog(), finish: finishDialog() };

$("size").value = tileSize();
showCaptions();
on("size", "input", ({ target }) => { localStorage.setItem("size", target.value); page.grid.relayout(Number(target.value)); });
on("order", "click", () => { page.least = !page.least; draw(page); });
on("undo", "click", () => step(page, "undo"));
on("redo", "click", () => step(page, "redo"));
on("help", "click", page.dialogs.help);
on("finish", "click", page.dialogs.finish);
on("rest", "click", () => answer(page, 0, page.grid.sections.flatMap(({ key }) => ofKind(page, key))));
on("captions", "click", () => { localStorage.setItem("captions", captions() ? "" : "on"); showCaptions(); });
on("cutoff-slider", "input", ({ target }) => { page.state.cutoff = cutoffAt(target.value); draw(page, false); });
on("cutoff-slider", "change", () => { const { lost, members } = page.state.putOut(); setReject(Math.min(0.999, Math.max(1e-9, (lost / members) * (1 + 1e-9)))); });
on("cutoff-reset", "click", () => setReject(null));
listenToFilter(page);
auditView(page);
mapView(page);
listenToKeys(page);
listenToPointer(page);
addEventListener("popstate", (event) => back(page, event));
document.addEventListener("click", (event) => {
  const pressed = event.target.closest("button"), { view, edit, accept, name, none, skip } = pressed?.dataset || {};
  if (view === "new") page.dialogs.newClass([...page.selected]);
  else if (view) { go(page, view); focusTiles(page); }
  else if (name) page.dialogs.newClass(page.selected.size ? [...page.selected] : ofKind(page, name));
  else if (none) answer(page, 0, page.selected.size ? [...page.selected] : ofKind(page, none));
  else if (skip) skipRow(page, skip);
  else if (accept) acceptSection(page, accept);
  else if (edit) page.dialogs.edit(Number(edit));
  else if (pressed?.closest("#answers")) { press(pressed, page); focusTiles(page); }
});
page.phone.addEventListener("change", settle);
page.server.fetchState();
page.server.follow();
settle();
page.outbox.send();

function settle() {
  if (page.phone.matches) {
    $("grid").before($("cutoff"));
    $("main").prepend($("likely"));
  } else {
    document.querySelector(".side").append($("cutoff"));
    document.querySelector(".tools").before($("likely"));
  }
  page.grid.relayout(tileSize());
  draw(page, false);
}

function setReject(value) {
  page.outbox.add({ kind: "reject", value }).catch((error) => toast(error.message));
}

function captions() {
  return localStorage.getItem("captions") === "on";
}

function showCaptions() {
  $("captions").setAttribute("aria-pressed", captions());
  page.grid.relayout(tileSize(), captions());
}

function tileSize() {
  if (page.phone.matches) return 108;
  return Number(localStorage.getItem("size")) || (innerWidth > 3200 ? 330 : innerWidth > 2400 ? 240 : 172);
}
