// Sections of tiles, of which only those on the screen exist; a tile glides to where it goes.

import { $, Badge, colorOf, counted, html, keyOf, known, nameOf, number, percent, pictureOf } from "/dom.js";
import { Component } from "/preact.js";
import { askNames } from "/server.js";
import { page, sectionOf, STEPS, UNKNOWN } from "/state.js";

const GAP = 10, CAPTION = 22, SPARE = 2, SETTLE = 60;
const PLAIN = 0.9; // guesses that are surer than this carry no probability
const IN_A_ROW = 8; // images of a kind
const calm = matchMedia("(prefers-reduced-motion: reduce)");

/** Sizes in pixels: of a tile, and from one to the next. */
export const grid = { columns: 2, side: 0, pitch: 0, line: 0 };
const tiles = new Map(); // on the screen: the key of a section and an image -> component
const asked = new Set(), refused = new Set(); // images whose pictures are asked for, and did not come
let settling = 0;

/** Columns, and how many tiles of each section are shown. */
export function layOut() {
  const width = $("grid").clientWidth, phone = page.phone.matches;
  const usual = innerWidth > 3200 ? 330 : innerWidth > 2400 ? 240 : 172, size = phone ? 108 : page.size || usual;
  const fixed = page.view === "kinds" ? IN_A_ROW / (phone ? 2 : 1) : 0;
  const columns = fixed || Math.max(2, Math.floor((width + GAP) / (size + GAP)));
  const side = Math.floor((width - GAP * (columns - 1)) / columns), pitch = side + GAP;
  Object.assign(grid, { columns, side, pitch, line: pitch + (page.captions ? CAPTION : 0) });
  for (const section of page.sections) {
    section.shown = Math.min(section.rows.length, section.limit ? section.limit * columns : Infinity);
    section.height = Math.max(0, Math.ceil(section.shown / columns) * grid.line - GAP);
  }
}

/** Where the page is scrolled to and, to `glide`, where the tiles are: taken before anything moves. */
export function snapshot(glide) {
  const at = $("main").scrollTop - $("grid").offsetTop;
  const section = at > 0 && page.sections.findLast(({ top }) => top <= at + 60);
  const moves = glide && !calm.matches && !document.hidden;
  const placed = ({ base, props }) => [props.image, base.getBoundingClientRect()];
  const places = moves && new Map([...tiles.values()].map(placed));
  return { anchor: section && { key: section.key, by: at - section.top }, places };
}

/** Draw the sections, then the tiles that are on the screen where the sections have come to lie. */
export function show({ anchor, places }) {
  page.paint();
  page.sections.forEach((section, i) => { section.top = $("grid").children[i].lastElementChild.offsetTop; });
  const same = anchor && sectionOf(anchor.key);
  if (same) $("main").scrollTop = same.top + anchor.by + $("grid").offsetTop;
  page.paint();
  if (places) glideFrom(places);
}

function glideFrom(places) {
  for (const { base, props } of tiles.values()) {
    const was = places.get(props.image), now = base.getBoundingClientRect(), to = base.style.transform;
    const dx = was?.left - now.left, dy = was?.top - now.top;
    if (!was) base.animate([{ opacity: 0 }, { opacity: 1 }], { duration: 160 });
    else if (dx || dy) {
      const steps = [{ transform: `translate(${dx}px, ${dy}px) ${to}`, zIndex: 2 }, { transform: to, zIndex: 2 }];
      base.animate(steps, { duration: 220, easing: "cubic-bezier(.2,.7,.2,1)" });
    }
  }
}

/** Pictures are asked for when scrolling has settled: those that only fly by are not. */
function load() {
  clearTimeout(settling);
  settling = setTimeout(() => {
    for (const { props } of tiles.values()) asked.add(props.image);
    page.paint();
  }, asked.size ? SETTLE : 0);
  askNames(() => [...tiles.values()].map(({ props }) => props.image));
}

/** Ask again for what did not come. */
export function reload() {
  refused.clear();
  load();
}

export const tileAt = (key, index) => tiles.get(`${key} ${page.state.image[sectionOf(key)?.rows[index]]}`)?.base;

/** Scroll so that a tile is on the screen. */
export function reveal(section, index) {
  const view = $("main"), y = section.top + placeOf(index).y + $("grid").offsetTop;
  if (y < view.scrollTop + 64) view.scrollTop = y - 64;
  else view.scrollTop = Math.max(view.scrollTop, y + grid.side + 96 - view.clientHeight);
}

/** Images of the tiles that a box touches, by geometry: they need not be on the screen. */
export function inside({ left, top, width, height }) {
  return page.sections.flatMap((section) => section.rows.slice(0, section.shown).filter((_, index) => {
    const { x, y } = placeOf(index), below = y + section.top;
    return x <= left + width && x + grid.side >= left && below <= top + height && below + grid.side >= top;
  })).map((row) => page.state.image[row]);
}

/** Where a tile is in its section. */
const placeOf = (index) =>
  ({ x: (index % grid.columns) * grid.pitch, y: Math.floor(index / grid.columns) * grid.line });

export function Grid() {
  const { sections, captions, box } = page;
  return html`<div id="grid" class=${captions && "captioned"} style=${{ "--side": `${grid.side}px` }}>
    ${sections.map((section) => html`<${Section} key=${section.key} section=${section} />`)}
    ${box && html`<div class="rubber" style=${box} />`}
  </div>`;
}

function Section({ section }) {
  const { key, rows, shown, height, title, index, part, uncounted, actions = [] } = section;
  const current = page.view === "kinds" && key === page.cursor.section;
  const confirmed = part?.confirmedFiles ? `✓${number(part.confirmedFiles)} · ` : "";
  return html`<section class="part ${current ? "current" : ""}">
    <header class="part-head">
      ${index !== undefined && html`<${Badge} index=${index} />`}
      ${title && html`<h3>${title}</h3>`}
      ${title && !uncounted && html`<span class="count">${confirmed}${number(part ? part.files : rows.length)}</span>`}
      ${title && html`<span class="grow" />`}
      ${actions.map(({ text, label, quiet, ifMore, does }) => (!ifMore || rows.length > shown) && html`
        <button class="wide ${quiet ? "quiet" : ""}" aria-label=${label} onClick=${does}>${text}</button>`)}
      ${index !== undefined && !rows.length && html`<span class="blank">nothing here yet</span>`}
    </header>
    <div class="tiles" role="listbox" aria-multiselectable="true" aria-label=${title || page.heading[0] || "Images"}
      style=${{ height }} hidden=${!shown}>${onScreen(section)}</div>
  </section>`;
}

/** The tiles of a section that are on the screen, or nearly. */
function onScreen(section) {
  const { columns, line } = grid, { state, cursor, selected, crossed, view } = page;
  const { key, rows, top, shown } = section;
  const from = $("main").scrollTop - $("grid").offsetTop - top, to = from + $("main").clientHeight;
  const first = Math.max(0, Math.floor(from / line) - SPARE) * columns;
  const last = Math.min(shown, (Math.ceil(to / line) + SPARE) * columns);
  return rows.slice(first, Math.max(first, last)).map((row, i) => {
    const index = first + i, image = state.image[row], id = `${key} ${image}`;
    return html`<${Tile} key=${image} ...${{ id, section, index, row, image }} ...${placeOf(index)}
      name=${page.names.get(image)} wanted=${asked.has(image)} broken=${refused.has(image)}
      here=${cursor.section === key && cursor.index === index} selected=${selected.has(image)}
      crossed=${view === "kinds" && crossed.has(image)} />`;
  });
}

/** An image. A guess carries its probability only where that says something: where it is less than sure. */
class Tile extends Component {
  shouldComponentUpdate(next) {
    return Object.keys(next).some((name) => next[name] !== this.props[name]);
  }

  componentDidMount() {
    tiles.set(this.props.id, this);
    load();
  }

  componentWillUnmount() {
    tiles.delete(this.props.id);
    const picture = this.base.firstElementChild;
    if (!picture.complete) picture.removeAttribute("src");
  }

  render({ section, index, row, image, x, y, name = "", here, selected, crossed, wanted, broken }) {
    const { state } = page, where = state.shownIn(row), kind = state.kindOf(row), gone = !state.copies[row];
    const copies = (state.stack.get(image) || 1) + state.copies[row] - 2, stack = state.stack.has(image);
    const more = `${gone ? ", file is gone" : ""}${copies > 0 ? `, with ${counted(copies, "copy", "copies")}` : ""}`;
    const signs = { missing: gone, stack, broken, crossed, cursor: here };
    const shown = Object.keys(signs).filter((sign) => signs[sign]);
    return html`<div class="tile ${kind} ${shown.join(" ")}" role="option" title=${name} tabindex=${here ? 0 : -1}
      style=${{ transform: `translate(${x}px, ${y}px)`, "--color": colorOf(where) }} aria-selected=${selected}
      aria-label="${nameOf(image)}, ${known(row)}${more}"
      aria-setsize=${section.rows.length} aria-posinset=${index + 1} data-section=${section.key} data-index=${index}>
      <img alt="" draggable=${false} decoding="async" src=${wanted && !broken ? pictureOf(image, "thumb") : undefined}
        onError=${() => { refused.add(image); page.paint(); }} />
      <${Mark} section=${section} row=${row} kind=${kind} />
      <span class="more" aria-hidden="true">${gone ? "gone" : copies > 0 ? `+${copies}` : ""}</span>
      <span class="caption" aria-hidden="true"><bdi>${name.split("/").at(-1)}</bdi></span>
    </div>`;
  }
}

/** What is written on a tile: the class where its section does not say it, and how sure that is. */
function Mark({ section, row, kind }) {
  const { state, view } = page, where = state.shownIn(row), chance = percent(state.chance(row));
  const suggested = section.key === "doubtful" ? state.doubts.get(state.image[row]) : undefined;
  const class_ = where === UNKNOWN ? "" : state.className(where), name = section.ofClass ? "" : class_;
  const bold = (text, look) => text && html`<b class=${look}>${text}</b>`;
  const unsure = state.chance(row) < PLAIN * STEPS && bold(chance, "chance");
  const parts = {
    confirmed: [html`<span>✓</span>`, bold(name || keyOf(where) || class_)],
    ask: [html`<span>?</span>`, bold(name), bold(class_ ? chance : "ask", "chance")],
    guess: name || unsure ? [html`<i />`, bold(name), unsure] : [],
    open: [],
  }[kind];
  if (suggested !== undefined) parts.push(bold(`→ ${state.className(suggested)}?`));
  const hidden = !parts.length || (view.startsWith("kind") && kind !== "confirmed");
  const look = suggested === undefined ? "mark" : "mark two";
  return html`<span class=${look} aria-hidden="true" hidden=${hidden}>${parts}</span>`;
}
