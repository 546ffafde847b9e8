// The places at the side: which there are, the sections of tiles that each shows, and its heading.
// A view has { state, arranged, place, found }: what the server says, its rows by place, the place shown, and what was found.

import { NONE, UNKNOWN } from "/state.js";
import { $, badge, counted, element, number } from "/words.js";

const touch = matchMedia("(pointer: coarse)").matches;
const LINES = 2;

/** The index of the class that a place shows; negative if it shows none, or if the class is gone. */
export function classAt(state, place) {
  return place.startsWith("class:") ? state.index(Number(place.slice(6))) : -1;
}

export function isGone(state, place) {
  return place.startsWith("class:") && classAt(state, place) < 0;
}

export function placesOf({ state, arranged, found }) {
  const begun = state.classes.length > 0;
  const list = begun ? [{ id: "all", name: "Overview" }] : [{ id: "all", name: "Begin" }];
  if (begun) list.push({ id: "ask", name: "Worth asking", count: arranged.asked.length, ask: true });
  if (begun) list.push({ heading: "Classes" });
  state.classes.forEach(([id, name], index) => {
    const held = arranged.places[index];
    list.push({ id: `class:${id}`, name, index, said: held.saidFiles, count: held.files });
  });
  list.push({ id: "new", name: "New class", isNew: true });
  if (begun) list.push({ id: "none", name: "None of these", index: NONE, said: arranged.none.saidFiles, count: arranged.none.files });
  const more = [];
  if (arranged.unknown.files) more.push({ id: "unknown", name: "Not sorted yet", count: arranged.unknown.files });
  if (arranged.doubtful.length) more.push({ id: "doubtful", name: "Labels to check", count: arranged.doubtful.length });
  if (arranged.odd.length) more.push({ id: "odd", name: "Missing or changed", count: arranged.odd.length });
  if (found) more.push({ id: "find", name: `Found: ${found.text}`, count: found.images.length });
  if (more.length) list.push({ heading: "More" }, ...more);
  return list;
}

export function drawPlaces(view) {
  const box = $("places");
  const focused = document.activeElement?.dataset?.place;
  box.replaceChildren(...placesOf(view).map((one) => {
    if (one.heading) return element("h2", "", one.heading);
    const button = element("button", one.isNew ? "place new" : "place");
    button.type = "button";
    button.dataset.place = one.id;
    if (one.id === view.place) button.setAttribute("aria-current", "page");
    if (one.index !== undefined) button.append(badge(one.index));
    else button.append(Object.assign(element("span", one.ask ? "key ask" : "key plain", one.ask ? "?" : one.isNew ? "n" : one.id === "all" ? "≡" : "·"), { ariaHidden: "true" }));
    button.append(element("span", "name", one.name));
    if (one.count !== undefined) {
      const count = element("span", "count");
      if (one.said) count.append(element("b", "", `✓${number(one.said)}`), " · ");
      count.append(number(one.count));
      button.append(count);
      const said = one.said === undefined ? "" : `, ${number(one.said)} confirmed`;
      button.setAttribute("aria-label", `${one.name}: ${counted(one.count, "image")}${said}`);
    }
    return button;
  }));
  if (focused) box.querySelector(`[data-place="${CSS.escape(focused)}"]`)?.focus();
}

/** What a place shows, in the order of the page: sections of tiles. */
export function sectionsOf({ state, arranged, place, found }) {
  const mixed = (held) => [...held.guessed, ...held.said];
  if (place === "all" && !state.classes.length) {
    const asked = arranged.asked, rest = arranged.unknown.guessed.filter((row) => !state.isAsked.has(state.image[row]));
    return [{ key: "ask", rows: asked, title: "" }, { key: "unknown", rows: rest, title: rest.length ? "All others" : "" }];
  }
  if (place === "all") {
    return [
      { key: "ask", rows: arranged.asked, limit: state.classes.length > 1 ? 1 : 0, title: "Worth asking", to: "ask" },
      ...state.classes.map(([id], index) => ({ key: `class:${id}`, rows: mixed(arranged.places[index]), limit: LINES, index, to: `class:${id}`, held: arranged.places[index] })),
      { key: "none", rows: mixed(arranged.none), limit: LINES, index: NONE, to: "none", held: arranged.none },
      { key: "unknown", rows: arranged.unknown.guessed, limit: LINES, title: "Not sorted yet", to: "unknown" },
    ].filter((one) => one.rows.length || one.index !== undefined);
  }
  if (place === "ask") return [{ key: "ask", rows: arranged.asked, title: "" }];
  if (place === "unknown") return [{ key: "unknown", rows: arranged.unknown.guessed, title: "" }];
  if (place === "doubtful") return [{ key: "doubtful", rows: arranged.doubtful, title: "" }];
  if (place === "odd") return [{ key: "odd", rows: arranged.odd, title: "" }];
  if (place === "find") return [{ key: "find", rows: found.images.map((image) => state.rowOf.get(image)).filter((row) => row !== undefined), title: "" }];
  const held = place === "none" ? arranged.none : arranged.places[classAt(state, place)];
  if (!held) return [];
  return [
    { key: `${place} guessed`, rows: held.guessed, title: "Guessed" },
    { key: `${place} said`, rows: held.said, title: "Confirmed" },
  ].filter((one) => one.rows.length);
}

/** Title and lead. */
export function headingOf({ state, arranged, place, found }) {
  const total = state.rows;
  if (place === "all" && !state.classes.length) {
    if (!total) return ["Getting ready", "The first images appear as soon as a hundred have been read."];
    return ["Click images of one kind, then name it", `Here is a varied selection of your pile. Select a few images that belong together, ${touch ? "tap “Name them”" : "press N"} and give them a name. After that, everything else sorts itself.`];
  }
  if (place === "all") {
    const said = state.said.reduce((sum, value) => sum + (value !== UNKNOWN), 0);
    if (state.classes.length === 1) return ["Overview", touch ? "Now name a second class: select images of another kind and tap New. Images of no class you care about: None." : "Now name a second class: select images of another kind and press N. Images of no class you care about: press 0."];
    return ["Overview", state.judged ? `${number(said)} of ${counted(total, "image")} confirmed; the others are guessed from them.` : "Label an image, and the others will be guessed."];
  }
  if (place === "ask") return ["Worth asking", arranged.asked.length ? touch ? "Your answers to these would teach most. Select some, then tap their class, None, or Accept if the guess is right." : "Your answers to these would teach most. Select and press a class's key, 0 for none of these, or Enter if the guess is right." : "Nothing more to ask: the guesses are sure."];
  if (place === "unknown") return ["Not sorted yet", "Nothing is guessed for these so far."];
  if (place === "doubtful") return ["Labels to check", touch ? "The other labels contradict these. Accept takes the suggestion; tapping its own class keeps it as it is." : "The other labels contradict these. Enter takes the suggestion; the key of its own class keeps it as it is."];
  if (place === "odd") return ["Missing or changed", "The files of these images are gone, or hold something else than when they were read."];
  if (place === "find") return [`Files with “${found.text}”`, found.images.length ? counted(found.images.length, "image") : "No file has this in its name."];
  if (place === "none") return ["None of these", "Images that belong to none of your classes. A correction here helps most to tell them apart."];
  const index = classAt(state, place);
  if (index < 0) return ["", ""];
  const held = arranged.places[index];
  const sums = held.guessed.length ? touch ? "Accept what is right, and tap the class of what is not." : "Press Enter where the guess is right, another key where it is not." : "";
  return [state.classes[index][1], `${counted(held.files - held.saidFiles, "image")} guessed, ${number(held.saidFiles)} confirmed. ${sums}`];
}
