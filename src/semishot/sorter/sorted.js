"use strict";

const pile = JSON.parse(document.getElementById("pile").textContent);
const dialog = document.getElementById("details"), picture = dialog.querySelector("img");
const search = document.getElementById("search"), folder = document.getElementById("folder");
const AT_ONCE = 120, AT_FIRST = 4000, UNSURE = 0.5, MAYBE = 0.2;

/* Never 100 % or 0 %: nothing is certain. */
function percent(share) {
  if (share > 0.995) return ">\u202f99\u202f%";
  return share < 0.005 ? "<\u202f1\u202f%" : `${Math.round(100 * share)}\u202f%`;
}

/* large: true if a browser shows the file itself, else the address of a large picture. */
function imageOf([path, link, small, large, nearest, runnerUp, probability, stranger, isOut]) {
  const [best, second] = [nearest, runnerUp].map((number) => pile.classes[number] ?? ""), belongs = probability * (1 - stranger);
  return {
    path, link, small, best, second, probability, stranger, belongs, isOut,
    label: isOut ? "stranger" : best, sure: isOut ? stranger : belongs, maybe: !isOut && stranger >= MAYBE ? "or a stranger?" : "",
    file: large === true ? link : large,
    folder: path.slice(0, Math.max(0, path.lastIndexOf("/"))), name: path.slice(path.lastIndexOf("/") + 1),
  };
}

function element(name, content = "", className = "") {
  const made = Object.assign(document.createElement(name), { className });
  made.append(...[content].flat());
  return made;
}

function tileOf(image, wordy) {
  const { name, label, best, second, maybe, sure, isOut } = image, share = percent(sure), source = image.small || image.file;
  const tile = element("button", "", sure < UNSURE ? "tile unsure" : "tile");
  Object.assign(tile, { type: "button", image }).dataset.path = image.path;
  if (source) tile.append(Object.assign(new Image(), { loading: "lazy", decoding: "async", src: source, alt: name }));
  else tile.append(element("span", name, "blank"));
  if (wordy) {
    const other = isOut ? best : second;
    tile.append(element("span", name, "file"), element("b", label), element("span", share), element("span", maybe || (other && `or ${other}?`)));
  } else if (!share.includes(">")) {
    tile.append(element("span", isOut ? `stranger ${share}` : [share, maybe].filter(Boolean).join(", ")));
  }
  tile.addEventListener("click", () => show(tile));
  return element("li", tile);
}

/* A list of tiles: a few at once, more when its end comes into view. */
const lists = [...document.querySelectorAll(".tiles")].map((list, number) => {
  const end = element("p");
  list.after(end);
  return { list, end, wordy: list.classList.contains("wordy"), images: pile.groups[number].map(imageOf), fitting: [] };
});
const watcher = new IntersectionObserver((seen) => {
  for (const { target, isIntersecting } of seen) if (isIntersecting) grow(lists.find((each) => each.end === target));
}, { rootMargin: "0px 0px 800px" });  /* what grows above would move what is looked at */

function grow(each, count = AT_ONCE) {
  const first = each.list.children.length;
  each.list.append(...each.fitting.slice(first, first + count).map((image) => tileOf(image, each.wordy)));
  watcher.unobserve(each.end);  /* observed anew, it is looked at anew */
  if (each.list.children.length < each.fitting.length) watcher.observe(each.end);
}

/* The images with a part of a name, of a folder. */
function narrow() {
  const wanted = search.value.trim().toLowerCase(), narrowed = wanted || folder.value;
  let count = 0;
  for (const each of lists) {
    each.fitting = each.images.filter((image) => image.path.toLowerCase().includes(wanted) && (!folder.value || image.folder === folder.value));
    each.list.replaceChildren();
    each.list.closest("section").hidden = narrowed && !each.fitting.length;
    count += each.wordy ? 0 : each.fitting.length;
    grow(each, Math.max(1, Math.min(AT_ONCE, Math.floor(AT_FIRST / lists.length))));
  }
  document.getElementById("found").textContent = narrowed ? `${count.toLocaleString("en")} shown` : "";
}

function show(tile) {
  const { path, link, small, file, label, best, second, probability, stranger, belongs, isOut } = tile.image;
  const anchor = Object.assign(element("a", path), { target: "_blank", rel: "noreferrer" });
  if (link) anchor.href = link;
  const facts = {
    File: anchor, Label: label, "Nearest class": isOut ? best : "", "Belongs to it": percent(belongs), "Is a stranger": percent(stranger),
    "Class, if no stranger": percent(probability), "Runner-up": second,
  };
  const known = Object.entries(facts).filter(([, fact]) => fact !== "");
  dialog.querySelector("dl").replaceChildren(...known.map(([name, fact]) => element("div", [element("dt", name), element("dd", fact)])));
  /* The file itself or a large picture, else the thumbnail: the page may have come without them. */
  const sources = [file, small].filter(Boolean);
  picture.onerror = () => {
    const source = sources.shift();
    if (source) picture.src = source;
    else picture.removeAttribute("src");
  };
  picture.onerror();
  dialog.shown = tile;
  if (!dialog.open) dialog.showModal();
}

/* The neighbor in the same section; at its ends nothing. */
function step(by) {
  const each = lists.find(({ list }) => list.contains(dialog.shown)), tiles = each.list.getElementsByClassName("tile");
  const at = [...tiles].indexOf(dialog.shown) + by;
  if (at === tiles.length) grow(each);
  if (tiles[at]) show(tiles[at]);
}

for (const button of dialog.querySelectorAll("[data-step]")) button.addEventListener("click", () => step(Number(button.dataset.step)));
dialog.querySelector(".close").addEventListener("click", () => dialog.close());
dialog.addEventListener("keydown", ({ key }) => {
  if (key === "ArrowLeft" || key === "ArrowRight") step(key === "ArrowLeft" ? -1 : 1);
});
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
});
/* The page has gone on with the dialog: the focus goes where it ended. */
dialog.addEventListener("close", () => dialog.shown.focus());
for (const field of [search, folder]) field.addEventListener("input", narrow);
search.form.addEventListener("submit", (event) => event.preventDefault());
const folders = new Set(lists.flatMap((each) => each.images.map((image) => image.folder)));
folder.append(...[...folders].sort().map((name) => new Option(name || "(none)", name)));
narrow();

/* On a phone the list of groups would fill the first screen. */
if (window.matchMedia("(max-width: 60rem)").matches) document.querySelector("nav details").open = false;
