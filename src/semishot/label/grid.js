// Sections of tiles, of which only those on the screen exist; a tile glides to where it goes.

import { element } from "/dom.js";

const GAP = 10, CAPTION = 22, SPARE = 2, SETTLE = 60, MOST_IN_BOX = 4000;

export class Grid {
  /** paint(tile, row, section): fills a tile. head(section): the heading of a section. shown(tiles): those on the screen. */
  constructor(scroller, element, { paint, head, shown }) {
    Object.assign(this, { scroller, element, paint, head, shown });
    this.sections = [];
    this.tiles = new Map();
    this.size = 168;
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    let waiting = false;
    scroller.addEventListener("scroll", () => {
      if (!waiting) requestAnimationFrame(() => { waiting = false; this.render(); });
      waiting = true;
    }, { passive: true });
    new ResizeObserver(() => this.relayout()).observe(element);
  }

  /** sections: [{key, rows, limit}]. Tiles that stay are kept, and those that moved are seen to move. */
  show(sections, state, glide = true) {
    const before = glide && !this.calm.matches && !document.hidden ? this.positions() : null;
    const anchor = this.anchor();
    this.state = state;
    const old = new Map(this.sections.map((section) => [section.key, section]));
    this.sections = sections.map((section) => {
      const kept = old.get(section.key);
      old.delete(section.key);
      const { root, headElement, body } = kept || this.build();
      const made = { ...section, root, headElement, body, top: kept ? kept.top : 0 };
      this.head(made);
      return made;
    });
    for (const gone of old.values()) {
      for (const tile of [...gone.body.children]) this.drop(tile);
      gone.root.remove();
    }
    this.sections.forEach(({ root }, index) => {
      if (this.element.children[index] !== root) this.element.insertBefore(root, this.element.children[index] || null);
    });
    this.layout();
    if (anchor) this.restore(anchor);
    this.render(true);
    if (before) this.glide(before);
  }

  build() {
    const root = element("section", "part"), headElement = element("header", "part-head"), body = element("div", "tiles");
    body.setAttribute("role", "listbox");
    body.setAttribute("aria-multiselectable", "true");
    root.append(headElement, body);
    return { root, headElement, body };
  }

  relayout(size = this.size, captions = this.captions) {
    Object.assign(this, { size, captions });
    this.element.classList.toggle("captioned", Boolean(captions));
    if (!this.sections.length) return;
    const anchor = this.anchor();
    this.layout();
    if (anchor) this.restore(anchor);
    this.render(true);
  }

  layout() {
    const width = this.element.clientWidth;
    this.columns = this.fixed || Math.max(2, Math.floor((width + GAP) / (this.size + GAP)));
    this.side = Math.floor((width - GAP * (this.columns - 1)) / this.columns);
    this.pitch = this.side + GAP;
    this.line = this.pitch + (this.captions ? CAPTION : 0);
    this.element.style.setProperty("--side", `${this.side}px`);
    for (const section of this.sections) {
      section.shown = section.limit ? Math.min(section.rows.length, section.limit * this.columns) : section.rows.length;
      const lines = Math.ceil(section.shown / this.columns);
      section.body.style.height = `${Math.max(0, lines * this.line - GAP)}px`;
      section.body.hidden = lines === 0;
    }
    const top = this.element.getBoundingClientRect().top - this.scroller.scrollTop;
    for (const section of this.sections) section.top = section.body.getBoundingClientRect().top - top - this.scroller.scrollTop;
    this.offset = this.element.offsetTop;
  }

  anchor() {
    const at = this.scroller.scrollTop - (this.offset || 0);
    if (at <= 0) return null;
    const section = this.sections.findLast((section) => section.top <= at + 60);
    return section ? { key: section.key, by: at - section.top } : null;
  }

  restore({ key, by }) {
    const section = this.section(key);
    if (section) this.scroller.scrollTop = section.top + by + this.offset;
  }

  render(repaint = false) {
    const top = this.scroller.scrollTop - this.element.offsetTop;
    const bottom = top + this.scroller.clientHeight;
    const wanted = new Set(), fresh = [];
    for (const section of this.sections) {
      const first = Math.max(0, Math.floor((top - section.top) / this.line) - SPARE);
      const last = Math.ceil((bottom - section.top) / this.line) + SPARE;
      const end = Math.min(section.shown, last * this.columns);
      for (let index = first * this.columns; index < end; index++) {
        const row = section.rows[index];
        const key = `${section.key} ${this.state.image[row]}`;
        wanted.add(key);
        let tile = this.tiles.get(key);
        const isNew = !tile;
        if (isNew) {
          tile = this.make(key, section, this.state.image[row]);
          fresh.push(tile);
        }
        if (isNew || repaint || tile.index !== index) this.put(tile, section, index, row);
      }
    }
    for (const [key, tile] of this.tiles) if (!wanted.has(key)) this.drop(tile);
    if (fresh.length) this.load();
    this.shown([...this.tiles.values()]);
  }

  make(key, section, image) {
    const tile = element("div", "tile"), mark = element("span", "mark"), more = element("span", "more");
    const line = element("span", "caption"), caption = element("bdi");
    tile.setAttribute("role", "option");
    const picture = Object.assign(element("img"), { alt: "", draggable: false, decoding: "async" });
    mark.ariaHidden = more.ariaHidden = line.ariaHidden = "true";
    line.append(caption);
    tile.append(picture, mark, more, line);
    Object.assign(tile, { tabIndex: -1, key, image, picture, mark, more, caption });
    this.tiles.set(key, tile);
    section.body.append(tile);
    return tile;
  }

  put(tile, section, index, row) {
    Object.assign(tile, { index, section: section.key, row });
    const x = (index % this.columns) * this.pitch, y = Math.floor(index / this.columns) * this.line;
    tile.style.transform = `translate(${x}px, ${y}px)`;
    tile.setAttribute("aria-setsize", section.rows.length);
    tile.setAttribute("aria-posinset", index + 1);
    this.paint(tile, row, section);
  }

  drop(tile) {
    this.tiles.delete(tile.key);
    if (!tile.picture.complete) tile.picture.removeAttribute("src");
    tile.remove();
  }

  /** Pictures are asked for when scrolling has settled: those that only fly by are not. `again`: those that did not come, too. */
  load(again = false) {
    clearTimeout(this.loading);
    this.loading = setTimeout(() => {
      for (const tile of this.tiles.values()) {
        if (tile.picture.hasAttribute("src") && !(again && tile.classList.contains("broken"))) continue;
        tile.classList.remove("broken");
        tile.picture.onerror = () => tile.classList.add("broken");
        tile.picture.src = `/thumb/${tile.image}?of=${this.state.pile}`;
      }
    }, this.loaded ? SETTLE : 0);
    this.loaded = true;
    if (again) this.shown([...this.tiles.values()]);
  }

  /** Where each image is on the screen. */
  positions() {
    return new Map([...this.tiles.values()].map((tile) => [tile.image, tile.getBoundingClientRect()]));
  }

  glide(before) {
    for (const tile of this.tiles.values()) {
      const was = before.get(tile.image), now = tile.getBoundingClientRect(), to = tile.style.transform;
      const dx = was?.left - now.left, dy = was?.top - now.top;
      if (!was) tile.animate([{ opacity: 0 }, { opacity: 1 }], { duration: 160 });
      else if (dx || dy) {
        const from = `translate(${dx}px, ${dy}px) ${to}`;
        tile.animate([{ transform: from, zIndex: 2 }, { transform: to, zIndex: 2 }], { duration: 220, easing: "cubic-bezier(.2,.7,.2,1)" });
      }
    }
  }

  section(key) {
    return this.sections.find((section) => section.key === key);
  }

  tileAt(key, index) {
    const section = this.section(key);
    if (!section || section.rows[index] === undefined) return null;
    return this.tiles.get(`${key} ${this.state.image[section.rows[index]]}`) || null;
  }

  /** Scroll so that a tile is on the screen, and return its tile. */
  reveal(key, index) {
    const section = this.section(key);
    if (!section || index >= section.shown) return null;
    const y = section.top + Math.floor(index / this.columns) * this.line + this.element.offsetTop;
    const view = this.scroller, margin = 64;
    if (y < view.scrollTop + margin) view.scrollTop = y - margin;
    else if (y + this.side > view.scrollTop + view.clientHeight - 96) view.scrollTop = y + this.side - view.clientHeight + 96;
    this.render();
    return this.tileAt(key, index);
  }

  /** Images of the tiles that a box touches, by geometry: they need not be on the screen. */
  inside(box) {
    const images = [];
    for (const section of this.sections) {
      const first = Math.max(0, Math.floor((box.top - section.top + GAP) / this.line));
      const last = Math.floor((box.bottom - section.top) / this.line);
      const left = Math.max(0, Math.floor((box.left + GAP) / this.pitch));
      const right = Math.min(this.columns - 1, Math.floor(box.right / this.pitch));
      for (let line = first; line <= last; line++) {
        for (let column = left; column <= right; column++) {
          const index = line * this.columns + column;
          if (index < section.shown) images.push(this.state.image[section.rows[index]]);
          if (images.length > MOST_IN_BOX) return images;
        }
      }
    }
    return images;
  }
}
