// One picture at a time: the large view of a tile, and the audit.

import { Answers, accept, notThis, send } from "/answers.js";
import { $, colorOf, complain, counted, html, Icon, known, nameOf, number, percent, pictureOf } from "/dom.js";
import { close, stepLarge } from "/navigation.js";
import { fetchState, outbox, post } from "/server.js";
import { NONE, page, STEPS, toJudge } from "/state.js";
import { Dialog } from "/dialogs.js";

const SIGNS = { confirmed: "✓", ask: "?" };
const MOST_COPIES = 6, MOST_ZOOM = 12, MOST_SHARES = 5;
const BUTTONS = [
  ["back", "Previous picture", () => stepLarge(-1)],
  ["on", "Next picture", () => stepLarge(1)],
  ["close", "Close", close],
];

/** Zoom so that what is at this place of the window stays there. */
export function zoomTo(to, x = innerWidth / 2, y = innerHeight / 2) {
  const { large } = page, box = $("large-image").parentElement.getBoundingClientRect();
  const scale = Math.max(1, Math.min(MOST_ZOOM, to)), by = scale / large.zoom.scale;
  const at = { x: x - box.left - box.width / 2, y: y - box.top - box.height / 2 };
  const moved = { scale, x: at.x - (at.x - large.zoom.x) * by, y: at.y - (at.y - large.zoom.y) * by };
  large.zoom = scale === 1 ? { scale, x: 0, y: 0 } : moved;
  page.paint();
}

const zooming = {
  onWheel(event) {
    event.preventDefault();
    zoomTo(page.large.zoom.scale * Math.exp(-event.deltaY / 300), event.clientX, event.clientY);
  },
  onDblClick: ({ clientX, clientY }) => zoomTo(page.large.zoom.scale > 1 ? 1 : 3, clientX, clientY),
  onPointerDown: ({ target, pointerId }) => { if (page.large.zoom.scale > 1) target.setPointerCapture(pointerId); },
  onPointerMove({ buttons, movementX, movementY }) {
    const { zoom } = page.large;
    if (!buttons || zoom.scale === 1) return;
    page.large.zoom = { ...zoom, x: zoom.x + movementX, y: zoom.y + movementY };
    page.paint();
  },
};

export function LargeView() {
  const { state, large } = page, { image, other = image, files = [], zoom } = large, row = state.rowOf.get(image);
  const style = { transform: `translate(${zoom.x}px, ${zoom.y}px) scale(${zoom.scale})` };
  const name = files[0] || nameOf(image), isConfirmed = state.isConfirmed(row);
  return html`<${Dialog} id="large" class="large ${zoom.scale > 1 ? "zoomed" : ""}" aria-label="Picture">
    <figure tabindex="-1" autofocus>
      <img id="large-image" key=${image} alt=${name} src=${pictureOf(other, "large")} style=${style} ...${zooming} />
      <figcaption>
        <div class="about">
          <strong id="large-name">${name}</strong>
          <span id="large-state"><bdi>${SIGNS[state.kindOf(row)]} ${known(row)}</bdi></span>
        </div>
        ${!isConfirmed && html`<${Shares} row=${row} />`}
        <${Copies} row=${row} />
      </figcaption>
    </figure>
    <${Answers} id="large-answers" role="toolbar" aria-label="Answer" images=${[image]}
      pressed=${isConfirmed ? state.shownIn(row) : undefined} />
    ${BUTTONS.map(([icon, label, does]) => html`
      <button class="step ${icon}" aria-label=${label} onClick=${does}><${Icon} of=${icon} /></button>`)}
  <//>`;
}

/** The likeliest answers. */
function Shares({ row }) {
  const { state, large: { shares = [] } } = page;
  const all = shares.filter(([, p]) => p >= 0.01).map(([id, p]) => [state.index(id), p]);
  if (shares.length) all.push([NONE, state.stranger[row] / STEPS]);
  all.sort((a, b) => b[1] - a[1]);
  return html`<div class="shares">${all.slice(0, MOST_SHARES).map(([index, p]) => html`<span>
    <i style=${{ "--color": colorOf(index) }} /><bdi>${state.className(index)}</bdi>${percent(p * STEPS)}
  </span>`)}</div>`;
}

/** Files with the same image, and images that look the same. */
function Copies({ row }) {
  const { state, large } = page, [, ...exact] = large.files || [], near = (state.stack.get(state.group[row]) || 1) - 1;
  const group = near > 0 ? [...state.image].filter((_, other) => state.group[other] === state.group[row]) : [];
  const look = (other) => { large.other = other; page.paint(); };
  const separate = () => send({ kind: "apart", images: group }, "Separated", true).catch(complain);
  return html`<div class="copies">
    ${exact.length > 0 && `${counted(exact.length, "exact copy", "exact copies")}: ${exact.slice(0, 3).join(", ")} `}
    ${group.filter((other) => other !== large.image).slice(0, MOST_COPIES).map((other) => html`
      <img src=${pictureOf(other, "thumb")} alt=${nameOf(other)} onClick=${() => look(other)} />`)}
    ${near > 0 && `${counted(near, "near copy", "near copies")}, labeled together`}
    ${near > 0 && html`<button onClick=${separate}>They differ: separate them</button>`}
  </div>`;
}

/* The audit: one image of a random sample at a time, right or wrong */

const begin = () => post("/audit").then(({ event }) => {
  outbox.last = Math.max(outbox.last, event);
  fetchState();
}).catch(complain);

export function Audit() {
  const { state } = page, { audit } = state, [[image, decision] = [], [next] = []] = toJudge();
  const question = decision === 0 ? "A stranger?" : `${state.className(state.index(decision))}?`;
  if (next) new Image().src = pictureOf(next, "large"); // so that it is there at once
  return html`<section class="audit" aria-label="Check">
    ${image && html`<img id="audit-image" key=${image} alt=${nameOf(image)} src=${pictureOf(image, "large")} />`}
    <div>
      ${(image || audit) && html`<h3 id="audit-question">${image ? question : "All of it has been looked at."}</h3>`}
      ${image && html`<div class="row" id="audit-answers">
        <button class="primary" onClick=${() => accept([image])}>Right <kbd>↵</kbd></button>
        <button onClick=${() => notThis([image])}>Wrong <kbd>-</kbd></button>
      </div>`}
      <p id="audit-text">${soFar(audit)}</p>
      ${!image && html`
        <button id="audit-begin" class="primary" onClick=${begin}>${audit ? "Begin again" : "Begin"}</button>`}
    </div>
  </section>`;
}

function soFar(audit) {
  if (!audit) return "About sixty in a row without a mistake show that 95 % are right.";
  const { looked_at, wrong, unconfirmed, changed } = audit;
  const text = `${counted(looked_at, "image")} looked at, ${wrong} wrong, of ${number(unconfirmed)}.`;
  if (!changed) return text;
  const count = changed === 1 ? "counts" : "count";
  const change = `${counted(changed, "decision")} changed since it began, and ${count} as wrong`;
  return `${text} ${change}; begin again when that matters.`;
}
