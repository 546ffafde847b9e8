"use strict";

/* What was not measured stays at the end, whichever way the rest is sorted. */
function compare(a, b, sign) {
  if (a === "" || b === "") return (a === "") - (b === "");
  const numbers = [Number(a), Number(b)];
  if (numbers.some(Number.isNaN)) return sign * a.localeCompare(b);
  return sign * (numbers[0] - numbers[1]);
}

function sortBy(heading) {
  const body = heading.closest("table").tBodies[0];
  const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
  const rank = (row) => row.cells[heading.cellIndex].dataset.rank;
  body.append(...[...body.rows].sort((a, b) => compare(rank(a), rank(b), sign)));
}

for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => sortBy(button.parentElement));
}

/* On a phone the list of sections would fill the first screen. */
if (window.matchMedia("(max-width: 60rem)").matches) {
  document.querySelector("nav details").open = false;
}

/* Paper cannot be clicked. */
window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
