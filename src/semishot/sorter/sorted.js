"use strict";

const pile = JSON.parse(document.getElementById("pile").textContent);
const dialog = document.getElementById("details"), picture = dialog.querySelector("img");
const search = document.getElementById("search"), folder = document.getElementById("folder");
const IN_A_BROWSER = /\.(jpe?g|jpe|jfif|png|gif|bmp|webp)$/i;
const AT_ONCE = 120, AT_FIRST = 4000, UNSURE = 0.5, MAYBE = 0.2;

/* Never 100 % or 0 %: nothing is certain. */
function percent(share) {
  if (share > 0.995) return ">\u202f99\u202f%";
  return share < 0.005 ? "<\u202f1\u202f%" : `${Math.round(100 * share)}\u202f%`;
}

function imageOf([path, link, small, large, nearest, runnerUp, probability, stranger, isOut]) {
  const [best, second] = [nearest, runnerUp].map((number) => pile.classes[number] ?? "");
  const chance = probability * (1 - stranger);
  return {
    path, link, small, large, best, second, isOut, unsure: (isOut ? stranger : chance) < UNSURE, maybe: !isOut && stranger >= MAYBE,
    folder: path.slice(0, Math.max(0, path.lastIndexOf("/"))), name: path.slice(path.lastIndexOf("/") + 1),
    facts: {
      path, label: isOut ? "stranger" : best, nearest: isOut ? best : "", sure: percent(chance),
      stranger: percent(stranger), conditional: percent(probability), runnerUp: second,
    },
  };
}

function element(name, text = "", className = "") {
  const made = document.createElement(name);
  made.className = className;
  made.append(text);
  return made;
}

function tileOf(image, wordy) {
  const tile = element("button", "", image.unsure ? "tile unsure" : "tile"), item = element("li");
  const source = image.small || (IN_A_BROWSER.test(image.link) ? image.link : "");
  const caption = image.isOut ? `stranger ${image.facts.stranger}` : image.facts.sure;
  const maybe = image.maybe ? "or a stranger?" : "";
  tile.type = "button";
  tile.dataset.path = image.path;
  tile.image = image;
  if (source) tile.append(Object.assign(new Image(), { loading: "lazy", decoding: "async", src: source, alt: image.name }));
  else tile.append(element("span", image.name, "blank"));
  if (wordy) {
    const other = maybe || (image.isOut ? `or ${image.best}?` : image.second && `or ${image.second}?`);
    tile.append(element("span", image.name, "file"), element("b", image.isOut ? "stranger" : image.best));
    tile.append(element("span", image.isOut ? image.facts.stranger : caption), element("span", other));
  } else if (!caption.includes(">")) tile.append(element("span", [caption, maybe].filter(Boolean).join(", ")));
  tile.addEventListener("click", () => show(tile));
  item.append(tile);
  return item;
}

/* A list of tiles: a few at once, more when its end comes into view. */
const lists = [...document.querySelectorAll(".tiles")].map((list) => {
  const wordy = list.classList.contains("wordy"), end = element("p");
  list.after(end);
  return { list, end, wordy, images: [], fitting: [] };
});
lists.forEach((each, n) => { each.images = (each.wordy ? pile.next : pile.groups.at(n - lists.length)).map(imageOf); });
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
  const { facts, link, large, small } = tile.image;
  for (const field of dialog.querySelectorAll("[data-of]")) {
    field.textContent = facts[field.dataset.of];
    field.closest("div").hidden = field.textContent === "";
  }
  const anchor = dialog.querySelector("a");
  if (link) anchor.href = link;
  else anchor.removeAttribute("href");
  /* The file itself or a large picture, else the thumbnail: the page may have come without them. */
  const sources = [IN_A_BROWSER.test(link) ? link : large, small].filter(Boolean);
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
  const tiles = [...dialog.shown.closest("section").querySelectorAll(".tile")], at = tiles.indexOf(dialog.shown) + by;
  if (at === tiles.length) grow(lists.find((each) => each.list.contains(dialog.shown)));
  const neighbor = dialog.shown.closest("section").querySelectorAll(".tile")[at];
  if (neighbor) show(neighbor);
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
dialog.addEventListener("close", () => dialog.shown.focus());
search.addEventListener("input", narrow);
folder.addEventListener("input", narrow);
search.form.addEventListener("submit", (event) => event.preventDefault());
const folders = new Set(lists.flatMap((each) => each.images.map((image) => image.folder)));
folder.append(...[...folders].sort().map((name) => new Option(name || "(none)", name)));
narrow();

/* On a phone the list of groups would fill the first screen. */
if (window.matchMedia("(max-width: 60rem)").matches) document.querySelector("nav details").open = false;
/* Paper cannot be clicked. */
window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
