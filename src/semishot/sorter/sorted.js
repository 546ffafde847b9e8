"use strict";

const dialog = document.getElementById("details");
let shown = null;

const picture = dialog.querySelector("img");
const IN_A_BROWSER = /\.(jpe?g|jpe|jfif|png|gif|bmp|webp)$/i;

function show(tile) {
  shown = tile;
  for (const field of dialog.querySelectorAll("[data-of]")) {
    field.textContent = tile.dataset[field.dataset.of];
    field.closest("div").hidden = field.textContent === "";
  }
  const link = dialog.querySelector("a");
  if (tile.dataset.link) link.href = tile.dataset.link;
  else link.removeAttribute("href");
  /* The large picture, else the image itself, else the thumbnail: the page may have come without them. */
  const original = IN_A_BROWSER.test(tile.dataset.link) ? tile.dataset.link : "";
  const sources = [tile.dataset.large, original, tile.querySelector("img")?.src].filter(Boolean);
  const next = () => {
    const source = sources.shift();
    if (source) picture.src = source;
    else picture.removeAttribute("src");
  };
  picture.onerror = next;
  next();
  if (!dialog.open) dialog.showModal();
}

/* The neighbor in the same section; at its ends nothing. */
function step(by) {
  const tiles = [...shown.closest("section").querySelectorAll("li:not([hidden]) > .tile")];
  const neighbor = tiles[tiles.indexOf(shown) + by];
  if (neighbor) show(neighbor);
}

for (const tile of document.querySelectorAll(".tile")) {
  tile.addEventListener("click", () => show(tile));
}
for (const button of dialog.querySelectorAll("[data-step]")) {
  button.addEventListener("click", () => step(Number(button.dataset.step)));
}
dialog.querySelector(".close").addEventListener("click", () => dialog.close());
dialog.addEventListener("keydown", (event) => {
  if (event.key === "ArrowLeft") step(-1);
  if (event.key === "ArrowRight") step(1);
});
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
});
/* The page has gone on with the dialog: the focus goes where it ended. */
dialog.addEventListener("close", () => shown.focus());

/* Which images are shown: those with a part of a name, of a folder. */
const search = document.getElementById("search"), folder = document.getElementById("folder");
const folderOf = ({ dataset }) => dataset.path.slice(0, Math.max(0, dataset.path.lastIndexOf("/")));

function narrow() {
  const wanted = search.value.trim().toLowerCase();
  let count = 0;
  for (const tile of document.querySelectorAll(".tile")) {
    const fits = tile.dataset.path.toLowerCase().includes(wanted) && (!folder.value || folderOf(tile) === folder.value);
    tile.closest("li").hidden = !fits;
    count += fits;
  }
  for (const section of document.querySelectorAll("section:has(.tile)")) section.hidden = !section.querySelector("li:not([hidden]) > .tile");
  document.getElementById("found").textContent = wanted || folder.value ? `${count.toLocaleString("en")} shown` : "";
}

const folders = new Set([...document.querySelectorAll(".tile")].map(folderOf));
folder.append(...[...folders].sort().map((name) => new Option(name || "(none)", name)));
search.addEventListener("input", narrow);
folder.addEventListener("input", narrow);
search.form.addEventListener("submit", (event) => event.preventDefault());

/* On a phone the list of groups would fill the first screen. */
if (window.matchMedia("(max-width: 60rem)").matches) {
  document.querySelector("nav details").open = false;
}

/* Paper cannot be clicked. */
window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
