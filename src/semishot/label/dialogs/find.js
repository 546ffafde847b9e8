// The dialog that finds classes and files by name.

import { answer } from "/answers.js";
import { go, showFound } from "/moving.js";
import { $, badge, counted, element, number, plainText } from "/words.js";

/** What opens it. */
export function findDialog(page) {
  let results = [], at = 0, searching = 0, searches = 0, asking = false, entered = false;
  function open() {
    $("find-input").value = "";
    $("find-dialog").showModal();
    $("find-input").focus();
    search();
  }
  function search() {
    const text = $("find-input").value.trim(), state = page.state;
    const folded = text.toLocaleLowerCase();
    const chosen = page.selected.size;
    const classes = state.classes.map(([id, text_], index) => ({ id, name: text_, index }))
      .filter((one) => one.name.toLocaleLowerCase().includes(folded))
      .sort((a, b) => !a.name.toLocaleLowerCase().startsWith(folded) - !b.name.toLocaleLowerCase().startsWith(folded));
    results = classes.slice(0, 12).map((one) => ({
      ...one,
      what: chosen ? `label ${counted(chosen, "image")}` : "go to class",
      run: () => (chosen ? answer(page, one.id) : go(page, `class:${one.id}`)),
    }));
    at = 0;
    entered = false;
    asking = text.length > 0;
    list();
    clearTimeout(searching);
    const mine = ++searches;
    if (!asking) return;
    searching = setTimeout(async () => {
      const reply = await asked(text);
      if (mine !== searches) return;
      asking = false;
      if (!reply) { $("find-none").textContent = "The server does not answer."; return; }
      const { images } = reply;
      for (const image of images.slice(0, 8)) {
        results.push({ image, name: plainText(reply.names[image]?.[0] || `image ${image}`), what: "file", run: () => showFound(page, text, images, image) });
      }
      if (images.length) results.push({ name: `All ${number(images.length)}${images.length === 200 ? " or more" : ""} files with “${text}”`, what: "show", run: () => showFound(page, text, images, images[0]) });
      list();
      if (entered && results.length) pick(0);
    }, 120);
  }
  async function asked(text) {
    try {
      const response = await fetch(`/find?text=${encodeURIComponent(text)}`);
      return response.ok ? await response.json() : null;
    } catch { return null; }
  }
  function list() {
    $("find-none").textContent = results.length || !$("find-input").value.trim() ? "" : asking ? "Looking…" : "No class and no file has this in its name.";
    $("find-list").replaceChildren(...results.map((one, place) => {
      const line = element("li");
      line.id = `found-${place}`;
      line.setAttribute("role", "option");
      line.setAttribute("aria-selected", place === at);
      if (one.index !== undefined) line.append(badge(one.index));
      if (one.image) line.append(Object.assign(element("img"), { src: `/thumb/${one.image}?of=${page.state.pile}`, alt: "" }));
      line.append(element("span", "name", one.name), element("span", "what", one.what));
      line.addEventListener("click", () => pick(place));
      return line;
    }));
    if (results.length) $("find-input").setAttribute("aria-activedescendant", `found-${at}`);
    else $("find-input").removeAttribute("aria-activedescendant");
    $(`found-${at}`)?.scrollIntoView({ block: "nearest" });
  }
  function pick(place) {
    const one = results[place];
    if (!one) { entered = asking; return; } // Enter may come before what is found
    $("find-dialog").close();
    one.run();
  }
  $("find-input").addEventListener("input", search);
  $("find-input").addEventListener("keydown", (event) => {
    if (event.key === "Enter") { event.preventDefault(); pick(at); }
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      at = Math.max(0, Math.min(results.length - 1, at + (event.key === "ArrowDown" ? 1 : -1)));
      list();
    }
  });

  return open;
}
