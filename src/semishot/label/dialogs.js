// The small dialogs: a new class, an edited class, help; what all dialogs do; and the filter.

import { answer, step } from "/answers.js";
import { $, counted, element, number, on, plainText, toast } from "/dom.js";
import { focusTiles } from "/navigation.js";
import { post } from "/server.js";
import { draw, isFiltered } from "/views.js";

/** Back and a click outside close every dialog, and then the tiles have the keys again. */
export function listenToDialogs(page) {
  for (const dialog of document.querySelectorAll("dialog")) {
    new MutationObserver(() => {
      if (dialog.open && !history.state) history.pushState({ view: page.view }, ""); // else Back would leave the page
    }).observe(dialog, { attributeFilter: ["open"] });
    dialog.addEventListener("click", (event) => {
      if (event.target.closest("[data-close]")) dialog.close();
      if (event.target === dialog && !dialog.classList.contains("large")) {
        const box = dialog.getBoundingClientRect();
        const inside = event.clientX >= box.left && event.clientX <= box.right && event.clientY >= box.top && event.clientY <= box.bottom;
        if (!inside) dialog.close();
      }
    });
    dialog.addEventListener("close", () => { if (!document.querySelector("dialog[open]")) focusTiles(page); });
  }
}

/** What opens it. */
export function helpDialog() {
  on("invite", "click", async () => {
    try {
      $("invite-text").textContent = (await post("/invite", {})).address;
    } catch { $("invite-text").textContent = "The server does not answer."; }
  });
  return () => {
    $("invite-text").textContent = "";
    $("help-dialog").showModal();
  };
}

/** The class of a name that was typed, if there is one. */
function classCalled(page, typed) {
  return page.state.classes.find(([, name]) => name.toLocaleLowerCase() === typed.trim().toLocaleLowerCase());
}

/** Offer the names of the classes where a name is typed. */
function listKnown(page) {
  $("class-known").replaceChildren(...page.state.classes.map(([, name]) => Object.assign(element("option"), { value: name })));
}

/** What opens it, for these images; `large` is the large picture, which goes on after it. */
export function newClassDialog(page, large) {
  let toName = [];
  $("name-dialog").querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const known = classCalled(page, $("name-input").value);
    if (known && toName.length) {
      $("name-dialog").close();
      answer(page, known[0], toName);
      return;
    }
    try {
      await page.outbox.add({ kind: "new", name: $("name-input").value, images: toName });
    } catch (error) {
      $("name-wrong").textContent = error.message;
      return;
    }
    $("name-dialog").close();
    page.selected.clear();
    page.crossed.clear();
    draw(page);
    toast(`New class: ${$("name-input").value.trim()}`, () => step(page, "undo"));
    if ($("large").open) large.step(1);
  });
  return (images) => {
    toName = images;
    $("name-lead").textContent = images.length ? `${counted(images.length, "image")} will be its first.` : "Select images of it afterwards, and press its key.";
    $("name-input").value = $("name-wrong").textContent = "";
    listKnown(page);
    $("name-dialog").showModal();
    $("name-input").focus();
  };
}

/** What opens it, for the id of a class. */
export function editClassDialog(page) {
  let editing = 0;
  const nameNow = () => page.state.className(page.state.index(editing));
  const other = () => [classCalled(page, $("class-name").value)].find((found) => found && found[0] !== editing);
  async function change(event, text) {
    try {
      await page.outbox.add(event);
      $("class-dialog").close();
      toast(text, () => step(page, "undo"));
    } catch (error) { $("class-wrong").textContent = error.message; }
  }
  $("class-dialog").querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const name = $("class-name").value, into = other();
    if (into) change({ kind: "delete", class: editing, into: into[0] }, `${nameNow()} merged into ${into[1]}`);
    else change({ kind: "rename", class: editing, name }, `Renamed ${name.trim()}`);
  });
  on("class-name", "input", () => { $("class-rename").textContent = other() ? "Merge" : "Rename"; });
  on("class-delete", "click", () => change({ kind: "delete", class: editing }, `${nameNow()} deleted`));
  return (id) => {
    const { state, arranged } = page, index = state.index(id);
    editing = id;
    $("class-title").textContent = $("class-name").value = state.classes[index][1];
    $("class-wrong").textContent = "";
    $("class-rename").textContent = "Rename";
    listKnown(page);
    $("class-delete-text").textContent = `Deleting it takes back its ${counted(arranged.classes[index].confirmedFiles, "answer")}. Undo brings them back.`;
    $("class-dialog").showModal();
  };
}

/** What the filter lets through: a part of the name, a folder, days, and probabilities in percent. */
export const NO_FILTER = { text: "", folder: "", first: "", last: "", least: 0, most: 100 };

let filtering = 0;
/** Change the filter; the server knows which images have such files. */
export async function applyFilter(page, change) {
  const filter = page.filter = { ...page.filter, ...change }, { least, most, ...asked } = filter, mine = ++filtering;
  let matches = null;
  if (Object.values(asked).some(Boolean)) {
    const response = await fetch(`/find?${new URLSearchParams(asked)}`).catch(() => null);
    if (mine !== filtering) return;
    if (!response?.ok) { toast("The server does not answer."); return; }
    const { state } = page, rows = state.rowsOf((await response.json()).images);
    matches = new Set(rows.map((row) => (state.hasTile(row) ? state.image[row] : state.group[row])));
  }
  page.matches = matches;
  for (const [name, value] of Object.entries(filter)) {
    const field = $(`filter-${name}`);
    if (document.activeElement !== field) field.value = value;
  }
  page.selected.clear();
  draw(page, false);
}

/** The row of fields below the title, and the list of skipped files. */
export function listenToFilter(page) {
  let typing = 0;
  const read = () => applyFilter(page, Object.fromEntries(Object.keys(NO_FILTER).map((name) => [name, typeof NO_FILTER[name] === "number" ? Number($(`filter-${name}`).value) : $(`filter-${name}`).value.trim()])));
  on("filter-form", "input", () => { clearTimeout(typing); typing = setTimeout(read, 150); });
  on("find", "click", async () => {
    const hidden = $("filter-form").hidden = !$("filter-form").hidden;
    $("find").setAttribute("aria-expanded", !hidden);
    if (hidden) { focusTiles(page); if (isFiltered(page)) applyFilter(page, NO_FILTER); return; }
    $("filter-text").focus();
    const { folders } = await (await fetch("/files")).json();
    const options = folders.map(([folder, count]) => Object.assign(element("option", "", `${plainText(folder) || "the pile itself"} (${number(count)})`), { value: folder || "." }));
    $("filter-folder").replaceChildren(Object.assign(element("option", "", "any"), { value: "" }), ...options);
    $("filter-folder").value = page.filter.folder;
  });
  let listed = -1;
  document.addEventListener("drawn", async () => {
    if (page.view !== "skipped" || listed === page.state.skipped) return;
    listed = page.state.skipped;
    const { skipped } = await (await fetch("/files")).json();
    $("skipped").replaceChildren(...skipped.map(([name, reason]) => {
      const line = element("li");
      line.append(element("b", "", plainText(name)), element("span", "", reason));
      return line;
    }));
  });
}
