// Views: which there are, and what each shows: its heading, and its sections of tiles with what one can do to them.

import { acceptSection, answer, nameImages } from "/answers.js";
import { counted, number } from "/dom.js";
import { go, open } from "/navigation.js";
import { isFiltered, kindShown, NONE, ofKind, page, STEPS } from "/state.js";

const LINES = 2, TYPICAL = 8; // of a class in the overview; images of a kind

const LEADS = {
  kinds: "Each row looks alike. Click away what does not belong; then name the row (N), " +
    "add it to a class (its key), or put it with the strangers (0).",
  audit: "A random sample, one image at a time: say right or wrong. " +
    "At any moment, what you have said bounds how much of the whole pile is right.",
  ask: "Your answers to these teach most: their class (its key), Stranger (0), " +
    "or Accept (Enter) if the guess is right.",
  all: "Select a few that belong together and name them (N); under Kinds, images that look alike are in one row.",
  second: "Now name a second class: select images of another kind, and New class (N). " +
    "Images of no class you care about: Stranger (0).",
  none: "Images that belong to none of your classes. A correction here helps most to tell them apart.",
  map: "Near is alike. Draw around points to select them; the wheel zooms, the right button moves.",
  unknown: "Nothing is guessed for these so far.",
  doubtful: "The other labels contradict these. Accept (Enter) takes the suggestion; its own class keeps it as it is.",
  missing: "The files of these images are gone, or hold something else now. Answers are kept.",
  skipped: "These are not part of the pile. Mended files are read within seconds.",
};

/** The list at the side: [{view, name, sign or the index of a class, count, title, lead, part, rows}], and headings. */
export function viewsOf() {
  const { state, arranged, view, lassoed } = page, { asked, none, unknown, doubtful, missing, classes } = arranged;
  const begun = state.classes.length > 0, kinds = state.kinds.length, name = begun ? "More kinds" : "Kinds";
  const seldom = [
    { view: "unknown", name: "Not sorted yet", count: unknown.files, rows: unknown.guessed },
    { view: "doubtful", name: "Labels to check", rows: doubtful },
    { view: "missing", name: "Missing files", rows: missing },
    { view: "skipped", name: "Skipped files", count: state.skipped, rows: [] },
  ].map((entry) => ({ sign: "·", count: entry.rows.length, ...entry })).filter(({ count }) => count);
  const inKinds = {
    view: "kinds", name, sign: "⁘", count: kinds,
    title: kinds ? (begun ? counted(kinds, "more kind") : "What kinds are there?") : name,
    lead: kinds ? LEADS.kinds : "What has no name yet looks like no kind of its own.",
  };
  const ask = { view: "ask", name: "Worth asking", sign: "?", count: asked.length, rows: asked };
  if (!asked.length) ask.lead = "Nothing more to ask: the guesses are sure.";
  return [
    !begun && inKinds,
    { view: "all", name: begun ? "Overview" : "All images", sign: "≡", ...allImages() },
    begun && (kinds > 0 || view === "kinds") && inKinds,
    begun && ask,
    { view: "map", name: "Map", sign: "∴", rows: state.rowsOf(lassoed) },
    { heading: "Classes" },
    ...state.classes.map(([id, name], index) => ({ view: `class:${id}`, name, index, part: classes[index] })),
    { view: "new", name: "New class", sign: "N", does: () => nameImages([...page.selected]) },
    begun && { view: "none", name: "Strangers", index: NONE, part: none },
    seldom.length > 0 && { heading: "More" },
    ...seldom,
  ].filter(Boolean);
}

/** Title and lead of the view of all images. */
function allImages() {
  const { state: { rows, classes, judged }, arranged } = page;
  if (!rows) return { title: "Getting ready", lead: "The first images appear as soon as a hundred have been read." };
  if (classes.length < 2) return { lead: classes.length ? LEADS.second : LEADS.all };
  const confirmed = [...arranged.classes, arranged.none].reduce((sum, part) => sum + part.confirmedFiles, 0);
  if (confirmed === rows) return { lead: `All ${counted(confirmed, "image")} are confirmed.` };
  if (!judged) return { lead: "Label an image, and the others will be guessed." };
  return { lead: `${number(confirmed)} of ${counted(rows, "image")} confirmed; the others are guessed from them.` };
}

function countsOf({ files, confirmedFiles, guessed }) {
  const advice = guessed.length ? "Accept (Enter) where the guess is right, another class where it is not." : "";
  return `${counted(files - confirmedFiles, "image")} guessed, ${number(confirmedFiles)} confirmed. ${advice}`;
}

/** The view that is shown, as the list has it; some are not in the list. */
function viewNow() {
  const { state, view } = page;
  if (view === "audit") return { name: "How much is right?", lead: state.audit?.line, rows: [] };
  if (view.startsWith("kind:")) return { name: "One kind", lead: "Name all of it, or select some first." };
  return viewsOf().find((entry) => entry.view === view) || { name: "", lead: "", rows: [] };
}

/** Title and lead. */
export function headingOf() {
  const { state, view, filter } = page;
  const { name, title = name, part, lead = LEADS[view] ?? countsOf(part) } = viewNow();
  if (!isFiltered() || view !== "all") return [title, lead];
  const count = [...state.image.keys()].filter((row) => state.hasTile(row) && fits(row)).length;
  const found = `${counted(count, "image")} of ${number(state.rows)} ${count === 1 ? "fits" : "fit"}.`;
  return [filter.text ? `Found: “${filter.text}”` : "Found", count ? found : "No image fits."];
}

/** Whether the filter lets a row through. */
function fits(row) {
  const { state, matches, filter } = page, chance = (100 * state.chance(row)) / STEPS;
  return (!matches || matches.has(state.image[row])) && chance >= filter.least && chance <= filter.most;
}

/* Sections: {key, rows, title, limit, part, index, ofClass, uncounted, actions} */

export function editAction(index) {
  const [id, name] = page.state.classes[index];
  const does = () => open({ kind: "edit", id, typed: name, wrong: "" });
  return { text: "Edit", quiet: true, label: `Rename, merge or delete ${name}`, does };
}

const opens = (view, title) => ({ text: "Open", quiet: true, label: `Show all of ${title}`, does: () => go(view) });
const showAll = (view, title) => ({ ...opens(view, title), text: "Show all", ifMore: true });

/** What a view shows, in the order of the page; of what is filtered, all that fits. */
export function sectionsOf() {
  const sections = allSections();
  if (!isFiltered()) return sections;
  const fitting = sections.map((section) => ({ ...section, rows: section.rows.filter(fits), limit: 0, part: null }));
  return fitting.filter(({ rows }) => rows.length);
}

function allSections() {
  const { state, arranged, view } = page, { rows, part } = viewNow();
  const isOpen = (section) => !section.rows.some((row) => state.isConfirmed(row));
  if (view === "kinds") return state.kinds.map((images) => kindSection(images, true)).filter(isOpen);
  if (view.startsWith("kind:")) return [kindSection(kindShown(), false)];
  if (view === "all") return state.classes.length ? overview() : [{ key: "unknown", rows: arranged.unknown.guessed }];
  if (!part) return [{ key: view, rows }].filter(() => rows.length);
  const guessed = { key: `${view} guessed`, rows: part.guessed, title: "Guessed", ofClass: true };
  guessed.actions = [{ text: `Accept all ${number(part.guessed.length)}`, does: () => acceptSection(guessed.key) }];
  const confirmed = { key: `${view} confirmed`, rows: part.confirmed, title: "Confirmed", ofClass: true };
  return [guessed, confirmed].filter(({ rows }) => rows.length);
}

/** A few of each class and of what has none. */
function overview() {
  const { state, arranged } = page, { asked, unknown, none, classes } = arranged;
  const sectionOfClass = (view, part, index, title) => {
    const actions = [showAll(view, title), ...(index === NONE ? [] : [editAction(index)])];
    const rows = [...part.guessed, ...part.confirmed];
    return { key: view, rows, title, index, part, ofClass: true, limit: LINES, actions };
  };
  const some = (view, rows, title, limit) => ({ key: view, rows, title, limit, actions: [showAll(view, title)] });
  const alike = `More kinds: about ${counted(state.kinds.flat().length, "image")} that look alike`;
  const first = isFiltered() ? [[], []] : [asked, state.rowsOf(state.kinds.map(([image]) => image))];
  return [
    some("ask", first[0], "Worth asking", 1),
    ...state.classes.map(([id, name], index) => sectionOfClass(`class:${id}`, classes[index], index, name)),
    sectionOfClass("none", none, NONE, "Strangers"),
    some("kinds", first[1], alike, 1),
    some("unknown", unknown.guessed, "Not sorted yet", LINES),
  ].filter(({ rows, part }) => rows.length || part);
}

/** Images that look alike: one row of them, which opens, or all. */
function kindSection(images, isRow) {
  const key = `kind:${images[0]}`, title = `${number(images.length)} alike`;
  const those = () => (page.selected.size ? [...page.selected] : ofKind(key));
  const actions = [
    { text: "Name…", does: () => nameImages(those()) },
    { text: "Strangers", quiet: true, does: () => answer(0, those()) },
    { text: "Skip", quiet: true, does: () => skipRow(key) },
    isRow && opens(key, title),
  ].filter(Boolean);
  const rows = page.state.rowsOf(isRow ? images.slice(0, TYPICAL) : images);
  return { key, rows, title, uncounted: true, limit: isRow ? 1 : 0, actions };
}

/** Click away all of a row of kinds, or none of it any more. */
function skipRow(key) {
  const { sections, state, crossed } = page, change = ofKind(key).length ? "add" : "delete";
  for (const row of sections.find((section) => section.key === key).rows) crossed[change](state.image[row]);
  page.paint();
}
