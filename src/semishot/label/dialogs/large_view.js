// The large picture: what is known of one image, and its answers.

import { answerButtons } from "/answer_buttons.js";
import { answer, does } from "/answers.js";
import { toast } from "/messages.js";
import { moveTo } from "/moving.js";
import { NONE, UNKNOWN } from "/state.js";
import { stateOf } from "/tiles.js";
import { $, colorOf, counted, element, percent, plainText } from "/words.js";

/** What opens it at an index of a section, what steps to a neighbour, and the image it shows. */
export function largeView(page) {
  const { grid, names } = page;
  let big = { section: "", index: 0, image: 0 };
  function open(section, index) {
    const held = grid.section(section);
    if (!held || held.rows[index] === undefined) return;
    big = { section, index, image: page.state.image[held.rows[index]] };
    if (!$("large").open) $("large").showModal();
    draw();
  }
  async function draw() {
    const state = page.state, image = big.image, row = state.rowOf.get(image);
    $("large-image").src = `/large/${image}?of=${state.pile}`;
    $("large-image").alt = names.get(image) || `image ${image}`;
    $("large-name").textContent = names.get(image) || `image ${image}`;
    describe(row);
    $("large-shares").replaceChildren();
    $("large-copies").replaceChildren();
    const response = await fetch(`/image/${image}`);
    if (!response.ok || big.image !== image) return;
    const about = await response.json();
    $("large-name").textContent = plainText(about.files[0] || `image ${image}`);
    if (!state.isSaid(row)) {
      const shares = [...about.shares.filter(([, p]) => p >= 0.01).map(([id, p]) => [state.index(id), p]), ...(about.shares.length ? [[NONE, state.stranger[row] / 255]] : [])];
      shares.sort((a, b) => b[1] - a[1]);
      $("large-shares").replaceChildren(...shares.slice(0, 5).map(([index, p]) => {
        const line = element("span");
        const dot = element("i");
        dot.style.setProperty("--color", colorOf(index));
        line.append(dot, element("bdi", "", state.className(index)), percent(p * 255));
        return line;
      }));
    }
    const copies = about.files.length - 1, near = (state.stack.get(state.group[row]) || 1) - 1;
    if (copies > 0) $("large-copies").append(`${counted(copies, "exact copy", "exact copies")}: ${about.files.slice(1, 4).map(plainText).join(", ")} `);
    if (near > 0) {
      const apart = element("button", "", "They differ: separate them");
      apart.type = "button";
      apart.addEventListener("click", async () => {
        const group = state.group[row], images = [];
        for (let r = 0; r < state.rows; r++) if (state.group[r] === group) images.push(state.image[r]);
        try {
          await page.outbox.add({ kind: "apart", images });
          toast("Separated");
        } catch (error) { toast(error.message); }
      });
      $("large-copies").append(`${counted(near, "near copy", "near copies")}, labeled together`, apart);
    }
  }
  function describe(row) {
    const state = page.state, { kind, where } = stateOf(state, row);
    const chance = percent(where === NONE ? state.stranger[row] : state.sure[row]);
    const before = { said: "✓ confirmed: ", ask: where === UNKNOWN ? "? worth asking" : "? worth asking; guessed: ", guess: "guessed: ", open: "not sorted yet" }[kind];
    $("large-state").replaceChildren(before, ...(where === UNKNOWN ? [] : [element("bdi", "", state.className(where)), kind === "said" ? "" : `, ${chance}`]));
    $("large-answers").replaceChildren(...answerButtons(page, [big.image], state.isSaid(row) ? where : undefined));
  }
  function step(by) {
    const held = grid.section(big.section);
    if (!held || !held.rows.length) { $("large").close(); return; }
    const here = held.rows.indexOf(page.state.rowOf.get(big.image));
    const to = here < 0 ? Math.min(big.index, held.rows.length - 1) : here + by;
    if (held.rows[to] === undefined) { toast(by > 0 ? "That was the last." : "That is the first."); return; }
    big = { section: big.section, index: to, image: page.state.image[held.rows[to]] };
    if (to < held.shown) moveTo(page, big.section, to);
    draw();
  }
  $("large-back").addEventListener("click", () => step(-1));
  $("large-on").addEventListener("click", () => step(1));
  $("large-answers").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.answer) answer(page, Number(button.dataset.answer), [big.image]);
    else does(page, button.dataset.does, [big.image]);
  });
  document.addEventListener("drawn", () => {
    const row = $("large").open ? page.state.rowOf.get(big.image) : undefined;
    if (row === undefined) return;
    const focused = document.activeElement?.dataset || {};
    describe(row); // classes may have come or gone
    const same = [...$("large-answers").querySelectorAll("button")].find((one) => one.dataset.answer === focused.answer && one.dataset.does === focused.does);
    if (focused.answer || focused.does) same?.focus();
  });
  document.addEventListener("answered", () => { if ($("large").open) queueMicrotask(() => step(1)); });
  $("large").addEventListener("close", () => {
    const held = grid.section(big.section);
    if (held && big.index < held.shown) moveTo(page, big.section, big.index);
  });

  return { open, step, image: () => big.image };
}
