// Views: the list at the side, what each view shows, its tiles and headings, and how much is likely right.

import { drawBar } from "/answers.js";
import { $, badge, button, colorOf, counted, element, keyOf, number, percent, shape } from "/dom.js";
import { currentImage, settleCursor } from "/navigation.js";
import { NONE, STEPS, UNKNOWN } from "/state.js";

const LINES = 2, BINS = 56, ODDS = 6, PLAIN = 0.9, LIKELY = 0.98, CERTAIN = 0.95, TYPICAL = 8;

/** The index of the class that a view shows; negative if it shows none, or if the class is gone. */
export function classShown(state, view) {
  return view.startsWith("class:") ? state.index(Number(view.slice(6))) : -1;
}

export function isGone(state, view) {
  if (view.startsWith("kind:")) return !kindShown(state, view);
  return view.startsWith("class:") && classShown(state, view) < 0;
}

/** The images of the kind that is open, by the one that it is known by. */
function kindShown(state, view) {
  return state.kinds.find((images) => images.includes(Number(view.slice(5))));
}

export function draw(page, glide = true, focusedImage = currentImage(page)) {
  const { state, view, least, grid, outbox } = page;
  if (!state) return;
  page.arranged = state.arrange(least);
  drawViews(page);
  drawLikely(page);
  const [title, lead] = headingOf(page), index = classShown(state, view);
  $("title").textContent = title;
  $("lead").textContent = lead;
  $("order").hidden = view !== "none" && index < 0;
  $("order").textContent = least ? "Least sure first" : "Surest first";
  $("edit").hidden = index < 0;
  $("rest").hidden = view !== "kinds" || !state.classes.length || !state.kinds.length;
  if (index >= 0) makeEdit($("edit"), state, index);
  $("find").setAttribute("aria-pressed", isFiltered(page));
  $("skipped").hidden = view !== "skipped";
  const hadFocus = document.activeElement?.classList.contains("tile");
  grid.fixed = view === "kinds" ? (page.phone.matches ? TYPICAL / 2 : TYPICAL) : 0;
  grid.show(sectionsOf(page), state, glide);
  settleCursor(page, focusedImage, hadFocus);
  drawBar(page);
  $("cutoff").hidden = !state.judged || (page.phone.matches && view !== "none");
  if (!$("cutoff").hidden) drawCutoff(state);
  for (const [kind, verb] of [["undo", "Undo"], ["redo", "Redo"]]) {
    $(kind).disabled = !state[kind];
    $(kind).title = state[kind] ? `${verb}: ${state[kind]}` : "";
  }
  window.semishot = { epoch: state.epoch, version: state.version, event: state.event, rows: state.rows, judged: () => !outbox.waiting.length && page.state.event >= outbox.last };
  document.dispatchEvent(new CustomEvent("drawn"));
}

/** How much of the pile is likely right, and how many images are likely still wrong: sums of the probabilities. */
function drawLikely({ state, arranged }) {
  const wrong = Math.round(arranged.wrong), right = state.rows ? 1 - arranged.wrong / state.rows : 0, unnamed = state.kinds.length;
  const done = state.audit?.share >= CERTAIN || (!unnamed && arranged.wrong < 0.5), ready = !unnamed && right >= LIKELY;
  $("likely").hidden = !state.judged;
  $("likely-bar").style.setProperty("--right", right);
  $("likely").classList.toggle("done", ready);
  $("likely-text").textContent = `${percent(right * STEPS)} likely right`;
  const kinds = unnamed ? `, ${counted(unnamed, "kind")} without a name` : "";
  $("likely-wrong").textContent = `${wrong ? `about ${number(wrong)}` : "hardly any"} still wrong${kinds}`;
  $("check").hidden = state.classes.length < 2;
  $("check").classList.toggle("primary", ready && !done);
  $("finish").classList.toggle("primary", state.judged && done);
}

/* The list at the side */

export function viewsOf({ state, arranged, view }) {
  const begun = state.classes.length > 0, { asked, none, unknown, doubtful, missing } = arranged;
  const kinds = { id: "kinds", name: begun ? "More kinds" : "Kinds", sign: "⁘", count: state.kinds.length }, map = { id: "map", name: "Map", sign: "∴" };
  const list = begun ? [{ id: "all", name: "Overview", sign: "≡" }, ...(state.kinds.length || view === "kinds" ? [kinds] : []), { id: "ask", name: "Worth asking", sign: "?", count: asked.length }, map] : [kinds, { id: "all", name: "All images", sign: "≡" }, map];
  list.push({ heading: "Classes" });
  state.classes.forEach(([id, name], index) => list.push({ id: `class:${id}`, name, index, part: arranged.classes[index] }));
  list.push({ id: "new", name: "New class", sign: "N" });
  if (begun) list.push({ id: "none", name: "Strangers", index: NONE, part: none });
  const more = [];
  if (unknown.files) more.push({ id: "unknown", name: "Not sorted yet", count: unknown.files });
  if (doubtful.length) more.push({ id: "doubtful", name: "Labels to check", count: doubtful.length });
  if (missing.length) more.push({ id: "missing", name: "Missing files", count: missing.length });
  if (state.skipped) more.push({ id: "skipped", name: "Skipped files", count: state.skipped });
  return more.length ? [...list, { heading: "More" }, ...more] : list;
}

function drawViews(page) {
  const { state, view } = page, focused = document.activeElement?.dataset?.view;
  $("views").replaceChildren(...viewsOf(page).map(({ id, name, index, part, heading, sign = "·", count = part?.files }) => {
    if (heading) return element("h2", "", heading);
    const entry = button(id === "new" ? "entry new" : "entry");
    entry.dataset.view = id;
    if (id === view) entry.setAttribute("aria-current", "page");
    entry.append(index !== undefined ? badge(state, index) : Object.assign(element("span", id === "ask" ? "key ask" : "key plain", sign), { ariaHidden: "true" }));
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

/** The slider of the cutoff and the histogram above it share one axis: how likely each guess is a member. */
function drawCutoff(state) {
  const slider = $("cutoff-slider"), effect = state.putOut(), cutoff = state.cutoff ?? cutoffFor(state, effect.out);
  if (document.activeElement !== slider || cutoffAt(slider.value) !== cutoff) slider.value = oddsOf(cutoff);
  const at = oddsOf(cutoff), counts = new Array(BINS).fill(0);
  for (let row = 0; row < state.rows; row++) {
    if (!state.isConfirmed(row) && state.guess[row] >= 0) counts[Math.min(BINS - 1, Math.floor(((oddsOf(state.stranger[row]) + ODDS) / (2 * ODDS)) * BINS))]++;
  }
  const most = Math.sqrt(Math.max(...counts, 1)), edge = ((at + ODDS) / (2 * ODDS)) * BINS;
  const bars = counts.map((count, i) => {
    const height = count ? Math.max(1.5, (Math.sqrt(count) / most) * 54) : 0;
    return shape("rect", { x: i + 0.1, y: 56 - height, width: 0.8, height, class: i + 0.5 < edge ? "out" : "kept" });
  });
  $("cutoff-picture").replaceChildren(...bars, shape("line", { x1: edge, x2: edge, y1: 0, y2: 56, class: "cut" }));
  const about = (value) => (value < 0.5 ? "none" : `about ${number(Math.round(value))}`);
  $("cutoff-text").textContent = `${number(effect.out)} of ${number(effect.of)} guesses are strangers: ${about(effect.lost)} of these likely ${Math.round(effect.lost) === 1 ? "belongs" : "belong"} to a class, and ${about(effect.missed)} of the rest to none.`;
  slider.setAttribute("aria-valuetext", $("cutoff-text").textContent);
  $("cutoff-reset").style.visibility = state.cutoff === null ? "hidden" : "visible";
}

/** Where a probability of a stranger, of STEPS, lies on the axis; and the probability at a place on it. */
export const oddsOf = (stranger) => Math.max(-ODDS, Math.min(ODDS, Math.log(Math.max(0.1, STEPS - stranger + 0.5) / (stranger + 0.5))));
export const cutoffAt = (odds) => (odds <= -ODDS ? STEPS + 1 : odds >= ODDS ? 1 : Math.round(STEPS / (1 + Math.exp(odds))));

/** The cutoff that puts out as many. */
function cutoffFor(state, out) {
  const open = state.stranger.filter((_, row) => !state.isConfirmed(row) && state.guess[row] >= 0).sort();
  return out ? open[open.length - out] : STEPS + 1;
}

/* What is shown */

export const isFiltered = ({ matches, filter }) => matches !== null || filter.least > 0 || filter.most < 100;

/** Rows that the filter lets through. */
function filtered({ state, matches, filter }, rows) {
  const least = (filter.least / 100) * STEPS, most = (filter.most / 100) * STEPS;
  return rows.filter((row) => {
    if (matches && !matches.has(state.image[row])) return false;
    const chance = state.chance(row);
    return chance >= least && chance <= most;
  });
}

/** What a view shows, in the order of the page: sections of tiles. */
export function sectionsOf(page) {
  const sections = allSections(page);
  if (!isFiltered(page)) return sections;
  return sections.map((section) => ({ ...section, rows: filtered(page, section.rows), limit: 0, part: null })).filter(({ rows }) => rows.length);
}

function allSections(page) {
  const { state, arranged, view } = page, { asked, unknown, none } = arranged;
  const mixed = (part) => [...part.guessed, ...part.confirmed];
  const open = view.startsWith("kind:") && kindShown(state, view);
  if (open) return [{ key: view, rows: state.rowsOf(open), title: `${number(open.length)} alike`, name: true }];
  if (view === "kinds") {
    return state.kinds.map((images) => ({ key: `kind:${images[0]}`, rows: state.rowsOf(images.slice(0, TYPICAL)), limit: 1, title: `${number(images.length)} alike`, name: true, to: `kind:${images[0]}` }))
      .filter(({ rows }) => !rows.some((row) => state.isConfirmed(row)));
  }
  if (view === "map") return [{ key: "map", rows: state.rowsOf(page.lassoed), title: "" }].filter(({ rows }) => rows.length);
  if (view === "audit") return [];
  if (view === "all" && !state.classes.length) {
    return [{ key: "unknown", rows: unknown.guessed, title: "" }];
  }
  if (view === "all") {
    const first = isFiltered(page) ? [] : [{ key: "ask", rows: asked, limit: 1, title: "Worth asking", to: "ask" }];
    return [
      ...first,
      ...arranged.classes.map((part, index) => ({ id: `class:${state.classes[index][0]}`, index, part })),
      { id: "none", index: NONE, part: none },
      { key: "kinds", rows: isFiltered(page) ? [] : state.rowsOf(state.kinds.map(([image]) => image)), limit: 1, title: `More kinds: about ${counted(state.kinds.flat().length, "image")} that look alike`, to: "kinds" },
      { key: "unknown", rows: unknown.guessed, limit: LINES, title: "Not sorted yet", to: "unknown" },
    ].map((section) => (section.part ? { ...section, key: section.id, to: section.id, limit: LINES, rows: mixed(section.part) } : section))
      .filter((section) => section.rows.length || section.part);
  }
  const rows = { ask: asked, unknown: unknown.guessed, doubtful: arranged.doubtful, missing: arranged.missing, skipped: [] }[view];
  if (rows) return [{ key: view, rows, title: "" }];
  const part = view === "none" ? none : arranged.classes[classShown(state, view)];
  if (!part) return [];
  return [
    { key: `${view} guessed`, rows: part.guessed, title: "Guessed", accept: true },
    { key: `${view} confirmed`, rows: part.confirmed, title: "Confirmed" },
  ].filter((section) => section.rows.length);
}

/** Title and lead. */
function headingOf(page) {
  const { state, arranged, view, filter } = page;
  if (isFiltered(page) && view === "all") {
    const count = filtered(page, [...state.image.keys()].filter((row) => state.hasTile(row))).length;
    return [filter.text ? `Found: “${filter.text}”` : "Found", count ? `${counted(count, "image")} of ${number(state.rows)} ${count === 1 ? "fits" : "fit"}.` : "No image fits."];
  }
  if (view === "kinds" && state.rows) {
    const left = state.kinds.length, begun = state.classes.length > 0;
    if (!left) return [begun ? "More kinds" : "Kinds", "What has no name yet looks like no kind of its own."];
    const how = "Each row looks alike. Click away what does not belong; then name the row (N), add it to a class (its key), or put it with the strangers (0).";
    return [begun ? `${counted(left, "more kind")}` : "What kinds are there?", how];
  }
  if (view.startsWith("kind:")) return ["One kind", "Name all of it, or select some first."];
  if (view === "map") return ["Map", "Near is alike. Draw around points to select them; the wheel zooms, the right button moves."];
  if (view === "audit") return ["How much is right?", state.audit ? state.audit.line : "A random sample, one image at a time: say right or wrong. At any moment, what you have said bounds how much of the whole pile is right."];
  if (view === "all" && !state.classes.length) {
    if (!state.rows) return ["Getting ready", "The first images appear as soon as a hundred have been read."];
    return ["All images", "Select a few that belong together and name them (N); under Kinds, images that look alike are in one row."];
  }
  if (view === "all") {
    if (state.classes.length === 1) return ["Overview", "Now name a second class: select images of another kind, and New class (N). Images of no class you care about: Stranger (0)."];
    const confirmed = [...arranged.classes, arranged.none].reduce((sum, part) => sum + part.confirmedFiles, 0);
    if (confirmed === state.rows) return ["Overview", `All ${counted(confirmed, "image")} are confirmed.`];
    return ["Overview", state.judged ? `${number(confirmed)} of ${counted(state.rows, "image")} confirmed; the others are guessed from them.` : "Label an image, and the others will be guessed."];
  }
  if (view === "ask") return ["Worth asking", !arranged.asked.length ? "Nothing more to ask: the guesses are sure." : "Your answers to these teach most: their class (its key), Stranger (0), or Accept (Enter) if the guess is right."];
  if (view === "unknown") return ["Not sorted yet", "Nothing is guessed for these so far."];
  if (view === "doubtful") return ["Labels to check", "The other labels contradict these. Accept (Enter) takes the suggestion; its own class keeps it as it is."];
  if (view === "missing") return ["Missing files", "The files of these images are gone, or hold something else now. Answers are kept."];
  if (view === "skipped") return ["Skipped files", "These are not part of the pile. Mended files are read within seconds."];
  if (view === "none") return ["Strangers", "Images that belong to none of your classes. A correction here helps most to tell them apart."];
  const part = arranged.classes[classShown(state, view)];
  if (!part) return ["", ""];
  const advice = part.guessed.length ? "Accept (Enter) where the guess is right, another class where it is not." : "";
  return [state.className(classShown(state, view)), `${counted(part.files - part.confirmedFiles, "image")} guessed, ${number(part.confirmedFiles)} confirmed. ${advice}`];
}

/* Tiles and headings */

/** What is selected, or where the cursor is, has changed. */
export function repaintAll(page) {
  for (const tile of page.grid.tiles.values()) repaint(page, tile);
  drawBar(page);
}

export function repaint(page, tile) {
  paint(page, tile, tile.row, page.grid.section(tile.section));
}

/** What is known of a row: confirmed, worth asking, guessed or open; and its class. */
export function knownOf(state, row) {
  const where = state.shownIn(row);
  if (state.isConfirmed(row)) return { kind: "confirmed", where };
  if (state.isAsked.has(state.image[row])) return { kind: "ask", where };
  return { kind: where === UNKNOWN ? "open" : "guess", where };
}

/** A guess carries its probability only where that says something: where it is less than sure. */
export function paint(page, tile, row, section) {
  const { state, selected, names, cursor } = page, image = state.image[row], gone = !state.copies[row];
  const { kind, where } = knownOf(state, row), doubt = state.doubts.get(image), toCheck = section.key === "doubtful" && doubt;
  const named = section.index === undefined && !/ (guessed|confirmed)$/.test(section.key);
  const sure = state.chance(row), chance = where === UNKNOWN ? "" : percent(sure);
  tile.className = `tile ${kind}${gone ? " missing" : ""}${state.stack.has(image) ? " stack" : ""}${tile.classList.contains("broken") ? " broken" : ""}`;
  tile.style.setProperty("--color", colorOf(state, where));
  const short = where === UNKNOWN ? "" : state.className(where);
  const name = named && short ? [element("b", "", short)] : [], parts = [], share = sure < PLAIN * STEPS ? [element("b", "chance", chance)] : [];
  if (kind === "confirmed") parts.push(element("span", "", "✓"), element("b", "", named || doubt ? short : keyOf(state, where) || short));
  else if (kind === "ask") parts.push(element("span", "", "?"), ...name, element("b", "chance", short ? chance : "ask"));
  else if (kind === "guess" && (named || share.length)) parts.push(element("i"), ...name, ...share);
  if (toCheck) parts.push(element("b", "", `→ ${state.className(doubt.suggested)}?`));
  tile.mark.replaceChildren(...parts);
  tile.mark.classList.toggle("two", Boolean(toCheck));
  tile.mark.hidden = !parts.length || (page.view.startsWith("kind") && kind !== "confirmed");
  const copies = (state.stack.get(image) || 1) - 1 + state.copies[row] - 1;
  tile.more.textContent = gone ? "gone" : copies > 0 ? `+${copies}` : "";
  tile.setAttribute("aria-selected", selected.has(image));
  const here = cursor.section === tile.section && cursor.index === tile.index;
  tile.classList.toggle("cursor", here);
  tile.classList.toggle("crossed", page.view === "kinds" && page.crossed.has(image));
  tile.tabIndex = here ? 0 : -1;
  const words = { confirmed: `confirmed ${short}`, ask: `worth asking, guessed ${short} ${chance}`, guess: `guessed ${short} ${chance}`, open: "not sorted" }[kind];
  const extra = `${gone ? ", file is gone" : ""}${copies > 0 ? `, with ${counted(copies, "copy", "copies")}` : ""}`;
  tile.setAttribute("aria-label", `${names.get(image) || `image ${image}`}, ${words}${extra}`);
  tile.title = names.get(image) || "";
  tile.caption.textContent = tile.title.split("/").at(-1);
}

export function drawHead(page, section) {
  const { state, grid } = page, { part, index } = section, isClass = index !== undefined, parts = [];
  const title = isClass ? (index === NONE ? "Strangers" : state.className(index)) : section.title;
  section.body.setAttribute("aria-label", title || headingOf(page)[0] || "Images");
  if (title) {
    const count = part ? `${part.confirmedFiles ? `✓${number(part.confirmedFiles)} · ` : ""}${number(part.files)}` : number(section.rows.length);
    if (isClass) parts.push(badge(state, index));
    parts.push(element("h3", "", title), ...(section.name ? [] : [element("span", "count", count)]), element("span", "grow"));
    if (section.name) {
      const [name, none, skip] = [button("wide", "Name…"), button("quiet wide", "Strangers"), button("quiet wide", "Skip")];
      name.dataset.name = none.dataset.none = skip.dataset.skip = section.key;
      parts.push(name, none, skip);
    }
    if (section.to && section.limit && (section.name || section.rows.length > (grid.columns || 1) * section.limit)) {
      const all = button("quiet wide", section.name ? "Open" : "Show all");
      all.dataset.view = section.to;
      all.ariaLabel = `Show all of ${title}`;
      parts.push(all);
    }
  }
  if (section.accept) {
    const all = button("wide", `Accept all ${number(section.rows.length)}`);
    all.dataset.accept = section.key;
    parts.push(all);
  }
  if (isClass && index !== NONE) parts.push(makeEdit(button("quiet wide", "Edit"), state, index));
  if (isClass && !section.rows.length) parts.push(element("span", "blank", "nothing here yet"));
  section.headElement.replaceChildren(...parts);
}

/** Make a button the one that edits a class. */
function makeEdit(made, state, index) {
  made.dataset.edit = state.classes[index][0];
  made.ariaLabel = `Rename, merge or delete ${state.className(index)}`;
  return made;
}
