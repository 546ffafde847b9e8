// The large picture: what is known of one image, and its answers.

import { answerButtons, press } from "/answers.js";
import { $, button, colorOf, counted, element, on, percent, plainText, toast } from "/dom.js";
import { moveTo } from "/navigation.js";
import { NONE, UNKNOWN } from "/state.js";
import { knownOf } from "/tiles.js";

/** What opens it at an index of a section, what steps to a neighbour, and the image it shows. */
export function largeView(page) {
  const { grid, names } = page;
  let big = { section: "", index: 0, image: 0 };
  function open(section, index) {
    const row = grid.section(section)?.rows[index];
    if (row === undefined) return;
    big = { section, index, image: page.state.image[row] };
    if (!$("large").open) $("large").showModal();
    draw();
  }
  async function draw() {
    const state = page.state, image = big.image, row = state.rowOf.get(image);
    $("large-image").src = `/large/${image}?of=${state.pile}`;
    $("large-image").alt = $("large-name").textContent = names.get(image) || `image ${image}`;
    describe(row);
    for (const id of ["large-shares", "large-copies"]) $(id).replaceChildren();
    const response = await fetch(`/image/${image}`);
    if (!response.ok || big.image !== image) return;
    const about = await response.json();
    $("large-name").textContent = plainText(about.files[0] || `image ${image}`);
    if (!state.isConfirmed(row)) {
      const shares = [...about.shares.filter(([, p]) => p >= 0.01).map(([id, p]) => [state.index(id), p]), ...(about.shares.length ? [[NONE, state.stranger[row] / 255]] : [])];
      shares.sort((a, b) => b[1] - a[1]);
      $("large-shares").replaceChildren(...shares.slice(0, 5).map(([index, p]) => {
        const line = element("span"), dot = element("i");
        dot.style.setProperty("--color", colorOf(index));
        line.append(dot, element("bdi", "", state.className(index)), percent(p * 255));
        return line;
      }));
    }
    const copies = about.files.length - 1, near = (state.stack.get(state.group[row]) || 1) - 1;
    if (copies > 0) $("large-copies").append(`${counted(copies, "exact copy", "exact copies")}: ${about.files.slice(1, 4).map(plainText).join(", ")} `);
    if (near > 0) {
      const apart = button("", "They differ: separate them");
      apart.addEventListener("click", () => {
        const images = [...state.image].filter((_, r) => state.group[r] === state.group[row]);
        page.outbox.add({ kind: "apart", images }).then(() => toast("Separated"), (error) => toast(error.message));
      });
      $("large-copies").append(`${counted(near, "near copy", "near copies")}, labeled together`, apart);
    }
  }
  function describe(row) {
    const state = page.state, { kind, where } = knownOf(state, row);
    const chance = percent(where === NONE ? state.stranger[row] : state.sure[row]);
    const before = { confirmed: "✓ confirmed: ", ask: where === UNKNOWN ? "? worth asking" : "? worth asking; guessed: ", guess: "guessed: ", open: "not sorted yet" }[kind];
    $("large-state").replaceChildren(before, ...(where === UNKNOWN ? [] : [element("bdi", "", state.className(where)), kind === "confirmed" ? "" : `, ${chance}`]));
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
  return { open, step, image: () => big.image };
}
