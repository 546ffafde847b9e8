// From image to image and from view to view; what is found; what is open.

import { $, complain, plainText, toast } from "/dom.js";
import { grid, reveal, tileAt } from "/grid.js";
import { ask, fetchFiles } from "/server.js";
import { deselect, isGone, NO_FILTER, NOWHERE, page, sectionOf } from "/state.js";

export function focusTiles() {
  (tileAt(page.cursor.section, page.cursor.index) || $("main")).focus({ preventScroll: true });
}

const imageAt = (section, index) => page.state.image[section.rows[index]];

/** The image stays under the cursor if it is still in its section; else the next one comes under it. */
export function settleCursor() {
  const { sections, cursor, state } = page, here = sectionOf(cursor.section);
  const section = here?.shown ? here : sections.find(({ shown }) => shown);
  if (!section) { page.cursor = NOWHERE; return; }
  const now = section === here ? section.rows.indexOf(state.rowOf.get(cursor.image)) : 0;
  const index = Math.min(now >= 0 && now < section.shown ? now : cursor.index, section.shown - 1);
  page.cursor = { section: section.key, index, image: imageAt(section, index) };
}

/** The ring moves to a tile; `extend`: what it leaves and where it goes are selected. */
export function moveTo(key, at, extend = false) {
  const section = sectionOf(key), { selected, cursor } = page;
  if (!section?.shown) return;
  const index = Math.max(0, Math.min(at, section.shown - 1)), image = imageAt(section, index);
  if (extend) selected.add(cursor.image ?? image).add(image);
  page.cursor = { section: key, index, image };
  reveal(section, index);
  page.paint();
  focusTiles();
}

/** One tile to the side or one line up or down, into the next section too. */
export function arrow(dx, dy, extend) {
  const { sections, cursor } = page, { columns } = grid;
  const at = sections.findIndex(({ key }) => key === cursor.section), section = sections[at];
  if (!section) return;
  const line = (index) => Math.floor(index / columns), column = cursor.index % columns;
  const index = cursor.index + dx + dy * columns, last = section.shown - 1;
  const below = sections.slice(at + 1).find(({ shown }) => shown);
  const above = sections.slice(0, at).findLast(({ shown }) => shown);
  if (index >= 0 && index <= last) moveTo(section.key, index, extend);
  else if (index > last && dy && line(cursor.index) < line(last)) moveTo(section.key, last, extend);
  else if (index > last && below) moveTo(below.key, dy ? column : 0, extend);
  else if (index < 0 && above) {
    const end = above.shown - 1;
    moveTo(above.key, dy ? line(end) * columns + column : end, extend);
  }
}

/* Views */

/** Show a view; the one that is shown already, without the filter. */
export function go(view) {
  page.fresh = false;
  if (view === page.view) applyFilter(NO_FILTER);
  else if (isGone(view)) toast("This class is gone.");
  else {
    history.pushState({ view }, "");
    showView(view);
  }
  focusTiles();
}

function showView(view) {
  Object.assign(page, { view, fresh: false, cursor: NOWHERE });
  deselect();
  $("main").scrollTop = 0;
  page.draw(false);
}

/** The browser's Back closes what is open, or else leads to the view before. */
export function back({ state }) {
  if (page.dialog || page.large) {
    history.pushState({ view: page.view }, "");
    while (page.dialog || page.large) close();
  } else if (page.state) {
    const view = state?.view || "all";
    showView(isGone(view) ? "all" : view);
    focusTiles();
  }
}

let filtering = 0;
/** Change the filter; the server knows which images have such files. */
export async function applyFilter(change) {
  if (change === page.filter) return;
  page.filter = change === NO_FILTER ? change : { ...page.filter, ...change };
  const { least, most, ...asked } = page.filter, mine = ++filtering;
  page.paint();
  let matches = null;
  if (Object.values(asked).some(Boolean)) {
    await new Promise((typed) => setTimeout(typed, 150));
    if (mine !== filtering) return;
    const query = Object.entries(asked).map(([name, value]) => [name, value.trim()]);
    const reply = await ask(`/find?${new URLSearchParams(query)}`).catch(complain);
    if (mine !== filtering || !reply) return;
    const { state } = page, rows = state.rowsOf(reply.images);
    matches = new Set(rows.map((row) => (state.hasTile(row) ? state.image[row] : state.group[row])));
  }
  page.matches = matches;
  deselect();
  page.draw(false);
}

/** Show or hide the fields of the filter. */
export function find() {
  page.finding = !page.finding;
  page.paint();
  if (page.finding) {
    $("filter-text").focus();
    fetchFiles();
  } else {
    focusTiles();
    applyFilter(NO_FILTER);
  }
}

/* What is open above the tiles */

/** Open a dialog, or the picture of a tile. */
export function open(dialog) {
  page.dialog = dialog;
  opened();
}

function opened() {
  if (!history.state) history.pushState({ view: page.view }, ""); // else Back would leave the page
  page.paint();
}

/** Close the dialog that is on top. */
export function close() {
  const { dialog, large } = page;
  page.dialog = null;
  if (!dialog) page.large = null;
  page.paint();
  if (!dialog && large?.index < sectionOf(large?.section)?.shown) moveTo(large.section, large.index);
  if (!page.large) focusTiles();
}

/** Show the picture of a tile large, and all that is known of it. */
export function enlarge(key, index) {
  const section = sectionOf(key);
  if (section?.rows[index] === undefined) return;
  const image = imageAt(section, index), zoom = { scale: 1, x: 0, y: 0 };
  const large = page.large = { section: key, index, image, zoom };
  opened();
  ask(`/image/${image}`).then((about) => {
    Object.assign(large, { shares: about.shares, files: about.files.map(plainText) });
    page.paint();
  }, () => {}); // the picture says enough
}

/** The picture before or after the large one; after an answer, what has come into its place. */
export function stepLarge(by) {
  const { large, state } = page, section = sectionOf(large.section);
  if (!section?.rows.length) { close(); return; }
  const here = section.rows.indexOf(state.rowOf.get(large.image));
  const to = here < 0 ? Math.min(large.index, section.rows.length - 1) : here + by;
  if (section.rows[to] === undefined) { toast(by > 0 ? "That was the last." : "That is the first."); return; }
  if (to < section.shown) moveTo(large.section, to);
  enlarge(large.section, to);
}
