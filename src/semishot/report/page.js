"use strict";

/* On a phone the list of sections would fill the first screen. */
if (window.matchMedia("(max-width: 60rem)").matches) {
  document.querySelector("nav details").open = false;
}

/* Paper cannot be clicked. */
window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
