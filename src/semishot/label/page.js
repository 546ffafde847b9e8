// The page: places at the side, tiles in the middle, answers by key, click and box; here its parts come together.

import { answer, does, step } from "/answers.js";
import { editClassDialog } from "/dialogs/edit_class.js";
import { findDialog } from "/dialogs/find.js";
import { finishDialog } from "/dialogs/finish.js";
import { helpDialog } from "/dialogs/help.js";
import { largeView } from "/dialogs/large_view.js";
import { newClassDialog } from "/dialogs/new_class.js";
import { listenToDialogs } from "/dialogs/open_close.js";
import { draw } from "/draw.js";
import { fileNames } from "/file_names.js";
import { Grid } from "/grid.js";
import { listenToKeys } from "/keys.js";
import { toast } from "/messages.js";
import { back, go } from "/moving.js";
import { outboxOf } from "/outbox.js";
import { listenToPointer, watchHeld } from "/pointer.js";
import { focusTiles } from "/selection.js";
import { serverOf } from "/server.js";
import { drawHead, paint } from "/tiles.js";
import { $ } from "/words.js";

history.replaceState(history.state, "", "/"); // the token is used

/** What the parts share. */
const page = {
  state: null, // what the server says of every image
  arranged: null, // its rows by place
  place: "all", // the place that is shown
  least: false, // whether it shows the least sure first
  found: null, // what was found last: { text, images }
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
page.outbox = outboxOf({ state: () => page.state, lost: page.server.lost, toast });
listenToDialogs(page);
const large = largeView(page);
page.dialogs = { large, newClass: newClassDialog(page, large), edit: editClassDialog(page), find: findDialog(page), help: helpDialog(), finish: finishDialog() };

$("size").value = tileSize();
$("size").addEventListener("input", (event) => { localStorage.setItem("size", event.target.value); page.grid.setSize(Number(event.target.value)); });
$("order").addEventListener("click", () => { page.least = !page.least; draw(page); });
$("undo").addEventListener("click", () => step(page, "undo"));
$("redo").addEventListener("click", () => step(page, "redo"));
$("find").addEventListener("click", page.dialogs.find);
$("help").addEventListener("click", page.dialogs.help);
$("finish").addEventListener("click", page.dialogs.finish);
$("cutoff-slider").addEventListener("input", (event) => { page.state.rejectNow = page.state.rejects[event.target.value]; draw(page, false); });
$("cutoff-slider").addEventListener("change", (event) => { page.outbox.add({ kind: "reject", value: page.state.rejects[event.target.value] }).catch((error) => toast(error.message)); });
listenToKeys(page);
addEventListener("popstate", (event) => back(page, event));
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.place === "new") page.dialogs.newClass([...page.selected]);
  else if (button.dataset.place) { go(page, button.dataset.place); focusTiles(page); }
  else if (button.dataset.edit) page.dialogs.edit(Number(button.dataset.edit));
  else if (button.closest("#answers")) {
    if (button.dataset.answer) answer(page, Number(button.dataset.answer));
    else does(page, button.dataset.does);
    focusTiles(page);
  }
});
listenToPointer(page);
page.phone.addEventListener("change", settleCutoff);
page.server.fetchState();
page.server.follow();
settleCutoff();
page.outbox.send();

function settleCutoff() {
  if (page.phone.matches) $("grid").before($("cutoff"));
  else document.querySelector(".side").append($("cutoff"));
  page.grid.setSize(tileSize());
  draw(page, false);
}

function tileSize() {
  const kept = Number(localStorage.getItem("size"));
  if (page.phone.matches) return 108;
  return kept || (innerWidth > 3200 ? 330 : innerWidth > 2400 ? 240 : 172);
}
