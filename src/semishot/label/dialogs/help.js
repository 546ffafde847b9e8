// The dialog with keys and marks, and the address for another browser.

import { post } from "/outbox.js";
import { $ } from "/words.js";

/** What opens it. */
export function helpDialog() {
  function open() {
    $("invite-text").textContent = "";
    $("help-dialog").showModal();
  }
  $("invite").addEventListener("click", async () => {
    try {
      const { address } = await post("/invite", {});
      $("invite-text").textContent = address;
    } catch { $("invite-text").textContent = "The server does not answer."; }
  });

  return open;
}
