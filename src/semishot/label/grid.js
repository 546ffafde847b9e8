// Sections of tiles, of which only those on the screen exist; a tile glides to its new place.

const GAP = 10, SPARE = 2, SETTLE = 60, SLOWEST = 4000;

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
    this.sections.forEach((section, place) => {
      if (this.element.children[place] !== section.root) this.element.insertBefore(section.root, this.element.children[place] || null);
    });
    this.layout();
    if (anchor) this.restore(anchor);
    this.render(true);
    if (before) this.glide(before);
  }

  build() {
    const root = document.createElement("section");
    const head = document.createElement("header");
    const body = document.createElement("div");
    root.className = "part";
    head.className = "part-head";
    body.className = "tiles";
    body.setAttribute("role", "listbox");
    body.setAttribute("aria-multiselectable", "true");
    root.append(head, body);
    return { root, headElement: head, body };
  }

  setSize(size) {
    this.size = size;
    this.relayout();
  }

  relayout() {
    if (!this.sections.length) return;
    const anchor = this.anchor();
    this.layout();
    if (anchor) this.restore(anchor);
    this.render(true);
  }

  layout() {
    const width = this.element.clientWidth;
    this.columns = Math.max(2, Math.floor((width + GAP) / (this.size + GAP)));
    this.side = Math.floor((width - GAP * (this.columns - 1)) / this.columns);
    this.pitch = this.side + GAP;
    this.element.style.setProperty("--side", `${this.side}px`);
    for (const section of this.sections) {
      section.shown = section.limit ? Math.min(section.rows.length, section.limit * this.columns) : section.rows.length;
      const lines = Math.ceil(section.shown / this.columns);
      section.body.style.height = `${Math.max(0, lines * this.pitch - GAP)}px`;
      section.body.hidden = lines === 0;
    }
    const top = this.element.getBoundingClientRect().top - this.scroller.scrollTop;
    for (const section of this.sections) section.top = section.body.getBoundingClientRect().top - top - this.scroller.scrollTop;
    this.offset = this.element.offsetTop;
  }

  anchor() {
    const at = this.scroller.scrollTop - (this.offset || 0);
    if (at <= 0) return null;
    const section = this.sections.findLast((one) => one.top <= at + 60);
    return section ? { key: section.key, by: at - section.top } : null;
  }

  restore({ key, by }) {
    const section = this.sections.find((one) => one.key === key);
    if (section) this.scroller.scrollTop = section.top + by + this.offset;
  }

  /** Where a place of a section is, within the element. */
  spot(section, index) {
    return {
      x: (index % this.columns) * this.pitch,
      y: section.top + Math.floor(index / this.columns) * this.pitch,
    };
  }

  render(repaint = false) {
    const top = this.scroller.scrollTop - this.element.offsetTop;
    const bottom = top + this.scroller.clientHeight;
    const wanted = new Set();
    const fresh = [];
    for (const section of this.sections) {
      const first = Math.max(0, Math.floor((top - section.top) / this.pitch) - SPARE);
      const last = Math.ceil((bottom - section.top) / this.pitch) + SPARE;
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
        if (isNew || repaint || tile.index !== index) this.place(tile, section, index, row);
      }
    }
    for (const [key, tile] of this.tiles) if (!wanted.has(key)) this.drop(tile);
    if (fresh.length) this.load();
    this.shown([...this.tiles.values()]);
  }

  make(key, section, image) {
    const tile = document.createElement("div");
    tile.className = "tile";
    tile.setAttribute("role", "option");
    tile.tabIndex = -1;
    const picture = document.createElement("img");
    picture.alt = "";
    picture.draggable = false;
    picture.decoding = "async";
    const mark = document.createElement("span");
    mark.className = "mark";
    mark.setAttribute("aria-hidden", "true");
    const more = document.createElement("span");
    more.className = "more";
    more.setAttribute("aria-hidden", "true");
    tile.append(picture, mark, more);
    Object.assign(tile, { key, image, picture, mark, more, made: performance.now() });
    this.tiles.set(key, tile);
    section.body.append(tile);
    return tile;
  }

  place(tile, section, index, row) {
    Object.assign(tile, { index, section: section.key, row });
    const x = (index % this.columns) * this.pitch, y = Math.floor(index / this.columns) * this.pitch;
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

  /** Pictures are asked for when scrolling has settled: those that only fly by are not. */
  load() {
    clearTimeout(this.loading);
    this.loading = setTimeout(() => {
      for (const tile of this.tiles.values()) {
        if (tile.picture.hasAttribute("src")) continue;
        tile.picture.onerror = () => tile.classList.add("broken");
        tile.picture.src = `/thumb/${tile.image}?of=${this.state.pile}`;
      }
    }, this.loaded ? SETTLE : 0);
    this.loaded = true;
  }

  /** Ask again for the pictures and names that did not come. */
  retry() {
    for (const tile of this.tiles.values()) {
      if (!tile.classList.contains("broken")) continue;
      tile.classList.remove("broken");
      tile.picture.removeAttribute("src");
    }
    this.load();
    this.shown([...this.tiles.values()]);
  }

  positions() {
    const found = new Map();
    const by = this.scroller.scrollTop;
    for (const tile of this.tiles.values()) {
      const section = this.sections.find((one) => one.key === tile.section);
      if (!section) continue;
      const spot = this.spot(section, tile.index);
      if (!found.has(tile.image)) found.set(tile.image, { x: spot.x, y: spot.y - by, key: tile.key });
    }
    return found;
  }

  glide(before) {
    const by = this.scroller.scrollTop;
    const height = this.scroller.clientHeight;
    for (const tile of this.tiles.values()) {
      const section = this.sections.find((one) => one.key === tile.section);
      const now = this.spot(section, tile.index);
      const was = before.get(tile.image);
      if (!was) {
        tile.animate([{ opacity: 0 }, { opacity: 1 }], { duration: 160 });
        continue;
      }
      const dx = was.x - now.x, dy = was.y - (now.y - by);
      if ((dx || dy) && Math.abs(dy) < height * 2) {
        const to = tile.style.transform;
        const from = `translate(${dx}px, ${dy}px) ${to}`;
        tile.animate([{ transform: from, zIndex: 2 }, { transform: to, zIndex: 2 }], { duration: 220, easing: "cubic-bezier(.2,.7,.2,1)" });
      }
    }
  }

  section(key) {
    return this.sections.find((one) => one.key === key);
  }

  tileAt(key, index) {
    const section = this.section(key);
    if (!section || section.rows[index] === undefined) return null;
    return this.tiles.get(`${key} ${this.state.image[section.rows[index]]}`) || null;
  }

  /** Scroll so that a place of a section is on the screen, and return its tile. */
  reveal(key, index) {
    const section = this.section(key);
    if (!section) return null;
    if (index >= section.shown) return null;
    const y = this.spot(section, index).y + this.element.offsetTop;
    const view = this.scroller;
    const margin = 64;
    if (y < view.scrollTop + margin) view.scrollTop = y - margin;
    else if (y + this.side > view.scrollTop + view.clientHeight - 96) view.scrollTop = y + this.side - view.clientHeight + 96;
    this.render();
    return this.tileAt(key, index);
  }

  /** Images of the tiles that a box touches, by geometry: they need not be on the screen. */
  inside(box) {
    const found = [];
    for (const section of this.sections) {
      const first = Math.max(0, Math.floor((box.top - section.top + GAP) / this.pitch));
      const last = Math.floor((box.bottom - section.top) / this.pitch);
      const left = Math.max(0, Math.floor((box.left + GAP) / this.pitch));
      const right = Math.min(this.columns - 1, Math.floor(box.right / this.pitch));
      for (let line = first; line <= last; line++) {
        for (let column = left; column <= right; column++) {
          const index = line * this.columns + column;
          if (index < section.shown) found.push(this.state.image[section.rows[index]]);
          if (found.length > SLOWEST) return found;
        }
      }
    }
    return found;
  }
}
