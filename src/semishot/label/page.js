// The page: places at the side, tiles in the middle, answers by key, click and box; in step with the server.

import { drawCutoff } from "/cutoff.js";
import { editClassDialog } from "/dialogs/edit_class.js";
import { findDialog } from "/dialogs/find.js";
import { finishDialog } from "/dialogs/finish.js";
import { helpDialog } from "/dialogs/help.js";
import { largeView } from "/dialogs/large_view.js";
import { newClassDialog } from "/dialogs/new_class.js";
import { closeDialogs } from "/dialogs/open_close.js";
import { Grid } from "/grid.js";
import { outboxOf, post } from "/outbox.js";
import { classAt, drawPlaces, headingOf, isGone, placesOf, sectionsOf } from "/places.js";
import { CHANGED, MISSING, NONE, State, UNKNOWN } from "/state.js";
import { $, badge, colorOf, counted, element, keyOf, number, percent, plainText } from "/words.js";

const NAMES_AT_ONCE = 400;

let state = null, arranged = null, place = "all", least = false, found = null;
let cursor = { section: null, index: 0 }, anchor = null;
const selected = new Set(), names = new Map(), asking = new Set();
const view = () => ({ state, arranged, place, found });

history.replaceState(history.state, "", "/"); // the token is used

/* ---- the server ---- */

const outbox = outboxOf({ state: () => state, lost, toast });
let known = {}, fetching = false, stream = null, again = 0;
/** Follow the server; a hidden tab does not, and does again when it is shown. */
function follow() {
  clearTimeout(again);
  stream?.close();
  const events = stream = new EventSource("/events");
  events.onmessage = ({ data }) => {
    known = JSON.parse(data);
    lost(false);
    reading(known.progress);
    fetchState();
  };
  events.onerror = () => {
    lost(true);
    if (events === stream && events.readyState === EventSource.CLOSED) refused(); // the browser does not try again
  };
}
async function refused() {
  again = setTimeout(() => document.hidden || follow(), 2000);
  const response = await fetch("/state").catch(() => null);
  if (response?.status === 401) lost(true, 401);
}
document.addEventListener("visibilitychange", () => {
  if (document.hidden) stream.close();
  else follow();
});

async function fetchState() {
  if (fetching || (state && state.epoch === known.epoch && state.version >= known.version)) return;
  fetching = true;
  try {
    const response = await fetch("/state");
    if (!response.ok) throw new Error(response.statusText);
    const next = new State(await response.arrayBuffer());
    while (held) await new Promise((go) => setTimeout(go, 20));
    take(next);
  } catch { /* the event stream says when the server is back */ } finally {
    fetching = false;
  }
  if (state && known.epoch && (state.epoch !== known.epoch || state.version < known.version)) fetchState();
}

/** While a button or a finger is down: nothing moves away under it, and a slider stays in the hand. */
let held = false, releasing = 0;
document.addEventListener("pointerdown", () => { held = true; clearTimeout(releasing); }, true); // pressed again: not yet released
for (const type of ["pointerup", "pointercancel"]) document.addEventListener(type, () => { releasing = setTimeout(() => { held = false; }, 60); }, true); // the click comes after it
document.addEventListener("pointermove", (event) => { if (!event.buttons) held = false; }, true); // released elsewhere
addEventListener("blur", () => { held = false; });

let away = false, stranger = false;
/** The server is away or back; `status` is what it has refused an answer with. */
function lost(now, status = 0) {
  if (away && !now) { grid.retry(); nameTiles([...grid.tiles.values()]); } // what could not be loaded meanwhile
  away = now;
  stranger = now && (status === 401 || (stranger && !status));
  const waits = outbox.waiting.length ? ` ${counted(outbox.waiting.length, "answer")} will be sent when it is back.` : "";
  if (stranger) banner("The server does not know this tab any more: open the address that semishot label has printed.");
  else if (outbox.problem) banner(`${outbox.problem}. ${counted(outbox.waiting.length, "answer")} of yours ${outbox.waiting.length === 1 ? "waits" : "wait"} in this tab, and will be sent again; do not close it.`);
  else if (away) banner(`The server does not answer. What you have answered is safe.${waits} Start semishot label again to go on.`);
  else if (known.problem) banner(known.problem);
  else banner(known.progress?.problem ? `Reading has stopped: ${known.progress.problem}` : "");
}

function banner(text) {
  $("banner").hidden = !text;
  if ($("banner").textContent !== text) $("banner").textContent = text;
}

function reading({ phase, done, total, rate }) {
  const busy = phase === "reading" || phase === "listing";
  $("reading").hidden = !busy;
  if (!busy) return;
  $("reading-bar").max = total || 1;
  $("reading-bar").value = done;
  const left = rate > 0 ? (total - done) / rate : 0;
  const time = left > 5400 ? `${Math.round(left / 3600)} h` : left > 90 ? `${Math.round(left / 60)} min` : `${Math.ceil(left)} s`;
  $("reading-text").textContent = phase === "listing" ? "Looking for images" :
    `${number(done)} of ${number(total)} images read${rate ? `, ${rate < 10 ? rate.toFixed(1) : Math.round(rate)} per second, ${time} left` : ""}`;
}

let toasting = 0;
function toast(text) {
  $("toast").textContent = text;
  $("toast").classList.add("on");
  clearTimeout(toasting);
  toasting = setTimeout(() => $("toast").classList.remove("on"), 2600);
}

/* ---- places ---- */

function go(to) {
  if (to === place) return;
  if (isGone(state, to)) { toast("This class is gone."); return; }
  history.pushState({ place: to }, "");
  show(to);
}

/** The browser's Back closes what is open, or else leads to the place before. */
function back(event) {
  const open = document.querySelectorAll("dialog[open]");
  if (open.length) {
    history.pushState({ place }, "");
    open.forEach((dialog) => dialog.close());
    return;
  }
  if (!state) return;
  const to = event.state?.place || "all";
  const gone = to === "find" ? !found : isGone(state, to);
  show(gone ? "all" : to);
  focusTiles();
}

function show(to) {
  place = to;
  selected.clear();
  cursor = { section: null, index: 0 };
  $("main").scrollTop = 0;
  draw(false);
}

/* ---- drawing ---- */

const grid = new Grid($("main"), $("grid"), {
  paint,
  shown: nameTiles,
  head(section) {
    section.body.setAttribute("aria-label", section.title || (section.index !== undefined ? state.className(section.index) : headingOf(view())[0]) || "Images");
    const parts = [];
    if (section.index !== undefined || section.title) {
      const title = element("h3", "", section.index !== undefined ? (section.index === NONE ? "None of these" : state.className(section.index)) : section.title);
      if (section.index !== undefined) parts.push(badge(section.index));
      const held = section.held;
      parts.push(title, element("span", "count", held ? `${held.saidFiles ? `✓${number(held.saidFiles)} · ` : ""}${number(held.files)}` : number(section.rows.length)), element("span", "grow"));
      if (section.to && section.limit && section.rows.length > (grid.columns || 1) * section.limit) {
        const all = element("button", "quiet wide", "Show all");
        all.type = "button";
        all.dataset.place = section.to;
        all.setAttribute("aria-label", `Show all of ${title.textContent}`);
        parts.push(all);
      }
    }
    if (section.key.startsWith("class:") && section.index !== undefined) parts.push(editButton(section.index));
    section.headElement.replaceChildren(...parts);
    if (section.index !== undefined && !section.rows.length) section.headElement.append(element("span", "blank", "nothing here yet"));
  },
});

function editButton(index) {
  const edit = element("button", "quiet wide", "Edit");
  edit.type = "button";
  return editing(edit, index);
}

function editing(button, index) {
  button.dataset.edit = state.classes[index][0];
  button.setAttribute("aria-label", `Rename, merge or delete ${state.className(index)}`);
  return button;
}

function stateOf(row) {
  const where = state.placeOf(row), image = state.image[row];
  if (state.isSaid(row)) return { kind: "said", where };
  if (state.isAsked.has(image) && state.classes.length) return { kind: "ask", where };
  return { kind: where === UNKNOWN ? "open" : "guess", where };
}

function paint(tile, row, section) {
  const { kind, where } = stateOf(row), image = state.image[row];
  const flags = state.flags[row];
  const named = section.index === undefined && !section.key.endsWith("guessed") && !section.key.endsWith("said");
  const chance = where === UNKNOWN ? "" : percent(where === NONE ? state.stranger[row] : state.sure[row]);
  const doubt = state.doubts.get(image);
  tile.className = `tile ${kind}${flags & MISSING ? " missing" : ""}${state.stack.has(image) ? " stack" : ""}${tile.classList.contains("broken") ? " broken" : ""}`;
  tile.style.setProperty("--color", colorOf(where));
  const short = where === UNKNOWN ? "" : where === NONE ? "none" : state.className(where);
  const parts = [];
  if (kind === "said") parts.push(element("span", "", "✓"), element("b", "", named || doubt ? short : where === NONE ? "none" : keyOf(where) || short));
  else if (kind === "ask") parts.push(element("span", "", "?"), ...(named && short ? [element("b", "", short)] : []), element("b", "chance", short ? chance : "ask"));
  else if (kind === "guess") parts.push(element("i"), ...(named ? [element("b", "", short)] : []), element("b", "chance", chance));
  if (section.key === "doubtful" && doubt) parts.push(element("b", "", `→ ${doubt.suggested === NONE ? "none" : state.className(doubt.suggested)}?`));
  tile.mark.replaceChildren(...parts);
  tile.mark.classList.toggle("two", section.key === "doubtful" && Boolean(doubt));
  tile.mark.hidden = !parts.length;
  const copies = (state.stack.get(image) || 1) - 1 + state.copies[row] - 1;
  tile.more.textContent = flags & MISSING ? "gone" : flags & CHANGED ? "changed" : copies > 0 ? `+${copies}` : "";
  tile.setAttribute("aria-selected", selected.has(image));
  const here = cursor.section === tile.section && cursor.index === tile.index;
  tile.classList.toggle("cursor", here);
  tile.tabIndex = here ? 0 : -1;
  const words = { said: `confirmed ${state.className(where)}`, ask: `worth asking, guessed ${state.className(where)} ${chance}`, guess: `guessed ${state.className(where)} ${chance}`, open: "not sorted" }[kind];
  const extra = `${flags & MISSING ? ", file is gone" : ""}${flags & CHANGED ? ", file has changed" : ""}${copies > 0 ? `, with ${counted(copies, "copy", "copies")}` : ""}`;
  tile.setAttribute("aria-label", `${names.get(image) || `image ${image}`}, ${words}${extra}`);
  tile.title = names.get(image) || "";
}

let naming = 0;
function nameTiles(tiles) {
  clearTimeout(naming);
  naming = setTimeout(async () => {
    const wanted = tiles.filter((tile) => tile.isConnected && !names.has(tile.image) && !asking.has(tile.image)).map((tile) => tile.image);
    const images = [...new Set(wanted)].slice(0, NAMES_AT_ONCE);
    if (!images.length) return;
    images.forEach((image) => asking.add(image));
    try {
      const answer = await post("/names", { images });
      if (names.size > 20000) names.clear();
      for (const [image, files] of Object.entries(answer)) names.set(Number(image), plainText(files[0] || `image ${image}`));
      for (const tile of grid.tiles.values()) if (answer[tile.image]) repaint(tile);
    } catch { /* names come with the next scroll */ } finally {
      images.forEach((image) => asking.delete(image));
    }
  }, 120);
}

function repaint(tile) {
  paint(tile, tile.row, grid.section(tile.section));
}

function repaintAll() {
  for (const tile of grid.tiles.values()) repaint(tile);
  drawBar();
}

function take(next) {
  const first = !state || !state.rows;
  const focusedImage = currentImage();
  state = next;
  state.overlay(outbox.pending());
  state.rejectNow = outbox.reject() ?? state.reject;
  if (isGone(state, place)) place = "all";
  for (const image of selected) if (!state.rowOf.has(image)) selected.delete(image);
  draw(!first, focusedImage);
}

function draw(glide = true, focusedImage = currentImage()) {
  if (!state) return;
  arranged = state.arrange(least);
  drawPlaces(view());
  const [title, lead] = headingOf(view());
  $("title").textContent = title;
  $("lead").textContent = lead;
  const orderable = place === "none" || place.startsWith("class:");
  $("order").hidden = !orderable;
  const index = classAt(state, place);
  $("edit").hidden = index < 0;
  if (index >= 0) editing($("edit"), index);
  $("order").textContent = least ? "Least sure first" : "Surest first";
  const hadFocus = document.activeElement?.classList.contains("tile");
  grid.show(sectionsOf(view()), state, glide);
  settleCursor(focusedImage, hadFocus);
  drawBar();
  $("cutoff").hidden = !state.judged || (phone.matches && place !== "none");
  if (!$("cutoff").hidden) drawCutoff(state);
  drawTools();
  window.semishot = { epoch: state.epoch, version: state.version, event: state.event, rows: state.rows, judged: () => !outbox.waiting.length && state.event >= outbox.last };
  document.dispatchEvent(new CustomEvent("drawn"));
}

/** The image stays under the cursor if it is still in its section; else the next one takes its place. */
function settleCursor(image, hadFocus) {
  let section = grid.section(cursor.section);
  if (!section || !section.shown) section = grid.sections.find((one) => one.shown);
  if (!section) { cursor = { section: null, index: 0 }; return; }
  let index = section.key === cursor.section ? cursor.index : 0;
  const row = image === null ? undefined : state.rowOf.get(image);
  if (row !== undefined && section.rows[index] !== row) {
    const now = section.rows.indexOf(row);
    if (now >= 0 && now < section.shown) index = now;
  }
  cursor = { section: section.key, index: Math.min(index, section.shown - 1) };
  for (const tile of grid.tiles.values()) {
    const here = tile.section === cursor.section && tile.index === cursor.index;
    tile.classList.toggle("cursor", here);
    tile.tabIndex = here ? 0 : -1;
    if (here && hadFocus) tile.focus({ preventScroll: true });
  }
}

function drawTools() {
  for (const kind of ["undo", "redo"]) {
    $(kind).disabled = !state[kind];
    $(kind).title = state[kind] ? `${kind === "undo" ? "Undo" : "Redo"}: ${state[kind]}` : "";
  }
}

function answerButtons(images, pressed) {
  const classes = element("div", "classes"), buttons = [];
  classes.append(...state.classes.map(([id, name], index) => {
    const button = element("button");
    button.append(badge(index), element("span", "name", name));
    button.dataset.answer = id;
    if (pressed !== undefined) button.setAttribute("aria-pressed", pressed === index);
    return button;
  }));
  if (state.classes.length) buttons.push(classes);
  const plain = (key, name, does) => {
    const button = element("button");
    button.append(Object.assign(element("span", "key plain", key), { ariaHidden: "true" }), element("span", "name", name));
    button.dataset.does = does;
    return button;
  };
  if (state.classes.length) {
    const none = element("button");
    none.append(badge(NONE), element("span", "name", "None"));
    none.setAttribute("aria-label", "None of these");
    none.dataset.answer = "0";
    if (pressed !== undefined) none.setAttribute("aria-pressed", pressed === NONE);
    buttons.push(none);
    const rows = images.map((image) => state.rowOf.get(image));
    const guesses = new Set(rows.filter((row) => !state.isSaid(row)).map((row) => state.placeOf(row)));
    guesses.delete(UNKNOWN);
    if (guesses.size || place === "doubtful") buttons.unshift(plain("↵", place === "doubtful" || guesses.size === 1 ? "Accept" : "Accept all", "accept"));
    if (rows.some((row) => state.placeOf(row) >= 0)) buttons.push(plain("-", "Not this", "not"));
    if (rows.some((row) => state.isSaid(row))) buttons.push(plain("⌫", "Take back", "clear"));
  }
  buttons.push(plain("n", state.classes.length ? "New" : "Name them", "new"));
  if (!state.classes.length) buttons.at(-1).className = "primary";
  for (const button of [...buttons, ...classes.children]) button.type = "button";
  return buttons;
}

function drawBar() {
  const images = chosen();
  const one = !selected.size && images.length === 1;
  $("bar").classList.toggle("empty", !images.length || (one && matchMedia("(max-width: 760px)").matches));
  $("chosen").textContent = !images.length ? "Nothing to answer here" : one ? "" : `${number(images.length)} selected`;
  $("answers").replaceChildren(...(images.length ? answerButtons(images) : []));
}

/* ---- answers ---- */

function currentImage() {
  const section = state && grid.section(cursor.section);
  const row = section?.rows[cursor.index];
  return row === undefined ? null : grid.state.image[row];
}

function chosen() {
  if (selected.size) return [...selected];
  const image = currentImage();
  return image === null ? [] : [image];
}

/** Send an event and show at once what it says of these images: [[answer, images], …]. */
function say(event, set, text) {
  const overlay = set.flatMap(([value, images]) => images.map((image) => [image, value]));
  document.dispatchEvent(new CustomEvent("answered", { detail: performance.now() }));
  const promise = outbox.add(event, overlay);
  state.overlay(overlay);
  state.bins = null;
  selected.clear();
  anchor = null;
  draw();
  if (text) toast(text);
  return promise.catch((error) => { toast(error.message); known.version && refetch(); });
}

function refetch() {
  state.version = -1;
  fetchState();
}

function answer(classId, images = chosen()) {
  if (!images.length) return;
  if (classId === 0 && !state.classes.length) { toast("Make a class first: press N."); return; }
  if (classId > 0 && state.index(classId) < 0) { toast("This class is gone."); return; }
  const name = classId === 0 ? "none of these" : state.className(state.index(classId));
  const set = [[classId, images]];
  say({ kind: "answer", set }, set, `${counted(images.length, "image")}: ${name}`);
}

function accept(images = chosen()) {
  const by = new Map();
  for (const image of images) {
    const row = state.rowOf.get(image), doubt = place === "doubtful" && state.doubts.get(image);
    const where = doubt ? doubt.suggested : state.isSaid(row) ? UNKNOWN : state.placeOf(row);
    if (where === UNKNOWN) continue;
    const value = where === NONE ? 0 : state.classes[where][0];
    by.set(value, [...(by.get(value) || []), image]);
  }
  if (!by.size) { toast("There is no guess to accept."); return; }
  const set = [...by];
  const count = set.reduce((sum, [, held]) => sum + held.length, 0);
  say({ kind: "answer", set }, set, `${counted(count, "guess", "guesses")} accepted`);
}

function notThis(images = chosen()) {
  const by = new Map();
  for (const image of images) {
    const where = state.placeOf(state.rowOf.get(image));
    if (where >= 0) by.set(where, [...(by.get(where) || []), image]);
  }
  if (!by.size) { toast("This is in no class."); return; }
  for (const [where, held] of by) say({ kind: "not", class: state.classes[where][0], images: held }, [[-1, held]], `${counted(held.length, "image")}: not ${state.className(where)}`);
}

function clear(images = chosen()) {
  const held = images.filter((image) => state.isSaid(state.rowOf.get(image)));
  if (held.length) say({ kind: "answer", set: [[-1, held]] }, [[-1, held]], `${counted(held.length, "answer")} taken back`);
}

/** Undo or redo; pressed again before the page has followed, it is sent all the same. */
async function step(kind) {
  const title = window.semishot.judged() ? state[kind] : "";
  if (title === null) { toast(`Nothing to ${kind}.`); return; }
  try {
    await outbox.add({ kind });
    toast(`${kind === "undo" ? "Undone" : "Redone"}${title ? `: ${title}` : ""}`);
  } catch (error) { toast(error.message); }
}

function does(what, images) {
  const now = images || chosen();
  if (what === "accept") accept(now);
  else if (what === "not") notThis(now);
  else if (what === "clear") clear(now);
  else if (what === "new") newClass(now);
  else return false;
  return true;
}

function newClass(images = selected.size ? [...selected] : []) {
  dialogs.newClass(images);
}

/* ---- moving about ---- */

function moveTo(section, index, extend = false) {
  const before = currentImage();
  const here = grid.section(section);
  if (!here || !here.shown) return;
  cursor = { section, index: Math.max(0, Math.min(index, here.shown - 1)) };
  if (extend) {
    if (before !== null) selected.add(before);
    selected.add(currentImage());
  }
  const tile = grid.reveal(cursor.section, cursor.index);
  repaintAll();
  tile?.focus({ preventScroll: true });
}

function arrow(dx, dy, extend) {
  const place = grid.sections.findIndex((one) => one.key === cursor.section);
  const section = grid.sections[place];
  if (!section) return;
  const index = cursor.index + dx + dy * grid.columns;
  const next = (by) => {
    for (let i = place + by; grid.sections[i]; i += by) if (grid.sections[i].shown) return grid.sections[i];
    return null;
  };
  if (index >= 0 && index < section.shown) moveTo(section.key, index, extend);
  else if (index >= section.shown) {
    const lastLine = Math.floor((section.shown - 1) / grid.columns);
    const below = next(1);
    if (dy && Math.floor(cursor.index / grid.columns) < lastLine) moveTo(section.key, section.shown - 1, extend);
    else if (below) moveTo(below.key, dy ? cursor.index % grid.columns : 0, extend);
  } else {
    const above = next(-1);
    if (above && dy) {
      const start = Math.floor((above.shown - 1) / grid.columns) * grid.columns;
      moveTo(above.key, start + (cursor.index % grid.columns), extend);
    } else if (above) moveTo(above.key, above.shown - 1, extend);
  }
}

function neighbourPlace(by) {
  const list = placesOf(view()).filter((one) => one.id && one.id !== "new").map((one) => one.id);
  const to = list[list.indexOf(place) + by];
  if (to) { go(to); focusTiles(); }
}

function focusTiles() {
  grid.tileAt(cursor.section, cursor.index)?.focus({ preventScroll: true });
}

function toggle(image) {
  if (!selected.delete(image)) selected.add(image);
}

function selectAll() {
  const section = grid.section(cursor.section) || grid.sections[0];
  if (!section) return;
  for (const row of section.rows) selected.add(state.image[row]);
  repaintAll();
  toast(`${number(selected.size)} selected`);
}

/* ---- keys ---- */

function onKey(event) {
  if (event.defaultPrevented || document.querySelector("dialog[open]:not(#large)")) return;
  const inLarge = $("large").open;
  const target = event.target;
  if (!state) return;
  const mod = event.ctrlKey || event.metaKey;
  const key = event.key;
  if (mod && key.toLowerCase() === "z") return run(event, () => step(event.shiftKey ? "redo" : "undo"));
  if (mod && key.toLowerCase() === "y") return run(event, () => step("redo"));
  if (mod && key.toLowerCase() === "a" && !inLarge) return run(event, selectAll);
  if (mod || event.altKey) return;
  const images = inLarge ? [dialogs.large.image()] : chosen();
  if (/^[1-9]$/.test(key)) {
    const held = state.classes[Number(key) - 1];
    return run(event, () => (held ? answer(held[0], images) : newClass(images)));
  }
  if (key === "0") return run(event, () => answer(0, images));
  if (key === "-") return run(event, () => notThis(images));
  if (key === "Backspace" || key === "Delete") return run(event, () => clear(images));
  if (key.toLowerCase() === "n") return run(event, () => newClass(inLarge || selected.size ? images : []));
  if (key === "/") return run(event, dialogs.find);
  if (key === "?") return run(event, dialogs.help);
  const onTile = target.classList.contains("tile") || target === document.body || target === $("main") || inLarge;
  if (key === "Enter" && onTile && !target.matches("button, a")) return run(event, () => accept(images));
  if (inLarge) {
    if (key === "ArrowLeft" || key === "ArrowRight") run(event, () => dialogs.large.step(key === "ArrowLeft" ? -1 : 1));
    if (key === " " && !target.matches("button")) run(event, () => $("large").close());
    return;
  }
  if (key === "Escape") return run(event, () => { selected.clear(); repaintAll(); });
  if (key === "PageDown" || key === "PageUp") return run(event, () => neighbourPlace(key === "PageDown" ? 1 : -1));
  if (!onTile) return;
  const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
  if (by) return run(event, () => arrow(...by, event.shiftKey));
  if (key === "Home") return run(event, () => moveTo(cursor.section, 0, event.shiftKey));
  if (key === "End") return run(event, () => moveTo(cursor.section, Infinity, event.shiftKey));
  if (key === " ") return run(event, () => dialogs.large.open(cursor.section, cursor.index));
  if (key.toLowerCase() === "x") return run(event, () => { const image = currentImage(); if (image !== null) toggle(image); repaintAll(); });
}

function run(event, work) {
  event.preventDefault();
  work();
}

/* ---- mouse and touch ---- */

let press = null;
function onDown(event) {
  if (event.button !== 0 || event.target.closest("button, a, input, .banner")) return;
  const tile = event.target.closest(".tile");
  press = { x: event.clientX, y: event.clientY, tile, touch: event.pointerType === "touch", extend: event.shiftKey, box: null, scroll: $("main").scrollTop };
  if (press.touch && tile) press.long = setTimeout(() => { if (press) { press = null; dialogs.large.open(tile.section, tile.index); } }, 480);
  else if (!press.touch) press.base = event.ctrlKey || event.metaKey || event.shiftKey ? new Set(selected) : new Set();
}

function onMove(event) {
  if (!press) return;
  const far = Math.hypot(event.clientX - press.x, event.clientY - press.y) > 6;
  if (press.touch) { if (far) { clearTimeout(press.long); press = null; } return; }
  if (!press.box && far) {
    press.box = element("div", "rubber");
    $("grid").append(press.box);
    $("grid").style.position = "relative";
    $("main").setPointerCapture(event.pointerId);
  }
  if (!press.box) return;
  const frame = $("grid").getBoundingClientRect(), main = $("main");
  const from = { x: press.x - frame.left, y: press.y - frame.top - (main.scrollTop - press.scroll) };
  const x = event.clientX - frame.left, y = event.clientY - frame.top;
  const box = { left: Math.min(x, from.x), right: Math.max(x, from.x), top: Math.min(y, from.y), bottom: Math.max(y, from.y) };
  Object.assign(press.box.style, { left: `${box.left}px`, top: `${box.top}px`, width: `${box.right - box.left}px`, height: `${box.bottom - box.top}px` });
  selected.clear();
  for (const image of [...press.base, ...grid.inside(box)]) selected.add(image);
  const view = main.getBoundingClientRect();
  if (event.clientY > view.bottom - 40) main.scrollTop += 14;
  if (event.clientY < view.top + 40) main.scrollTop -= 14;
  repaintAll();
}

function onUp(event) {
  if (!press) return;
  const { tile, box, extend } = press;
  clearTimeout(press.long);
  press = null;
  if (box) { box.remove(); return; }
  if (!tile || !tile.isConnected) {
    if (!tile && event.target.closest("main") && !event.target.closest("button")) { selected.clear(); repaintAll(); }
    return;
  }
  const section = grid.section(tile.section);
  if (extend && anchor && anchor.section === tile.section) {
    const [a, b] = [Math.min(anchor.index, tile.index), Math.max(anchor.index, tile.index)];
    for (let i = a; i <= b; i++) selected.add(state.image[section.rows[i]]);
  } else {
    toggle(tile.image);
    anchor = { section: tile.section, index: tile.index };
  }
  cursor = { section: tile.section, index: tile.index };
  repaintAll();
  tile.focus({ preventScroll: true });
}

/* ---- beginning ---- */

const phone = matchMedia("(max-width: 760px)");
function settleCutoff() {
  if (phone.matches) $("grid").before($("cutoff"));
  else document.querySelector(".side").append($("cutoff"));
  grid.setSize(tileSize());
  if (state) draw(false);
}

function tileSize() {
  const kept = Number(localStorage.getItem("size"));
  if (phone.matches) return 108;
  return kept || (innerWidth > 3200 ? 330 : innerWidth > 2400 ? 240 : 172);
}

const page = {
  toast, answerButtons, answer, does, command: (event) => outbox.add(event), go, stateOf, names, grid, selected, state: () => state, place: () => place,
  refind(text, images, image) {
    found = { text, images };
    if (place !== "find") history.pushState({ place: "find" }, "");
    place = "find";
    cursor = { section: "find", index: Math.max(0, images.indexOf(image)) };
    draw(false);
    moveTo("find", cursor.index);
  },
  moveTo, focusTiles, afterNew() { selected.clear(); draw(); },
};
closeDialogs(page);
const large = largeView(page);
const dialogs = { large, newClass: newClassDialog(page, large), edit: editClassDialog(page), find: findDialog(page), help: helpDialog(), finish: finishDialog(toast) };

$("size").value = tileSize();
$("size").addEventListener("input", (event) => { localStorage.setItem("size", event.target.value); grid.setSize(Number(event.target.value)); });
$("order").addEventListener("click", () => { least = !least; draw(); });
$("undo").addEventListener("click", () => step("undo"));
$("redo").addEventListener("click", () => step("redo"));
$("find").addEventListener("click", () => dialogs.find());
$("help").addEventListener("click", () => dialogs.help());
$("finish").addEventListener("click", () => dialogs.finish());
$("cutoff-slider").addEventListener("input", (event) => { state.rejectNow = state.rejects[event.target.value]; draw(false); });
$("cutoff-slider").addEventListener("change", (event) => { outbox.add({ kind: "reject", value: state.rejects[event.target.value] }).catch((error) => toast(error.message)); });
document.addEventListener("keydown", onKey);
addEventListener("popstate", back);
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.place === "new") newClass();
  else if (button.dataset.place) { go(button.dataset.place); focusTiles(); }
  else if (button.dataset.edit) dialogs.edit(Number(button.dataset.edit));
  else if (button.closest("#answers")) {
    if (button.dataset.answer) answer(Number(button.dataset.answer));
    else does(button.dataset.does);
    focusTiles();
  }
});
$("main").addEventListener("pointerdown", onDown);
$("main").addEventListener("pointermove", onMove);
$("main").addEventListener("pointerup", onUp);
$("main").addEventListener("pointercancel", () => { clearTimeout(press?.long); press?.box?.remove(); press = null; });
$("main").addEventListener("dblclick", (event) => {
  const tile = event.target.closest(".tile");
  if (tile) dialogs.large.open(tile.section, tile.index);
});
phone.addEventListener("change", settleCutoff);
fetchState();
follow();
settleCutoff();
outbox.send();
