// The small dialogs: a new class, an edited class, finding by name, help; and what all dialogs do.

import { answer } from "/answers.js";
import { $, badge, counted, element, number, on, plainText, toast } from "/dom.js";
import { focusTiles, go, showFound } from "/navigation.js";
import { post } from "/server.js";
import { draw } from "/tiles.js";

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

/** What opens it, for these images; `large` is the large picture, which goes on after it. */
export function newClassDialog(page, large) {
  let toName = [];
  $("name-dialog").querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await page.outbox.add({ kind: "new", name: $("name-input").value, images: toName });
    } catch (error) {
      $("name-wrong").textContent = error.message;
      return;
    }
    $("name-dialog").close();
    page.selected.clear();
    draw(page);
    toast(`New class: ${$("name-input").value.trim()}`);
    if ($("large").open) large.step(1);
  });
  return (images) => {
    toName = images;
    $("name-lead").textContent = images.length ? `${counted(images.length, "image")} will be its first.` : "Select images of it afterwards, and press its key.";
    $("name-input").value = $("name-wrong").textContent = "";
    $("name-dialog").showModal();
    $("name-input").focus();
  };
}

/** What opens it, for the id of a class. */
export function editClassDialog(page) {
  let editing = 0;
  async function change(event) {
    try {
      await page.outbox.add(event);
      $("class-dialog").close();
    } catch (error) { $("class-wrong").textContent = error.message; }
  }
  $("class-dialog").querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    change({ kind: "rename", class: editing, name: $("class-name").value });
  });
  on("class-merge", "click", () => change({ kind: "merge", class: editing, into: Number($("class-into").value) }));
  on("class-delete", "click", () => change({ kind: "delete", class: editing }));
  return (id) => {
    const { state, arranged } = page, index = state.index(id);
    editing = id;
    $("class-title").textContent = $("class-name").value = state.classes[index][1];
    $("class-wrong").textContent = "";
    const others = state.classes.filter(([other]) => other !== id);
    $("class-into").replaceChildren(...others.map(([other, text]) => Object.assign(element("option", "", text), { value: other })));
    $("class-into").disabled = $("class-merge").disabled = !others.length;
    $("class-delete-text").textContent = `Deleting it takes back its ${counted(arranged.classes[index].confirmedFiles, "answer")}. Undo brings them back.`;
    $("class-dialog").showModal();
  };
}

/** What opens it. */
export function findDialog(page) {
  let results = [], at = 0, searching = 0, searches = 0, asking = false, entered = false;
  function search() {
    const text = $("find-input").value.trim(), folded = text.toLocaleLowerCase(), selected = page.selected.size;
    const rank = ({ name }) => name.toLocaleLowerCase().indexOf(folded);
    const classes = page.state.classes.map(([id, name], index) => ({ id, name, index })).filter((found) => rank(found) >= 0);
    results = classes.sort((a, b) => (rank(a) > 0) - (rank(b) > 0)).slice(0, 12).map((found) => ({
      ...found,
      what: selected ? `label ${counted(selected, "image")}` : "go to class",
      run: () => (selected ? answer(page, found.id) : go(page, `class:${found.id}`)),
    }));
    at = 0;
    entered = false;
    asking = text.length > 0;
    list();
    clearTimeout(searching);
    const mine = ++searches;
    if (asking) searching = setTimeout(() => findFiles(text, mine), 120);
  }
  async function findFiles(text, mine) {
    const response = await fetch(`/find?text=${encodeURIComponent(text)}`).catch(() => null);
    const reply = response?.ok ? await response.json().catch(() => null) : null;
    if (mine !== searches) return;
    asking = false;
    if (!reply) { $("find-none").textContent = "The server does not answer."; return; }
    const { images, names } = reply, showing = (image) => () => showFound(page, text, images, image);
    for (const image of images.slice(0, 8)) results.push({ image, name: plainText(names[image]?.[0] || `image ${image}`), what: "file", run: showing(image) });
    if (images.length) results.push({ name: `All ${number(images.length)}${images.length === 200 ? " or more" : ""} files with “${text}”`, what: "show", run: showing(images[0]) });
    list();
    if (entered && results.length) pick(0);
  }
  function list() {
    $("find-none").textContent = results.length || !$("find-input").value.trim() ? "" : asking ? "Looking…" : "No class and no file has this in its name.";
    $("find-list").replaceChildren(...results.map(({ index, image, name, what }, row) => {
      const line = Object.assign(element("li"), { id: `found-${row}` });
      line.setAttribute("role", "option");
      line.setAttribute("aria-selected", row === at);
      if (index !== undefined) line.append(badge(index));
      if (image) line.append(Object.assign(element("img"), { src: `/thumb/${image}?of=${page.state.pile}`, alt: "" }));
      line.append(element("span", "name", name), element("span", "what", what));
      line.addEventListener("click", () => pick(row));
      return line;
    }));
    if (results.length) $("find-input").setAttribute("aria-activedescendant", `found-${at}`);
    else $("find-input").removeAttribute("aria-activedescendant");
    $(`found-${at}`)?.scrollIntoView({ block: "nearest" });
  }
  function pick(row) {
    if (!results[row]) { entered = asking; return; } // Enter may come before what is found
    $("find-dialog").close();
    results[row].run();
  }
  on("find-input", "input", search);
  on("find-input", "keydown", (event) => {
    const by = { Enter: 0, ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    if (!by) { pick(at); return; }
    at = Math.max(0, Math.min(results.length - 1, at + by));
    list();
  });
  return () => {
    $("find-input").value = "";
    $("find-dialog").showModal();
    $("find-input").focus();
    search();
  };
}
