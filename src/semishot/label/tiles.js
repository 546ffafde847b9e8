// What a tile and the heading of a section show.

import { headingOf } from "/places.js";
import { CHANGED, MISSING, NONE, UNKNOWN } from "/state.js";
import { badge, colorOf, counted, element, keyOf, number, percent } from "/words.js";

/** What is known of a row: confirmed, worth asking, guessed or open; and its class. */
export function stateOf(state, row) {
  const where = state.placeOf(row), image = state.image[row];
  if (state.isSaid(row)) return { kind: "said", where };
  if (state.isAsked.has(image) && state.classes.length) return { kind: "ask", where };
  return { kind: where === UNKNOWN ? "open" : "guess", where };
}

export function paint(page, tile, row, section) {
  const { state, selected, names, cursor } = page;
  const { kind, where } = stateOf(state, row), image = state.image[row];
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

export function repaint(page, tile) {
  paint(page, tile, tile.row, page.grid.section(tile.section));
}

export function drawHead(page, section) {
  const { state, grid } = page;
  section.body.setAttribute("aria-label", section.title || (section.index !== undefined ? state.className(section.index) : headingOf(page)[0]) || "Images");
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
  if (section.key.startsWith("class:") && section.index !== undefined) parts.push(editButton(state, section.index));
  section.headElement.replaceChildren(...parts);
  if (section.index !== undefined && !section.rows.length) section.headElement.append(element("span", "blank", "nothing here yet"));
}

function editButton(state, index) {
  const edit = element("button", "quiet wide", "Edit");
  edit.type = "button";
  return editing(edit, state, index);
}

/** Make a button the one that edits a class. */
export function editing(button, state, index) {
  button.dataset.edit = state.classes[index][0];
  button.setAttribute("aria-label", `Rename, merge or delete ${state.className(index)}`);
  return button;
}
