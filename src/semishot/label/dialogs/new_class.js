// The dialog that names a new class, of the images that are selected.

import { draw } from "/draw.js";
import { toast } from "/messages.js";
import { $, counted } from "/words.js";

/** What opens it, for these images; `large` is the large picture, which goes on after it. */
export function newClassDialog(page, large) {
  let toName = [];
  function open(images) {
    toName = images;
    $("name-lead").textContent = images.length ? `${counted(images.length, "image")} will be its first.` : "Select images of it afterwards, and press its key.";
    $("name-input").value = "";
    $("name-wrong").textContent = "";
    $("name-dialog").showModal();
    $("name-input").focus();
  }
  $("name-dialog").querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await page.outbox.add({ kind: "new", name: $("name-input").value, images: toName });
    } catch (error) {
      $("name-wrong").textContent = error.message;
      return;
    }
    $("name-dialog").close();
    page.selected.clear();
    draw(page);
    toast(`New class: ${$("name-input").value.trim()}`);
    if ($("large").open) large.step(1);
  });

  return open;
}
