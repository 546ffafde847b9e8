// What all dialogs do: Back and a click outside close them, and then the tiles have the keys again.

import { focusTiles } from "/selection.js";

export function listenToDialogs(page) {
  for (const dialog of document.querySelectorAll("dialog")) {
    new MutationObserver(() => {
      if (dialog.open && !history.state) history.pushState({ place: page.place }, ""); // else Back would leave the page
    }).observe(dialog, { attributeFilter: ["open"] });
    dialog.addEventListener("click", (event) => {
      if (event.target.closest("[data-close]")) dialog.close();
      if (event.target === dialog && !dialog.classList.contains("large")) {
        const box = dialog.getBoundingClientRect();
        const inside = event.clientX >= box.left && event.clientX <= box.right && event.clientY >= box.top && event.clientY <= box.bottom;
        if (!inside) dialog.close();
      }
    });
    dialog.addEventListener("close", () => { if (!document.querySelector("dialog[open]")) focusTiles(page); });
  }
}
