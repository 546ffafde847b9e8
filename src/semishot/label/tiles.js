// Drawing the page from what is known now: tiles, headings of sections, tools.

import { drawBar } from "/answers.js";
import { $, badge, button, colorOf, counted, element, keyOf, number, percent } from "/dom.js";
import { currentImage, settleCursor } from "/navigation.js";
import { classShown, drawCutoff, drawViews, headingOf, sectionsOf } from "/sidebar.js";
import { CHANGED, MISSING, NONE, UNKNOWN } from "/state.js";

export function draw(page, glide = true, focusedImage = currentImage(page)) {
  const { state, view, least, grid, outbox } = page;
  if (!state) return;
  page.arranged = state.arrange(least);
  drawViews(page);
  const [title, lead] = headingOf(page), index = classShown(state, view);
  $("title").textContent = title;
  $("lead").textContent = lead;
  $("order").hidden = view !== "none" && !view.startsWith("class:");
  $("order").textContent = least ? "Least sure first" : "Surest first";
  $("edit").hidden = index < 0;
  if (index >= 0) makeEdit($("edit"), state, index);
  const hadFocus = document.activeElement?.classList.contains("tile");
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
  if (state.isAsked.has(state.image[row]) && state.classes.length) return { kind: "ask", where };
  return { kind: where === UNKNOWN ? "open" : "guess", where };
}

export function paint(page, tile, row, section) {
  const { state, selected, names, cursor } = page, image = state.image[row], flags = state.flags[row];
  const { kind, where } = knownOf(state, row), doubt = state.doubts.get(image), toCheck = section.key === "doubtful" && doubt;
  const named = section.index === undefined && !/ (guessed|confirmed)$/.test(section.key);
  const chance = where === UNKNOWN ? "" : percent(where === NONE ? state.stranger[row] : state.sure[row]);
  tile.className = `tile ${kind}${flags & MISSING ? " missing" : ""}${state.stack.has(image) ? " stack" : ""}${tile.classList.contains("broken") ? " broken" : ""}`;
  tile.style.setProperty("--color", colorOf(where));
  const short = where === UNKNOWN ? "" : where === NONE ? "none" : state.className(where);
  const name = named && short ? [element("b", "", short)] : [], parts = [];
  if (kind === "confirmed") parts.push(element("span", "", "✓"), element("b", "", named || doubt || where === NONE ? short : keyOf(where) || short));
  else if (kind === "ask") parts.push(element("span", "", "?"), ...name, element("b", "chance", short ? chance : "ask"));
  else if (kind === "guess") parts.push(element("i"), ...name, element("b", "chance", chance));
  if (toCheck) parts.push(element("b", "", `→ ${doubt.suggested === NONE ? "none" : state.className(doubt.suggested)}?`));
  tile.mark.replaceChildren(...parts);
  tile.mark.classList.toggle("two", Boolean(toCheck));
  tile.mark.hidden = !parts.length;
  const copies = (state.stack.get(image) || 1) - 1 + state.copies[row] - 1;
  tile.more.textContent = flags & MISSING ? "gone" : flags & CHANGED ? "changed" : copies > 0 ? `+${copies}` : "";
  tile.setAttribute("aria-selected", selected.has(image));
  const here = cursor.section === tile.section && cursor.index === tile.index;
  tile.classList.toggle("cursor", here);
  tile.tabIndex = here ? 0 : -1;
  const words = { confirmed: `confirmed ${state.className(where)}`, ask: `worth asking, guessed ${state.className(where)} ${chance}`, guess: `guessed ${state.className(where)} ${chance}`, open: "not sorted" }[kind];
  const extra = `${flags & MISSING ? ", file is gone" : ""}${flags & CHANGED ? ", file has changed" : ""}${copies > 0 ? `, with ${counted(copies, "copy", "copies")}` : ""}`;
  tile.setAttribute("aria-label", `${names.get(image) || `image ${image}`}, ${words}${extra}`);
  tile.title = names.get(image) || "";
}

export function drawHead(page, section) {
  const { state, grid } = page, { part, index } = section, isClass = index !== undefined, parts = [];
  const title = isClass ? (index === NONE ? "None of these" : state.className(index)) : section.title;
  section.body.setAttribute("aria-label", title || headingOf(page)[0] || "Images");
  if (title) {
    const count = part ? `${part.confirmedFiles ? `✓${number(part.confirmedFiles)} · ` : ""}${number(part.files)}` : number(section.rows.length);
    if (isClass) parts.push(badge(index));
    parts.push(element("h3", "", title), element("span", "count", count), element("span", "grow"));
    if (section.to && section.limit && section.rows.length > (grid.columns || 1) * section.limit) {
      const all = button("quiet wide", "Show all");
      all.dataset.view = section.to;
      all.ariaLabel = `Show all of ${title}`;
      parts.push(all);
    }
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
