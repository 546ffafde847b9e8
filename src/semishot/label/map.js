// The map: every image a point near those it resembles, colored by class; a lasso selects.

import { $, colorOf, counted, on, percent } from "/dom.js";
import { toggle } from "/navigation.js";
import { NONE, STEPS, UNKNOWN } from "/state.js";
import { draw as drawPage } from "/views.js";

const DOT = 3, MOST_ZOOM = 60, NEAR = 9, MARGIN = 24;

/** The place of each image is asked for when the map is shown first. */
export function mapView(page) {
  const canvas = $("map"), context = canvas.getContext("2d");
  let places = null, placed = "", asking = false, view = null, whole = 1, extent = { x: 1, y: 1 }, lasso = null, drag = null, waiting = false, colors = new Map();

  async function fetchPlaces() {
    if (asking) return;
    asking = true;
    $("map-text").textContent = "Laying out the map…";
    try {
      const response = await fetch("/map");
      if (!response.ok) throw new Error(response.statusText);
      places = new Float32Array(await response.arrayBuffer());
      placed = `${page.state.epoch} ${places.length / 2}`;
      extent = { x: 1e-9, y: 1e-9 };
      for (let i = 0; i < places.length; i += 2) extent = { x: Math.max(extent.x, places[i]), y: Math.max(extent.y, places[i + 1]) };
      fit();
      drawPage(page, false);
    } catch { $("map-text").textContent = "The server does not answer."; } finally { asking = false; }
  }

  function refresh() {
    if (!waiting) requestAnimationFrame(() => { waiting = false; paint(); });
    waiting = true;
  }

  /** Where a row is on the canvas. */
  function at(row) {
    return [view.x + places[2 * row] * view.scale, view.y + places[2 * row + 1] * view.scale];
  }

  /** The whole map, in the middle. */
  function fit() {
    const { clientWidth: width, clientHeight: height } = canvas;
    const scale = Math.min((width - 2 * MARGIN) / extent.x, (height - 2 * MARGIN) / extent.y);
    view = { scale, x: (width - extent.x * scale) / 2, y: (height - extent.y * scale) / 2 };
    whole = scale;
  }

  function paint() {
    if (page.view !== "map" || !places) return;
    const { state, selected } = page, ratio = devicePixelRatio, width = canvas.clientWidth, height = canvas.clientHeight, style = getComputedStyle(canvas);
    if (canvas.width !== width * ratio || canvas.height !== height * ratio) Object.assign(canvas, { width: width * ratio, height: height * ratio });
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const seen = new Map(), count = Math.min(state.rows, places.length / 2);
    for (let row = 0; row < count; row++) {
      const [x, y] = at(row);
      if (x < -DOT || y < -DOT || x > width + DOT || y > height + DOT) continue;
      const where = state.shownIn(row), unsure = state.chance(row) < 0.7 * STEPS && where !== UNKNOWN, key = 2 * where + unsure;
      if (!seen.has(key)) seen.set(key, { where, unsure, rows: [] });
      seen.get(key).rows.push(row, x, y);
    }
    for (const { where, unsure, rows } of seen.values()) {
      const name = where < 0 ? "--soft" : colorOf(state, where).slice(4, -1);
      if (!colors.has(name)) colors.set(name, style.getPropertyValue(name));
      context.fillStyle = context.strokeStyle = colors.get(name);
      context.globalAlpha = where === NONE || where === UNKNOWN ? 0.55 : 1;
      context.beginPath();
      for (let i = 0; i < rows.length; i += 3) {
        const size = unsure ? DOT - 1 : DOT;
        context.rect(rows[i + 1] - size, rows[i + 2] - size, 2 * size, 2 * size);
      }
      if (unsure) { context.lineWidth = 1.4; context.stroke(); } else context.fill();
    }
    context.globalAlpha = 1;
    context.strokeStyle = style.getPropertyValue("--ring");
    context.lineWidth = 2;
    context.beginPath();
    for (const image of selected) {
      const row = state.rowOf.get(image);
      if (row >= count) continue;
      const [x, y] = at(row), size = DOT + 2.5;
      context.rect(x - size, y - size, 2 * size, 2 * size);
    }
    context.stroke();
    if (!lasso) return;
    context.beginPath();
    for (const [x, y] of lasso) context.lineTo(x, y);
    context.closePath();
    context.stroke();
  }

  /** The row whose point is nearest to a place, if it is near. */
  function rowAt(x, y) {
    let best = -1, least = NEAR ** 2;
    for (let row = 0; row < Math.min(page.state.rows, places.length / 2); row++) {
      const [px, py] = at(row), apart = (px - x) ** 2 + (py - y) ** 2;
      if (apart < least) [best, least] = [row, apart];
    }
    return best;
  }

  function select() {
    const path = new Path2D(), { state, selected } = page;
    for (const [x, y] of lasso) path.lineTo(x, y);
    path.closePath();
    context.setTransform(1, 0, 0, 1, 0, 0);
    for (let row = 0; row < Math.min(state.rows, places.length / 2); row++) if (state.hasTile(row) && context.isPointInPath(path, ...at(row))) selected.add(state.image[row]);
    page.lassoed = [...selected];
    drawPage(page, false);
  }

  function hover(x, y) {
    const row = rowAt(x, y), { state, names } = page, tip = $("map-tip");
    tip.hidden = row < 0;
    if (row < 0) return;
    const where = state.shownIn(row), image = state.image[row];
    tip.querySelector("img").src = `/thumb/${image}?of=${state.pile}`;
    tip.querySelector("b").textContent = state.isConfirmed(row) ? `✓ ${state.className(where)}` : where === UNKNOWN ? "not sorted" : `${state.className(where)}, ${percent(state.chance(row))}`;
    tip.querySelector("span").textContent = names.get(image)?.split("/").at(-1) || "";
    tip.style.transform = `translate(${Math.min(x + 16, canvas.clientWidth - 180)}px, ${Math.min(y + 16, canvas.clientHeight - 190)}px)`;
  }

  const point = ({ offsetX, offsetY }) => [offsetX, offsetY];
  on("map", "pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    if (event.button === 0) {
      if (!event.shiftKey) page.selected.clear();
      lasso = [point(event)];
    } else drag = { x: event.clientX, y: event.clientY };
  });
  on("map", "pointermove", (event) => {
    if (lasso) lasso.push(point(event));
    else if (drag) {
      view = { ...view, x: view.x + event.clientX - drag.x, y: view.y + event.clientY - drag.y };
      drag = { x: event.clientX, y: event.clientY };
    } else { if (places) hover(...point(event)); return; }
    $("map-tip").hidden = true;
    refresh();
  });
  on("map", "pointerup", (event) => {
    const drawn = lasso;
    drag = null;
    if (!drawn || !places) return;
    if (drawn.length < 4) {
      const row = rowAt(...point(event));
      lasso = null;
      if (row >= 0) toggle(page.selected, page.state.image[row]);
      page.lassoed = [...page.selected];
      drawPage(page, false);
    } else { select(); lasso = null; }
    refresh();
  });
  on("map", "pointerleave", () => { $("map-tip").hidden = true; });
  on("map", "contextmenu", (event) => event.preventDefault());
  on("map", "wheel", (event) => {
    event.preventDefault();
    if (!places) return;
    const scale = Math.max(whole, Math.min(MOST_ZOOM * whole, view.scale * Math.exp(-event.deltaY / 400))), by = scale / view.scale, [x, y] = point(event);
    if (scale === whole) fit();
    else view = { scale, x: x - (x - view.x) * by, y: y - (y - view.y) * by };
    refresh();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colors = new Map(); refresh(); });
  document.addEventListener("drawn", () => {
    $("map-card").hidden = page.view !== "map";
    if (page.view !== "map") return;
    if (placed !== `${page.state.epoch} ${page.state.rows}`) fetchPlaces();
    const { selected, state } = page;
    if (places) $("map-text").textContent = selected.size ? `${counted(selected.size, "image")} selected; answer below, or click to take out.` : `${counted(state.rows, "image")}. Filled: sure; hollow: less sure; gray: strangers.`;
    refresh();
  });
  new ResizeObserver(() => { if (places && canvas.clientWidth) { fit(); refresh(); } }).observe(canvas);
}
