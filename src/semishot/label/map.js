// The map: every image a point near those it resembles, colored by class; a lasso selects.

import { $, colorOf, counted, html, known, pictureOf } from "/dom.js";
import { Component } from "/preact.js";
import { page, STEPS, UNKNOWN } from "/state.js";

const DOT = 3, RING = 2, MOST_ZOOM = 60, NEAR = 9, MARGIN = 24, SURE = 0.7;
const dark = matchMedia("(prefers-color-scheme: dark)");
const WORDS = "Every image as a point; the lists at the side show the same images";

let places = new Float32Array(0), placed = ""; // x and y of each row, between 0 and 1, and which state they are of

export class MapView extends Component {
  state = { problem: "", tip: null };

  componentDidMount() {
    this.canvas = $("map");
    this.pen = this.canvas.getContext("2d");
    this.sized = new ResizeObserver(() => { this.fit(); this.refresh(); });
    this.sized.observe(this.canvas);
    this.recolor = () => { this.of = null; this.refresh(); };
    dark.addEventListener("change", this.recolor);
    this.componentDidUpdate();
  }

  componentWillUnmount() {
    this.sized.disconnect();
    dark.removeEventListener("change", this.recolor);
  }

  componentDidUpdate() {
    if (placed !== `${page.state.epoch} ${page.state.rows}`) this.fetchPlaces();
    this.refresh();
  }

  async fetchPlaces() {
    if (this.asking) return;
    this.asking = true;
    const { epoch } = page.state, response = await fetch("/map").catch(() => null);
    this.asking = false;
    if (!response?.ok) { this.setState({ problem: "The server does not answer." }); return; }
    places = new Float32Array(await response.arrayBuffer());
    placed = `${epoch} ${places.length / 2}`;
    this.of = null;
    this.fit();
    this.setState({ problem: "" });
  }

  refresh() {
    if (!this.waiting) requestAnimationFrame(() => { this.waiting = false; this.paint(); });
    this.waiting = true;
  }

  /** The whole map, in the middle. */
  fit() {
    const { clientWidth: width, clientHeight: height } = this.canvas, extent = [1e-9, 1e-9];
    places.forEach((value, i) => { extent[i % 2] = Math.max(extent[i % 2], value); });
    const scale = Math.min((width - 2 * MARGIN) / extent[0], (height - 2 * MARGIN) / extent[1]);
    this.whole = scale;
    this.view = { scale, x: (width - extent[0] * scale) / 2, y: (height - extent[1] * scale) / 2 };
  }

  get count() {
    return Math.min(page.state.rows, places.length / 2);
  }

  /** Where a row is on the canvas. */
  at(row) {
    const { x, y, scale } = this.view;
    return [x + places[2 * row] * scale, y + places[2 * row + 1] * scale];
  }

  /** Squares that look the same, in the order of painting; found anew when the page or the selection has changed. */
  looks() {
    const { state, arranged, selected } = page;
    if (this.of === arranged && this.ringed === selected.size) return this.found;
    const rings = state.rowsOf([...selected]).filter((row) => row < this.count), full = new Map(), unsure = [];
    const style = getComputedStyle(this.canvas), color = (name) => style.getPropertyValue(name);
    const look = (name, alpha = 1, size = DOT, rows = []) => ({ color: color(name), alpha, size, rows });
    for (let row = 0; row < this.count; row++) {
      const where = state.shownIn(row);
      if (!full.has(where)) full.set(where, where < 0 ? look("--soft", 0.55) : look(colorOf(where).slice(4, -1)));
      full.get(where).rows.push(row);
      if (where !== UNKNOWN && state.chance(row) < SURE * STEPS) unsure.push(row);
    }
    Object.assign(this, { of: arranged, ringed: selected.size });
    return this.found = [look("--ring", 1, DOT + RING, rings), ...full.values(), look("--card", 1, DOT - 1.4, unsure)];
  }

  paint() {
    if (!this.base?.isConnected || !this.view) return;
    const { canvas, pen, lasso } = this, { x: left, y: top, scale } = this.view;
    const ratio = devicePixelRatio, { clientWidth: width, clientHeight: height } = canvas;
    const pixels = { width: width * ratio, height: height * ratio };
    if (canvas.width !== pixels.width || canvas.height !== pixels.height) Object.assign(canvas, pixels);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    for (const { color, alpha, size, rows } of this.looks()) {
      Object.assign(pen, { fillStyle: color, globalAlpha: alpha });
      for (const row of rows) {
        const x = left + places[2 * row] * scale, y = top + places[2 * row + 1] * scale;
        const isInside = x > -size && y > -size && x < width + size && y < height + size;
        if (isInside) pen.fillRect(x - size, y - size, 2 * size, 2 * size);
      }
    }
    pen.globalAlpha = 1;
    if (!lasso) return;
    Object.assign(pen, { strokeStyle: this.found[0].color, lineWidth: 2 });
    pen.stroke(this.path());
  }

  /** What has been drawn around. */
  path() {
    const path = new Path2D();
    for (const [x, y] of this.lasso) path.lineTo(x, y);
    path.closePath();
    return path;
  }

  /** The row whose point is nearest to a place, if it is near. */
  rowAt(x, y) {
    let best = -1, least = NEAR ** 2;
    for (let row = 0; row < this.count; row++) {
      const [px, py] = this.at(row), apart = (px - x) ** 2 + (py - y) ** 2;
      if (apart < least) [best, least] = [row, apart];
    }
    return best;
  }

  /** Rows with a tile, among those drawn around. */
  inLasso() {
    const path = this.path(), rows = [...Array(this.count).keys()];
    this.pen.setTransform(1, 0, 0, 1, 0, 0);
    return rows.filter((row) => page.state.hasTile(row) && this.pen.isPointInPath(path, ...this.at(row)));
  }

  /** A lasso selects what is in it; a click, what is near. */
  release([x, y]) {
    const { selected, state } = page;
    if (this.lasso.length >= 4) for (const row of this.inLasso()) selected.add(state.image[row]);
    else {
      const image = state.image[this.rowAt(x, y)];
      if (image !== undefined && !selected.delete(image)) selected.add(image);
    }
    page.lassoed = [...selected];
    this.lasso = null;
    page.draw(false);
  }

  listeners = {
    onPointerDown: (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      if (event.button !== 0) { this.dragging = true; return; }
      if (!event.shiftKey) page.selected.clear();
      this.lasso = [point(event)];
    },
    onPointerMove: (event) => {
      if (!this.view) return;
      if (!this.lasso && !this.dragging) { this.setState({ tip: point(event) }); return; }
      if (this.lasso) this.lasso.push(point(event));
      else this.view = { ...this.view, x: this.view.x + event.movementX, y: this.view.y + event.movementY };
      if (this.state.tip) this.setState({ tip: null });
      this.refresh();
    },
    onPointerUp: (event) => {
      this.dragging = false;
      if (this.lasso) this.release(point(event));
    },
    onPointerLeave: () => this.setState({ tip: null }),
    onContextMenu: (event) => event.preventDefault(),
    onWheel: (event) => {
      event.preventDefault();
      const { view, whole } = this, [x, y] = point(event);
      const wanted = view.scale * Math.exp(-event.deltaY / 400);
      const scale = Math.max(whole, Math.min(MOST_ZOOM * whole, wanted)), by = scale / view.scale;
      if (scale === whole) this.fit();
      else this.view = { scale, x: x - (x - view.x) * by, y: y - (y - view.y) * by };
      this.refresh();
    },
  };

  render(_, { problem, tip }) {
    const { state, selected } = page, row = tip ? this.rowAt(...tip) : -1;
    const known = `${counted(state.rows, "image")}. Filled: sure; hollow: less sure; gray: strangers.`;
    const chosen = `${counted(selected.size, "image")} selected; answer below, or click to take out.`;
    const text = problem || (!places.length ? "Laying out the map…" : selected.size ? chosen : known);
    return html`<section class="map" aria-label="Map">
      <canvas id="map" role="img" aria-label=${WORDS} ...${this.listeners} />
      ${row >= 0 && html`<${Tip} row=${row} at=${tip} canvas=${this.canvas} />`}
      <p id="map-text" role="status">${text}</p>
    </section>`;
  }
}

const point = ({ offsetX, offsetY }) => [offsetX, offsetY];

/** What is under the pointer. */
function Tip({ row, at: [x, y], canvas }) {
  const image = page.state.image[row];
  const left = Math.min(x + 16, canvas.clientWidth - 180), top = Math.min(y + 16, canvas.clientHeight - 190);
  return html`<div id="map-tip" style=${{ transform: `translate(${left}px, ${top}px)` }}>
    <img alt="" src=${pictureOf(image, "thumb")} />
    <b>${known(row)}</b>
    <span>${page.names.get(image)?.split("/").at(-1)}</span>
  </div>`;
}
