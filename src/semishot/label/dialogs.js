// The dialogs: a new class, a class to edit, help, and the last one, with the sorting, the tables and the model.

import { answer, send } from "/answers.js";
import { counted, html, number, toast } from "/dom.js";
import { close, open, stepLarge } from "/navigation.js";
import { Component } from "/preact.js";
import { ask, post } from "/server.js";
import { deselect, page } from "/state.js";

/** A dialog, open while it exists. Escape and a click outside close it. */
export class Dialog extends Component {
  componentDidMount() {
    this.base.showModal();
  }

  render({ children, ...attributes }) {
    const outside = ({ target, clientX: x, clientY: y }) => {
      const { left, right, top, bottom } = this.base.getBoundingClientRect();
      if (target === this.base && (x < left || x > right || y < top || y > bottom)) close();
    };
    return html`<dialog ...${attributes} onClick=${outside} onCancel=${close}>${children}</dialog>`;
  }
}

/** Change what the open dialog shows. */
function set(change) {
  if (page.dialog) Object.assign(page.dialog, change);
  page.paint();
}

/** Do what takes time; what is wrong with it is said in the dialog. */
async function attempt(work) {
  set({ busy: true, wrong: "" });
  await work().catch(({ message }) => set({ wrong: message }));
  set({ busy: false });
}

const CloseButton = ({ text = "Close", primary }) => html`
  <button type="button" class=${primary ? "primary" : "quiet"} onClick=${close}>${text}</button>`;
const Wrong = () => html`<p class="wrong" role="alert">${page.dialog.wrong}</p>`;

/* A new class, and one that is edited */

/** The class of the name that has been typed, if there is one. */
function typedClass() {
  const typed = page.dialog.typed.trim().toLocaleLowerCase();
  return page.state.classes.find(([, name]) => name.toLocaleLowerCase() === typed);
}

function NameField({ id }) {
  const type = ({ target }) => set({ typed: target.value });
  return html`
    <label>Name <input id=${id} type="text" maxlength="100" autocomplete="off" spellcheck=${false} list="class-known"
      required autofocus value=${page.dialog.typed} onInput=${type} /></label>
    <datalist id="class-known">${page.state.classes.map(([, name]) => html`<option value=${name} />`)}</datalist>
    <${Wrong} />`;
}

function NewClass() {
  const { images, typed } = page.dialog;
  const submit = (event) => {
    event.preventDefault();
    const known = typedClass();
    if (known && images.length) {
      close();
      answer(known[0], images);
      return;
    }
    attempt(async () => {
      await send({ kind: "new", name: typed, images }, `New class: ${typed.trim()}`, true);
      deselect();
      close();
      page.draw();
      if (page.large) stepLarge(1);
    });
  };
  const first = `${counted(images.length, "image")} will be its first.`;
  return html`<${Dialog} id="name-dialog" aria-labelledby="name-title">
    <form onSubmit=${submit}>
      <h2 id="name-title">New class</h2>
      <p id="name-lead">${images.length ? first : "Select images of it afterwards, and press its key."}</p>
      <${NameField} id="name-input" />
      <div class="row end">
        <${CloseButton} text="Cancel" /><button type="submit" class="primary">Make class</button>
      </div>
    </form>
  <//>`;
}

function EditClass() {
  const { state, arranged, dialog: { id, typed } } = page, index = state.index(id), other = typedClass();
  if (index < 0) return null; // it has gone
  const name = state.className(index), into = other && other[0] !== id ? other : null;
  const change = (event, text) => attempt(() => send(event, text, true).then(close));
  const remove = () => change({ kind: "delete", class: id }, `${name} deleted`);
  const submit = (event) => {
    event.preventDefault();
    if (into) change({ kind: "delete", class: id, into: into[0] }, `${name} merged into ${into[1]}`);
    else change({ kind: "rename", class: id, name: typed }, `Renamed ${typed.trim()}`);
  };
  const answers = counted(arranged.classes[index].confirmedFiles, "answer");
  return html`<${Dialog} id="class-dialog" aria-labelledby="class-title">
    <form onSubmit=${submit}>
      <h2 id="class-title">${name}</h2>
      <p>The name of another class merges the two.</p>
      <${NameField} id="class-name" />
      <div class="row">
        <button type="submit" class="primary" id="class-rename">${into ? "Merge" : "Rename"}</button>
      </div>
      <hr />
      <p>Deleting it takes back its ${answers}. Undo brings them back.</p>
      <div class="row">
        <button type="button" id="class-delete" class="danger" onClick=${remove}>Delete class</button>
        <span class="grow" /><${CloseButton} />
      </div>
    </form>
  <//>`;
}

/* Help: keys, marks, and an address for another browser */

const KEYS = [
  ["`1` … `9`", "this class; for more classes, `N` and its name"],
  ["`0`", "stranger: it belongs to none of the classes"],
  ["`-`", "not this class: guess again without it"],
  ["`Enter`", "accept the guess; with `Shift`, all of the section"],
  ["`Backspace`", "take the answer back"],
  ["`N`", "new class, of what is selected or has the ring"],
  ["`Space`", "the picture, large; there, `Z` or the wheel zooms"],
  ["`←` `→` `↑` `↓`", "move; with `Shift`, select on the way"],
  ["`X`", "select, or select no longer"],
  ["`Ctrl` `A`", "select all of this section"],
  ["`Esc`", "select nothing; then, show all images again"],
  ["`PgUp` `PgDn`", "previous, next view in the list at the side"],
  ["`/`", "find by file name, folder, date or probability; again, all images"],
  ["`T`", "file names under the tiles"],
  ["`Ctrl` `Z`", "undo, without limit; with `Ctrl` `Y`, redo"],
  ["`?`", "this page"],
];
const MARKS = [
  ["confirmed", "✓", "confirmed: you said so"],
  ["guess", "87\u202f%", "guessed, and how probable that is"],
  ["ask", "?", "worth asking: your answer would help most"],
];

const withKeys = (text) => text.split("`").map((part, i) => (i % 2 ? html`<kbd>${part}</kbd>` : part));

function Help() {
  const invite = () => post("/invite").then(set, ({ message }) => set({ address: message }));
  return html`<${Dialog} id="help-dialog" aria-labelledby="help-title">
    <h2 id="help-title" tabindex="-1" autofocus>Keys</h2>
    <table class="keys"><tbody>
      ${KEYS.map(([keys, text]) => html`<tr><th scope="row">${withKeys(keys)}</th><td>${withKeys(text)}</td></tr>`)}
    </tbody></table>
    <p>Click images to select them, Shift-click for a range, or drag a box.
      An answer is for all that is selected, or else for the image with the ring around it.</p>
    <ul class="legend">
      ${MARKS.map(([kind, sign, text]) => html`
        <li><span class="mark ${kind}">${sign}</span> <span>${text}</span></li>`)}
    </ul>
    <div class="row">
      <button onClick=${invite}>Address for another browser</button><output>${page.dialog.address}</output>
      <span class="grow" /><${CloseButton} primary />
    </div>
  <//>`;
}

/* Finish: what a sorting would do, the sorting and its undo, tables and the model */

const HOW = { copy: "Copy", move: "Move", link: "Link" };
const DONE = { copy: "copied", move: "moved", link: "linked" };
const WHICH = { all: "Confirmed and guessed", confirmed: "Confirmed only" };
const TABLES = {
  "labels.csv": "Table", "metadata.csv": "ImageFolder", "coco.json": "COCO", "observations.csv": "Camtrap DP",
};

export function openFinish() {
  open({ kind: "finish", how: "copy", which: "all", plan: null, done: "", wrong: "" });
  fetchPlan();
}

let planning = 0;
/** Ask what a sorting like this would do. One that has been done is repeated in its own way. */
async function fetchPlan() {
  const { how, which } = page.dialog, mine = ++planning;
  const plan = await ask(`/plan?how=${how}&which=${which}`).catch(({ message }) => ({ problem: message }));
  if (mine !== planning || page.dialog?.kind !== "finish") return;
  if (plan.problem) set({ plan: { ...plan, files: 0 }, wrong: plan.problem });
  else if (plan.sorting && plan.sorting.how !== how) await choose({ how: plan.sorting.how });
  else set({ plan });
}

async function choose(choice) {
  set(choice);
  await fetchPlan();
}

/** Sort, or undo it. */
async function change(path, body) {
  try {
    const { said, files, problems, more } = await post(path, body);
    toast(said || `${counted(files, "file")} sorted`);
    await fetchPlan();
    if (problems.length) throw new Error(`Not done: ${problems.join("; ")}${more ? `; and ${number(more)} more` : ""}`);
  } catch (error) {
    if (error.status === 409) await fetchPlan(); // it would not be what was shown
    throw error;
  }
}

function Finish() {
  const { how, which, plan, busy, done } = page.dialog, sorting = plan?.sorting;
  const saveModel = async () => {
    set({ done: "Saving…" });
    const { path } = await post("/model").finally(() => set({ done: "" }));
    set({ done: `Saved in ${path}` });
  };
  const saveKeywords = async () => {
    const { path, files } = await post("/keywords", { which });
    set({ done: `${counted(files, "sidecar")} in ${path}` });
  };
  const apply = () => change("/apply", { how, which, version: plan.version });
  return html`<${Dialog} id="finish-dialog" aria-labelledby="finish-title">
    <h2 id="finish-title">Finish</h2>
    ${sorting && html`<section id="sorted-now">
      <p>${sortingText(plan)}</p>
      <div class="row">
        <button id="unsort" disabled=${busy} onClick=${() => attempt(() => change("/undo"))}>Undo the sorting</button>
      </div>
    </section>`}
    ${(!sorting || sorting.done) && html`<section>
      <${Choice} name="how" title="Files" texts=${HOW} only=${sorting?.how} />
      <${Choice} name="which" title="Which" texts=${WHICH} />
      <div class="plan" id="plan" aria-live="polite">
        ${plan && !plan.problem && html`<${Plan} ...${plan} how=${how} which=${which} />`}
      </div>
      ${plan?.files > 0 && html`<div class="row">
        <button id="apply" class="primary" disabled=${busy} onClick=${() => attempt(apply)}>
          ${sorting ? "Sort again" : `${HOW[how]} ${counted(plan.files, "file")}`}
        </button>
      </div>`}
    </section>`}
    <${Wrong} />
    <hr />
    <h3>Tables and model</h3>
    <p>Written to the output folder; your files stay as they are. Which images they hold is chosen above.</p>
    <div class="row" id="tables">
      ${Object.entries(TABLES).map(([file, text]) => html`
        <a class="button" download=${file} href="/table/${file}?which=${which}">${text}</a>`)}
      <button disabled=${busy} onClick=${() => attempt(saveKeywords)}>Keywords (XMP)</button>
      <button id="model" disabled=${busy} onClick=${() => attempt(saveModel)}>Save the model</button>
    </div>
    <output id="model-text">${done}</output>
    <div class="row end"><${CloseButton} /></div>
  <//>`;
}

/** What has been sorted, or half of it. */
function sortingText({ sorting: { files, how, done }, out, command }) {
  if (!done) return `A sorting of ${counted(files, "file")} was interrupted. Undo it to begin again.`;
  const sorted = `${counted(files, "file")} ${files === 1 ? "has" : "have"} been ${DONE[how]} to ${out}.`;
  return `${sorted} Undo puts everything back as it was; so does “${command}”, later.`;
}

/** `only`: the one that can be chosen. */
function Choice({ name, title, texts, only }) {
  return html`<fieldset class="choice"><legend>${title}</legend>${Object.entries(texts).map(([value, text]) => html`
    <label><input type="radio" name=${name} value=${value} checked=${page.dialog[name] === value}
      disabled=${only && only !== value} onChange=${() => choose({ [name]: value })} /> ${text}</label>`)}</fieldset>`;
}

/** What Apply would do. */
function Plan({ how, which, sorting, files, folders, left, links, size, free, out, pile, command }) {
  if (!files && which === "confirmed") return html`<p>There is nothing to sort: no image is confirmed yet.</p>`;
  if (!files) return html`<p>There is nothing to sort yet: label some images first.</p>`;
  const many = (count, one, more) => `${counted(count, "file")} ${count === 1 ? one : more}`;
  const first = `${many(files, "is", "are")} ${DONE[how]}${how === "link" ? " by symbolic links" : ""} to ${out}:`;
  const again = `Sorted again by the answers of now, in ${out}; files that lie in the right folder stay:`;
  const rest = [
    left && many(left, "stays where it is.", "stay where they are."),
    links && many(links, "behind links is not moved.", "behind links are not moved."),
    how === "copy" && !sorting && `This takes ${size}; ${free} are free.`,
    how === "move" && !sorting && `They leave ${pile}.`,
    `Nothing is overwritten, and “${command}” undoes it.`,
  ];
  return html`<p>${sorting ? again : first}</p>
    <ul tabindex="0" aria-label="Folders">${Object.entries(folders).map(([folder, count]) => html`
      <li><span>${folder}</span><span>${number(count)}</span></li>`)}</ul>
    <p>${rest.filter(Boolean).join(" ")}</p>`;
}

const DIALOGS = { name: NewClass, edit: EditClass, help: Help, finish: Finish };
export const OpenDialog = () => page.dialog && html`<${DIALOGS[page.dialog.kind]} />`;
