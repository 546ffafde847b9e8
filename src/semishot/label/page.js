// The page, drawn from the top after each change of what is known or looked at; here its parts come together.

import { answer, Bar, send, step } from "/answers.js";
import { OpenDialog, openFinish } from "/dialogs.js";
import { $, Badge, complain, counted, html, Icon, number, percent, plainText } from "/dom.js";
import { Grid, layOut, reload, show, snapshot } from "/grid.js";
import { pointer, pressKey, showNames, watchHeld } from "/hands.js";
import { Audit, LargeView } from "/large_view.js";
import { MapView } from "/map.js";
import { applyFilter, back, find, focusTiles, go, open, settleCursor } from "/navigation.js";
import { Component, render } from "/preact.js";
import { fetchFiles, fetchState, follow, outbox } from "/server.js";
import { classShown, isFiltered, ofKind, page, STEPS } from "/state.js";
import { editAction, headingOf, sectionsOf, viewsOf } from "/views.js";

const BINS = 56, ODDS = 6, LIKELY = 0.98, CERTAIN = 0.95;

/* Drawing */

/** After the selection or what is on the screen has changed. */
page.paint = () => { if (page.state) render(html`<${App} />`, document.body); };

/** After the room for the tiles has changed. */
page.relayout = () => {
  if (!page.state) return;
  const before = snapshot(false);
  layOut();
  show(before);
};

/** After what is known, or the view, has changed; with `glide`, tiles that move are seen to move. */
page.draw = (glide = true) => {
  const { state, view, least } = page;
  if (!state) return;
  page.arranged = state.arrange(least);
  page.heading = headingOf();
  if (!$("grid")) begin();
  const before = snapshot(glide), tops = new Map(page.sections.map(({ key, top }) => [key, top]));
  const hadFocus = document.activeElement?.matches(".tile");
  page.sections = sectionsOf().map((section) => ({ ...section, top: tops.get(section.key) ?? Infinity }));
  layOut();
  settleCursor();
  show(before);
  if (hadFocus) focusTiles();
  if (view === "skipped" && page.files.skippedThen !== state.skipped) fetchFiles();
  const { epoch, version, event, rows } = state;
  window.semishot = { epoch, version, event, rows, judged: () => outbox.isJudged() };
  document.dispatchEvent(new CustomEvent("drawn"));
};

/** The page as it is before there are tiles. */
function begin() {
  page.paint();
  let width = 0;
  new ResizeObserver(([{ contentRect }]) => {
    if (contentRect.width !== width) page.relayout();
    width = contentRect.width;
  }).observe($("grid"));
}

let scrolled = false;
function scroll() {
  if (!scrolled) requestAnimationFrame(() => { scrolled = false; page.paint(); });
  scrolled = true;
}

/* Parts */

function App() {
  const { phone, view, large } = page, small = phone.matches;
  return html`
    <${Top} small=${small} />
    <nav class="side" aria-label="Views"><${Views} />${!small && html`<${Cutoff} of=${page.arranged} />`}</nav>
    <main id="main" tabindex="-1" onScroll=${scroll} ...${pointer}>
      ${page.banner && html`<div class="banner" id="banner" role="alert">${page.banner}</div>`}
      ${small && html`<${Likely} />`}
      <${Head} />
      ${page.finding && html`<${Filter} />`}
      ${view === "skipped" && html`<${Skipped} />`}
      ${view === "audit" && html`<${Audit} />`}
      ${view === "map" && html`<${MapView} />`}
      ${small && view === "none" && html`<${Cutoff} of=${page.arranged} />`}
      <${Grid} />
    </main>
    <div class="bottom"><${Toast} /><${Bar} /></div>
    ${large && html`<${LargeView} />`}
    <${OpenDialog} />`;
}

/** Whether the pile is sorted as well as can be said: all that is left is to finish. */
function readiness() {
  const { state, arranged } = page, unnamed = state.kinds.length;
  const right = state.rows ? 1 - arranged.wrong / state.rows : 0;
  const done = state.audit?.share >= CERTAIN || (!unnamed && arranged.wrong < 0.5);
  return { right, ready: !unnamed && right >= LIKELY, done: state.judged && done };
}

function Top({ small }) {
  const { state, reading, finding } = page;
  return html`<header class="top">
    <h1>semishot<span> label</span></h1>
    ${reading && html`<${Reading} ...${reading} />`}
    ${!small && html`<${Likely} />`}
    <div class="tools">
      <button id="find" class="quiet wide" aria-pressed=${isFiltered()} aria-expanded=${finding} onClick=${find}>
        <${Icon} of="find" /><span>Find</span><kbd>/</kbd>
      </button>
      ${[["undo", "Undo"], ["redo", "Redo"]].map(([kind, verb]) => html`
        <button class="quiet" aria-label=${verb} disabled=${!state[kind]} onClick=${() => step(kind)}
          title=${state[kind] ? `${verb}: ${state[kind]}` : ""}><${Icon} of=${kind} /></button>`)}
      <button id="help" class="quiet" aria-label="Help and keys" onClick=${() => open({ kind: "help" })}>
        <${Icon} of="help" />
      </button>
      <button id="finish" class=${readiness().done && "primary"} onClick=${openFinish}>Finish…</button>
    </div>
  </header>`;
}

function Reading({ phase, done, total, rate }) {
  const left = rate > 0 ? (total - done) / rate : 0;
  const minutes = left > 5400 ? `${Math.round(left / 3600)} h` : `${Math.round(left / 60)} min`;
  const time = left > 90 ? minutes : `${Math.ceil(left)} s`;
  const speed = rate ? `, ${rate < 10 ? rate.toFixed(1) : Math.round(rate)} per second, ${time} left` : "";
  const text = phase === "listing" ? "Looking for images" : `${number(done)} of ${number(total)} images read${speed}`;
  return html`<div class="reading" id="reading">
    <progress max=${total || 1} value=${done} aria-label="Reading images" /><span>${text}</span>
  </div>`;
}

/** How much of the pile is likely right, and how many images are likely still wrong: sums of the probabilities. */
function Likely() {
  const { state, arranged } = page, wrong = Math.round(arranged.wrong), unnamed = state.kinds.length;
  const { right, ready, done } = readiness(), kinds = unnamed ? `, ${counted(unnamed, "kind")} without a name` : "";
  if (!state.judged) return null;
  return html`<div class="likely ${ready ? "done" : ""}" id="likely">
    <i aria-hidden="true" style=${{ "--right": right }} />
    <span>
      <b id="likely-text">${percent(right * STEPS)} likely right</b>${" "}
      <span id="likely-wrong">${wrong ? `about ${number(wrong)}` : "hardly any"} still wrong${kinds}</span>
    </span>
    ${state.classes.length > 1 && html`
      <button id="check" class=${ready && !done && "primary"} onClick=${() => go("audit")}>Check</button>`}
  </div>`;
}

const Views = () => html`<div id="views">${viewsOf().map((entry) => html`
  <${Entry} key=${entry.view || entry.heading} ...${entry} />`)}</div>`;

function Entry({ heading, view, name, sign, index, part, count = part?.files, does = () => go(view) }) {
  if (heading) return html`<h2>${heading}</h2>`;
  const confirmed = part?.confirmedFiles, words = part ? `, ${number(confirmed)} confirmed` : "";
  return html`<button class="entry" data-view=${view} onClick=${does}
    aria-current=${view === page.view ? "page" : undefined}
    aria-label=${count === undefined ? undefined : `${name}: ${counted(count, "image")}${words}`}>
    <${Badge} index=${index} sign=${sign} ask=${view === "ask"} />
    <span class="name">${name}</span>
    ${count !== undefined && html`<span class="count">
      ${confirmed > 0 && html`<b>✓${number(confirmed)}</b>`}${confirmed > 0 && " · "}${number(count)}</span>`}
  </button>`;
}

function Head() {
  const { view, state, least, captions, size, sections } = page, index = classShown(), [title, lead] = page.heading;
  const rest = () => answer(0, sections.flatMap(({ key }) => ofKind(key)));
  const edit = index >= 0 && editAction(index);
  return html`<div class="head">
    <div><h2 id="title">${title}</h2><p id="lead">${lead}</p></div>
    <div class="view">
      ${view === "kinds" && state.classes.length > 0 && state.kinds.length > 0 && html`
        <button id="rest" class="wide" onClick=${rest}>All strangers</button>`}
      ${edit && html`<button id="edit" class="quiet wide" aria-label=${edit.label} onClick=${edit.does}>Edit</button>`}
      ${(edit || view === "none") && html`<button id="order" class="quiet wide"
        onClick=${() => { page.least = !least; page.draw(); }}>${least ? "Least sure first" : "Surest first"}</button>`}
      <button class="quiet wide" aria-pressed=${captions} onClick=${() => showNames(!captions)}>File names</button>
      <label class="size"><span class="hidden">Size of the tiles</span>
        <input type="range" min="84" max="480" step="4" value=${size || 172} onInput=${resize} /></label>
    </div>
  </div>`;
}

function resize({ target }) {
  page.size = Number(target.value);
  localStorage.setItem("size", page.size);
  page.relayout();
}

function Filter() {
  const { filter, files } = page, percents = { min: 0, max: 100 }, stay = (event) => event.preventDefault();
  const change = ({ target: { name, value, type } }) =>
    applyFilter({ [name]: type === "number" ? Number(value) : value });
  const field = (name, type, more) => html`
    <input type=${type} id="filter-${name}" name=${name} value=${filter[name]} ...${more} />`;
  return html`<form id="filter-form" class="filter" aria-label="Find" onInput=${change} onSubmit=${stay}>
    <label>Name has ${field("text", "text", { autocomplete: "off", spellcheck: false })}</label>
    <label>Folder <select name="folder" value=${filter.folder}>
      <option value="">any</option>
      ${files.folders.map(([folder, count]) => html`
        <option value=${folder || "."}>${plainText(folder) || "the pile itself"} (${number(count)})</option>`)}
    </select></label>
    <label>Date from ${field("first", "date")}</label>
    <label>to ${field("last", "date")}</label>
    <label>Probability from ${field("least", "number", percents)}</label>
    <label>to ${field("most", "number", percents)} %</label>
  </form>`;
}

const Skipped = () => html`<ul class="skipped">${page.files.skipped.map(([name, reason]) => html`
  <li><b>${plainText(name)}</b><span>${reason}</span></li>`)}</ul>`;

function Toast() {
  const { text, on, undo } = page.message;
  return html`<div class="toast ${on ? "on" : ""}" id="toast" role="status" aria-live="polite">
    ${text}${undo && html`<button onClick=${undo}>Undo</button>`}
  </div>`;
}

/* The cutoff: the slider and the histogram above it share one axis, how likely each guess is a member */

/** Where a probability of a stranger, of STEPS, lies on the axis; and the probability at a place on it. */
const within = (odds) => Math.max(-ODDS, Math.min(ODDS, odds));
const oddsOf = (stranger) => within(Math.log(Math.max(0.1, STEPS - stranger + 0.5) / (stranger + 0.5)));
const cutoffAt = (odds) => (odds <= -ODDS ? STEPS + 1 : odds >= ODDS ? 1 : Math.round(STEPS / (1 + Math.exp(odds))));
const binAt = (odds) => ((odds + ODDS) / (2 * ODDS)) * BINS;

function setReject(value) {
  send({ kind: "reject", value }).catch(complain);
}

function keepCutoff() {
  const { lost, members } = page.state.putOut();
  setReject(Math.min(0.999, Math.max(1e-9, (lost / members) * (1 + 1e-9))));
}

/** `of`: the rows by class, for which it was drawn. */
class Cutoff extends Component {
  shouldComponentUpdate({ of }) {
    return of !== this.props.of;
  }

  render() {
    const { state } = page, effect = state.putOut(), counts = new Array(BINS).fill(0);
    if (!state.judged) return null;
    const open = state.stranger.filter((_, row) => !state.isConfirmed(row) && state.guess[row] >= 0).sort();
    for (const stranger of open) counts[Math.min(BINS - 1, Math.floor(binAt(oddsOf(stranger))))]++;
    const asMany = effect.out ? open[open.length - effect.out] : STEPS + 1; // the cutoff that puts out as many
    const at = oddsOf(state.cutoff ?? asMany), edge = binAt(at), most = Math.sqrt(Math.max(...counts, 1));
    const about = (value) => (value < 0.5 ? "none" : `about ${number(Math.round(value))}`);
    const belong = Math.round(effect.lost) === 1 ? "belongs" : "belong";
    const text = `${number(effect.out)} of ${number(effect.of)} guesses are strangers: ` +
      `${about(effect.lost)} of these likely ${belong} to a class, and ${about(effect.missed)} of the rest to none.`;
    const move = ({ target }) => { state.cutoff = cutoffAt(target.value); page.draw(false); };
    return html`<section class="card" id="cutoff" aria-labelledby="cutoff-title">
      <header>
        <h2 id="cutoff-title">Cutoff for strangers</h2>
        ${state.cutoff !== null && html`<button class="quiet" onClick=${() => setReject(null)}>Reset</button>`}
      </header>
      <svg viewBox="0 0 56 56" preserveAspectRatio="none" aria-hidden="true">
        ${counts.map((count, i) => {
          const height = count ? Math.max(1.5, (Math.sqrt(count) / most) * 54) : 0;
          const side = i + 0.5 < edge ? "out" : "kept";
          return html`<rect x=${i + 0.1} y=${56 - height} width="0.8" height=${height} class=${side} />`;
        })}
        <line x1=${edge} x2=${edge} y1="0" y2="56" class="cut" />
      </svg>
      <input type="range" id="cutoff-slider" min=${-ODDS} max=${ODDS} step="0.05" value=${at}
        onInput=${move} onChange=${keepCutoff}
        aria-describedby="cutoff-text" aria-valuetext=${text} aria-label="Cutoff for strangers" />
      <div class="ends" aria-hidden="true"><span>fewer strangers</span><span>more strangers</span></div>
      <p id="cutoff-text">${text}</p>
    </section>`;
  }
}

/* The beginning */

page.reload = reload;
history.replaceState(history.state, "", "/"); // the token is used
watchHeld();
document.addEventListener("keydown", pressKey);
document.addEventListener("visibilitychange", follow);
addEventListener("popstate", back);
page.phone.addEventListener("change", () => page.draw(false));
fetchState();
follow();
outbox.send();
