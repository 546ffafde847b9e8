// The large picture: what is known of one image, and its answers.

import { answerButtons, press, step as stepBack } from "/answers.js";
import { $, button, colorOf, counted, element, number, on, percent, plainText, toast } from "/dom.js";
import { moveTo, toJudge } from "/navigation.js";
import { post } from "/server.js";
import { NONE, STEPS, UNKNOWN } from "/state.js";
import { knownOf } from "/views.js";

const MOST_COPIES = 6, MOST_ZOOM = 12;

/** What opens it at an index of a section, what steps to a neighbour, and the image it shows. */
export function largeView(page) {
  const { grid, names } = page;
  let big = { section: "", index: 0, image: 0 }, view = { scale: 1, x: 0, y: 0 };
  /** Zoom so that what is at this place of the window stays there. */
  function zoomTo(scale, x = innerWidth / 2, y = innerHeight / 2) {
    const box = $("large-image").parentElement.getBoundingClientRect(), by = (scale = Math.max(1, Math.min(MOST_ZOOM, scale))) / view.scale;
    const at = { x: x - box.left - box.width / 2, y: y - box.top - box.height / 2 };
    view = scale === 1 ? { scale: 1, x: 0, y: 0 } : { scale, x: at.x - (at.x - view.x) * by, y: at.y - (at.y - view.y) * by };
    place();
  }
  function place() {
    $("large-image").style.transform = `translate(${view.x}px, ${view.y}px) scale(${view.scale})`;
    $("large").classList.toggle("zoomed", view.scale > 1);
  }
  on("large-image", "wheel", (event) => { event.preventDefault(); zoomTo(view.scale * Math.exp(-event.deltaY / 300), event.clientX, event.clientY); });
  on("large-image", "dblclick", ({ clientX, clientY }) => zoomTo(view.scale > 1 ? 1 : 3, clientX, clientY));
  on("large-image", "pointerdown", (event) => { if (view.scale > 1) $("large-image").setPointerCapture(event.pointerId); });
  on("large-image", "pointermove", (event) => {
    if (!event.buttons || view.scale === 1) return;
    view = { ...view, x: view.x + event.movementX, y: view.y + event.movementY };
    place();
  });
  function open(section, index) {
    const row = grid.section(section)?.rows[index];
    if (row === undefined) return;
    big = { section, index, image: page.state.image[row] };
    if (!$("large").open) $("large").showModal();
    draw();
  }
  async function draw() {
    const state = page.state, image = big.image, row = state.rowOf.get(image);
    zoomTo(1);
    $("large-image").src = `/large/${image}?of=${state.pile}`;
    $("large-image").alt = $("large-name").textContent = names.get(image) || `image ${image}`;
    describe(row);
    for (const id of ["large-shares", "large-copies"]) $(id).replaceChildren();
    const response = await fetch(`/image/${image}`);
    if (!response.ok || big.image !== image) return;
    const about = await response.json();
    $("large-name").textContent = plainText(about.files[0] || `image ${image}`);
    if (!state.isConfirmed(row)) {
      const shares = [...about.shares.filter(([, p]) => p >= 0.01).map(([id, p]) => [state.index(id), p]), ...(about.shares.length ? [[NONE, state.stranger[row] / STEPS]] : [])];
      shares.sort((a, b) => b[1] - a[1]);
      $("large-shares").replaceChildren(...shares.slice(0, 5).map(([index, p]) => {
        const line = element("span"), dot = element("i");
        dot.style.setProperty("--color", colorOf(state, index));
        line.append(dot, element("bdi", "", state.className(index)), percent(p * STEPS));
        return line;
      }));
    }
    const copies = about.files.length - 1, near = (state.stack.get(state.group[row]) || 1) - 1;
    if (copies > 0) $("large-copies").append(`${counted(copies, "exact copy", "exact copies")}: ${about.files.slice(1, 4).map(plainText).join(", ")} `);
    if (near > 0) {
      const apart = button("", "They differ: separate them"), images = [...state.image].filter((_, r) => state.group[r] === state.group[row]);
      apart.addEventListener("click", () => {
        page.outbox.add({ kind: "apart", images }).then(() => toast("Separated", () => stepBack(page, "undo")), (error) => toast(error.message));
      });
      const others = images.filter((other) => other !== image).slice(0, MOST_COPIES).map((other) => {
        const small = Object.assign(element("img"), { src: `/thumb/${other}?of=${state.pile}`, alt: names.get(other) || `image ${other}` });
        small.addEventListener("click", () => { $("large-image").src = `/large/${other}?of=${state.pile}`; });
        return small;
      });
      $("large-copies").append(...others, `${counted(near, "near copy", "near copies")}, labeled together`, apart);
    }
  }
  function describe(row) {
    const state = page.state, { kind, where } = knownOf(state, row);
    const before = { confirmed: "✓ confirmed: ", ask: where === UNKNOWN ? "? worth asking" : "? worth asking; guessed: ", guess: "guessed: ", open: "not sorted yet" }[kind];
    $("large-state").replaceChildren(before, ...(where === UNKNOWN ? [] : [element("bdi", "", state.className(where)), kind === "confirmed" ? "" : `, ${percent(state.chance(row))}`]));
    $("large-answers").replaceChildren(...answerButtons(page, [big.image], state.isConfirmed(row) ? where : undefined));
  }
  function step(by) {
    const section = grid.section(big.section);
    if (!section || !section.rows.length) { $("large").close(); return; }
    const here = section.rows.indexOf(page.state.rowOf.get(big.image));
    const to = here < 0 ? Math.min(big.index, section.rows.length - 1) : here + by;
    if (section.rows[to] === undefined) { toast(by > 0 ? "That was the last." : "That is the first."); return; }
    big = { section: big.section, index: to, image: page.state.image[section.rows[to]] };
    if (to < section.shown) moveTo(page, big.section, to);
    draw();
  }
  on("large-back", "click", () => step(-1));
  on("large-on", "click", () => step(1));
  on("large-answers", "click", (event) => {
    const pressed = event.target.closest("button");
    if (pressed) press(pressed, page, [big.image]);
  });
  document.addEventListener("drawn", () => {
    const row = $("large").open ? page.state.rowOf.get(big.image) : undefined;
    if (row === undefined) return;
    const focused = document.activeElement?.dataset || {};
    describe(row); // classes may have come or gone
    const same = [...$("large-answers").querySelectorAll("button")].find(({ dataset }) => dataset.answer === focused.answer && dataset.does === focused.does);
    if (focused.answer || focused.does) same?.focus();
  });
  document.addEventListener("answered", () => { if ($("large").open) queueMicrotask(() => step(1)); });
  on("large", "close", () => {
    if (big.index < grid.section(big.section)?.shown) moveTo(page, big.section, big.index);
  });
  return { open, step, image: () => big.image, zoom: () => zoomTo(view.scale > 1 ? 1 : 3) };
}

/** An audit: one image of a random sample at a time, right or wrong. */
export function auditView(page) {
  on("audit-begin", "click", async () => {
    try {
      page.outbox.last = Math.max(page.outbox.last, (await post("/audit", {})).event);
      page.server.fetchState();
    } catch (error) { toast(error.message); }
  });
  on("audit-answers", "click", (event) => {
    const pressed = event.target.closest("button");
    if (pressed) press(pressed, page);
  });
  document.addEventListener("drawn", () => {
    const { state, view } = page, { audit } = state;
    $("audit").hidden = view !== "audit";
    if (view !== "audit") return;
    const [[image, decision] = []] = audit ? toJudge(page) : [];
    for (const id of ["audit-image", "audit-answers"]) $(id).hidden = !image;
    $("audit-begin").hidden = Boolean(image);
    $("audit-begin").textContent = audit ? "Begin again" : "Begin";
    const index = decision === 0 ? NONE : state.index(decision);
    $("audit-question").textContent = image ? (index === NONE ? "A stranger?" : `${state.className(index)}?`) : audit ? "All of it has been looked at." : "";
    const left = audit ? `${counted(audit.looked_at, "image")} looked at, ${audit.wrong} wrong, of ${number(audit.unconfirmed)}.` : "About sixty in a row without a mistake show that 95 % are right.";
    $("audit-text").textContent = audit?.changed ? `${left} ${counted(audit.changed, "decision")} changed since it began, and ${audit.changed === 1 ? "counts" : "count"} as wrong; begin again when that matters.` : left;
    if (!image) return;
    $("audit-image").src = `/large/${image}?of=${state.pile}`;
    $("audit-image").alt = page.names.get(image) || `image ${image}`;
    const [, next] = toJudge(page);
    if (next) new Image().src = `/large/${next[0]}?of=${state.pile}`; // so that it is there at once
  });
}
