// The sidebar: the views there are, what each shows, and the cutoff for strangers.

import { $, badge, button, counted, element, number } from "/dom.js";
import { NONE } from "/state.js";

const touch = matchMedia("(pointer: coarse)").matches;
const LINES = 2, BINS = 60;

/** The index of the class that a view shows; negative if it shows none, or if the class is gone. */
export function classShown(state, view) {
  return view.startsWith("class:") ? state.index(Number(view.slice(6))) : -1;
}

export function isGone(state, view) {
  return view.startsWith("class:") && classShown(state, view) < 0;
}

export function viewsOf({ state, arranged, search }) {
  const begun = state.classes.length > 0, { asked, none, unknown, doubtful, odd } = arranged;
  const list = [{ id: "all", name: begun ? "Overview" : "Begin", sign: "≡" }];
  if (begun) list.push({ id: "ask", name: "Worth asking", sign: "?", count: asked.length }, { heading: "Classes" });
  state.classes.forEach(([id, name], index) => list.push({ id: `class:${id}`, name, index, part: arranged.classes[index] }));
  list.push({ id: "new", name: "New class", sign: "n" });
  if (begun) list.push({ id: "none", name: "None of these", index: NONE, part: none });
  const more = [];
  if (unknown.files) more.push({ id: "unknown", name: "Not sorted yet", count: unknown.files });
  if (doubtful.length) more.push({ id: "doubtful", name: "Labels to check", count: doubtful.length });
  if (odd.length) more.push({ id: "odd", name: "Missing or changed", count: odd.length });
  if (search) more.push({ id: "find", name: `Found: ${search.text}`, count: search.images.length });
  return more.length ? [...list, { heading: "More" }, ...more] : list;
}

export function drawViews(page) {
  const focused = document.activeElement?.dataset?.view;
  $("views").replaceChildren(...viewsOf(page).map(({ id, name, index, part, heading, sign = "·", count = part?.files }) => {
    if (heading) return element("h2", "", heading);
    const entry = button(id === "new" ? "entry new" : "entry");
    entry.dataset.view = id;
    if (id === page.view) entry.setAttribute("aria-current", "page");
    entry.append(index !== undefined ? badge(index) : Object.assign(element("span", id === "ask" ? "key ask" : "key plain", sign), { ariaHidden: "true" }));
    entry.append(element("span", "name", name));
    if (count !== undefined) {
      const shown = element("span", "count");
      if (part?.confirmedFiles) shown.append(element("b", "", `✓${number(part.confirmedFiles)}`), " · ");
      shown.append(number(count));
      entry.append(shown);
      entry.ariaLabel = `${name}: ${counted(count, "image")}${part ? `, ${number(part.confirmedFiles)} confirmed` : ""}`;
    }
    return entry;
  }));
  if (focused) $("views").querySelector(`[data-view="${CSS.escape(focused)}"]`)?.focus();
}

/** What a view shows, in the order of the page: sections of tiles. */
export function sectionsOf({ state, arranged, view, search }) {
  const { asked, unknown, none } = arranged;
  const mixed = (part) => [...part.guessed, ...part.confirmed];
  if (view === "all" && !state.classes.length) {
    const rest = unknown.guessed.filter((row) => !state.isAsked.has(state.image[row]));
    return [{ key: "ask", rows: asked, title: "" }, { key: "unknown", rows: rest, title: rest.length ? "All others" : "" }];
  }
  if (view === "all") {
    return [
      { key: "ask", rows: asked, limit: state.classes.length > 1 ? 1 : 0, title: "Worth asking", to: "ask" },
      ...arranged.classes.map((part, index) => ({ id: `class:${state.classes[index][0]}`, index, part })),
      { id: "none", index: NONE, part: none },
      { key: "unknown", rows: unknown.guessed, limit: LINES, title: "Not sorted yet", to: "unknown" },
    ].map((section) => (section.part ? { ...section, key: section.id, to: section.id, limit: LINES, rows: mixed(section.part) } : section))
      .filter((section) => section.rows.length || section.part);
  }
  const rows = { ask: asked, unknown: unknown.guessed, doubtful: arranged.doubtful, odd: arranged.odd, find: search && state.rowsOf(search.images) }[view];
  if (rows) return [{ key: view, rows, title: "" }];
  const part = view === "none" ? none : arranged.classes[classShown(state, view)];
  if (!part) return [];
  return [
    { key: `${view} guessed`, rows: part.guessed, title: "Guessed" },
    { key: `${view} confirmed`, rows: part.confirmed, title: "Confirmed" },
  ].filter((section) => section.rows.length);
}

/** Title and lead. */
export function headingOf({ state, arranged, view, search }) {
  const byTouch = (tapped, typed) => (touch ? tapped : typed);
  if (view === "all" && !state.classes.length) {
    if (!state.rows) return ["Getting ready", "The first images appear as soon as a hundred have been read."];
    return ["Click images of one kind, then name it", `Here is a varied selection of your pile. Select a few images that belong together, ${byTouch("tap “Name them”", "press N")} and give them a name. After that, everything else sorts itself.`];
  }
  if (view === "all") {
    if (state.classes.length === 1) return ["Overview", byTouch("Now name a second class: select images of another kind and tap New. Images of no class you care about: None.", "Now name a second class: select images of another kind and press N. Images of no class you care about: press 0.")];
    const confirmed = [...arranged.classes, arranged.none].reduce((sum, part) => sum + part.confirmedFiles, 0);
    return ["Overview", state.judged ? `${number(confirmed)} of ${counted(state.rows, "image")} confirmed; the others are guessed from them.` : "Label an image, and the others will be guessed."];
  }
  if (view === "ask") return ["Worth asking", !arranged.asked.length ? "Nothing more to ask: the guesses are sure." : byTouch("Your answers to these would teach most. Select some, then tap their class, None, or Accept if the guess is right.", "Your answers to these would teach most. Select and press a class's key, 0 for none of these, or Enter if the guess is right.")];
  if (view === "unknown") return ["Not sorted yet", "Nothing is guessed for these so far."];
  if (view === "doubtful") return ["Labels to check", byTouch("The other labels contradict these. Accept takes the suggestion; tapping its own class keeps it as it is.", "The other labels contradict these. Enter takes the suggestion; the key of its own class keeps it as it is.")];
  if (view === "odd") return ["Missing or changed", "The files of these images are gone, or hold something else than when they were read."];
  if (view === "find") return [`Files with “${search.text}”`, search.images.length ? counted(search.images.length, "image") : "No file has this in its name."];
  if (view === "none") return ["None of these", "Images that belong to none of your classes. A correction here helps most to tell them apart."];
  const index = classShown(state, view);
  if (index < 0) return ["", ""];
  const part = arranged.classes[index];
  const advice = part.guessed.length ? byTouch("Accept what is right, and tap the class of what is not.", "Press Enter where the guess is right, another key where it is not.") : "";
  return [state.classes[index][1], `${counted(part.files - part.confirmedFiles, "image")} guessed, ${number(part.confirmedFiles)} confirmed. ${advice}`];
}

/** The slider of the cutoff: how many go out, in words and as a histogram of scores. */
export function drawCutoff(state) {
  const slider = $("cutoff-slider"), distance = (reject) => Math.abs(Math.log(reject / state.rejectNow));
  const at = state.rejects.reduce((best, reject, i) => (distance(reject) < distance(state.rejects[best]) ? i : best), 0);
  if (document.activeElement !== slider || slider.value !== String(at)) slider.value = at;
  slider.max = state.rejects.length - 1;
  const now = state.putOut(); // at the cutoff itself, which may lie between two stops
  const [expected, fewest, greatest] = (state.strangers || [0, 0, 0]).map((value) => number(Math.round(value)));
  const total = state.strangers ? ` In all, about ${expected} (${fewest} to ${greatest}) belong to none of your classes.` : "";
  const about = (value) => (value < 0.5 ? "none" : `about ${number(Math.round(value))}`);
  $("cutoff-text").textContent = `Puts out ${number(now.out)} of ${number(now.of)}. Of these, ${about(now.lost)} likely ${Math.round(now.lost) === 1 ? "belongs" : "belong"} to a class; among the rest, ${about(now.missed)} likely ${Math.round(now.missed) === 1 ? "does" : "do"} not.${total}`;
  slider.setAttribute("aria-valuetext", $("cutoff-text").textContent);
  const all = [...state.cutoffs, ...now.scores], low = all.reduce((a, b) => Math.min(a, b)), span = all.reduce((a, b) => Math.max(a, b)) - low || 1;
  const counts = new Array(BINS).fill(0);
  for (const score of now.scores) counts[Math.min(BINS - 1, Math.floor(((score - low) / span) * BINS))]++;
  const most = Math.max(...counts, 1), cut = ((state.cutoff() - low) / span) * 240;
  const bars = counts.map((count, i) => {
    const height = count ? Math.max(1.5, (count / most) * 54) : 0;
    return shape("rect", { x: i * 4 + 0.4, y: 56 - height, width: 3.2, height, class: i * 4 + 2 < cut ? "out" : "kept" });
  });
  $("cutoff-picture").replaceChildren(...bars, shape("line", { x1: cut, x2: cut, y1: 0, y2: 56, class: "cut" }));
}

function shape(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
