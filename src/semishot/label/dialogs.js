// What opens above the page: naming, editing and finding classes, the large picture, help, and the end.

import { post } from "/outbox.js";
import { NONE } from "/state.js";
import { $, badge, colorOf, counted, element, number, percent, plainText } from "/words.js";

export function dialogs(page) {
  const { toast, grid, names } = page;
  const now = () => page.state();

  for (const dialog of document.querySelectorAll("dialog")) {
    new MutationObserver(() => {
      if (dialog.open && !history.state) history.pushState({ place: page.place() }, ""); // else Back would leave the page
    }).observe(dialog, { attributeFilter: ["open"] });
    dialog.addEventListener("click", (event) => {
      if (event.target.closest("[data-close]")) dialog.close();
      if (event.target === dialog && !dialog.classList.contains("large")) {
        const box = dialog.getBoundingClientRect();
        const inside = event.clientX >= box.left && event.clientX <= box.right && event.clientY >= box.top && event.clientY <= box.bottom;
        if (!inside) dialog.close();
      }
    });
    dialog.addEventListener("close", () => { if (!document.querySelector("dialog[open]")) page.focusTiles(); });
  }

  /* a new class */
  let toName = [];
  function name(images) {
    toName = images;
    $("name-lead").textContent = images.length ? `${counted(images.length, "image")} will be its first.` : "Select images of it afterwards, and press its key.";
    $("name-input").value = "";
    $("name-wrong").textContent = "";
    $("name-dialog").showModal();
    $("name-input").focus();
  }
  $("name-dialog").querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await page.command({ kind: "new", name: $("name-input").value, images: toName });
    } catch (error) {
      $("name-wrong").textContent = error.message;
      return;
    }
    $("name-dialog").close();
    page.afterNew();
    toast(`New class: ${$("name-input").value.trim()}`);
    if ($("large").open) largeStep(1);
  });

  /* a class that is there */
  let editing = 0;
  function edit(id) {
    editing = id;
    const state = now(), index = state.index(id);
    $("class-title").textContent = state.classes[index][1];
    $("class-name").value = state.classes[index][1];
    $("class-wrong").textContent = "";
    const others = state.classes.filter(([other]) => other !== id);
    $("class-into").replaceChildren(...others.map(([other, text]) => Object.assign(element("option", "", text), { value: other })));
    $("class-into").disabled = $("class-merge").disabled = !others.length;
    const said = state.said.reduce((sum, value) => sum + (value === index), 0);
    $("class-delete-text").textContent = `Deleting it takes back its ${counted(said, "answer")}. Undo brings them back.`;
    $("class-dialog").showModal();
  }
  async function change(event) {
    try {
      await page.command(event);
      $("class-dialog").close();
    } catch (error) { $("class-wrong").textContent = error.message; }
  }
  $("class-dialog").querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    change({ kind: "rename", class: editing, name: $("class-name").value });
  });
  $("class-merge").addEventListener("click", () => change({ kind: "merge", class: editing, into: Number($("class-into").value) }));
  $("class-delete").addEventListener("click", () => change({ kind: "delete", class: editing }));

  /* find */
  let results = [], at = 0, searching = 0, searches = 0, asking = false, entered = false;
  function find() {
    $("find-input").value = "";
    $("find-dialog").showModal();
    $("find-input").focus();
    search();
  }
  function search() {
    const text = $("find-input").value.trim(), state = now();
    const folded = text.toLocaleLowerCase();
    const chosen = page.selected.size;
    const classes = state.classes.map(([id, text_], index) => ({ id, name: text_, index }))
      .filter((one) => one.name.toLocaleLowerCase().includes(folded))
      .sort((a, b) => !a.name.toLocaleLowerCase().startsWith(folded) - !b.name.toLocaleLowerCase().startsWith(folded));
    results = classes.slice(0, 12).map((one) => ({
      ...one,
      what: chosen ? `label ${counted(chosen, "image")}` : "go to class",
      run: () => (chosen ? page.answer(one.id) : page.go(`class:${one.id}`)),
    }));
    at = 0;
    entered = false;
    asking = text.length > 0;
    list();
    clearTimeout(searching);
    const mine = ++searches;
    if (!asking) return;
    searching = setTimeout(async () => {
      const answer = await asked(text);
      if (mine !== searches) return;
      asking = false;
      if (!answer) { $("find-none").textContent = "The server does not answer."; return; }
      const { images } = answer;
      for (const image of images.slice(0, 8)) {
        results.push({ image, name: plainText(answer.names[image]?.[0] || `image ${image}`), what: "file", run: () => page.refind(text, images, image) });
      }
      if (images.length) results.push({ name: `All ${number(images.length)}${images.length === 200 ? " or more" : ""} files with “${text}”`, what: "show", run: () => page.refind(text, images, images[0]) });
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
      if (one.image) line.append(Object.assign(element("img"), { src: `/thumb/${one.image}?of=${now().pile}`, alt: "" }));
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

  /* the large picture */
  let big = { section: "", index: 0, image: 0 };
  function large(section, index) {
    const held = grid.section(section);
    if (!held || held.rows[index] === undefined) return;
    big = { section, index, image: now().image[held.rows[index]] };
    if (!$("large").open) $("large").showModal();
    drawLarge();
  }
  async function drawLarge() {
    const state = now(), image = big.image, row = state.rowOf.get(image);
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
          await page.command({ kind: "apart", images });
          toast("Separated");
        } catch (error) { toast(error.message); }
      });
      $("large-copies").append(`${counted(near, "near copy", "near copies")}, labeled together`, apart);
    }
  }
  function describe(row) {
    const state = now(), { kind, where } = page.stateOf(row);
    const chance = percent(where === NONE ? state.stranger[row] : state.sure[row]);
    const before = { said: "✓ confirmed: ", ask: where === -1 ? "? worth asking" : "? worth asking; guessed: ", guess: "guessed: ", open: "not sorted yet" }[kind];
    $("large-state").replaceChildren(before, ...(where === -1 ? [] : [element("bdi", "", state.className(where)), kind === "said" ? "" : `, ${chance}`]));
    $("large-answers").replaceChildren(...page.answerButtons([big.image], state.isSaid(row) ? where : undefined));
  }
  function largeStep(by) {
    const held = grid.section(big.section);
    if (!held || !held.rows.length) { $("large").close(); return; }
    const here = held.rows.indexOf(now().rowOf.get(big.image));
    const to = here < 0 ? Math.min(big.index, held.rows.length - 1) : here + by;
    if (held.rows[to] === undefined) { toast(by > 0 ? "That was the last." : "That is the first."); return; }
    big = { section: big.section, index: to, image: now().image[held.rows[to]] };
    if (to < held.shown) page.moveTo(big.section, to);
    drawLarge();
  }
  $("large-back").addEventListener("click", () => largeStep(-1));
  $("large-on").addEventListener("click", () => largeStep(1));
  $("large-answers").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.answer) page.answer(Number(button.dataset.answer), [big.image]);
    else page.does(button.dataset.does, [big.image]);
  });
  document.addEventListener("drawn", () => {
    const row = $("large").open ? now().rowOf.get(big.image) : undefined;
    if (row === undefined) return;
    const { answer, does } = document.activeElement?.dataset || {};
    describe(row); // classes may have come or gone
    const same = [...$("large-answers").querySelectorAll("button")].find((one) => one.dataset.answer === answer && one.dataset.does === does);
    if (answer || does) same?.focus();
  });
  document.addEventListener("answered", () => { if ($("large").open) queueMicrotask(() => largeStep(1)); });
  $("large").addEventListener("close", () => {
    const held = grid.section(big.section);
    if (held && big.index < held.shown) page.moveTo(big.section, big.index);
  });

  /* help */
  function help() {
    $("invite-text").textContent = "";
    $("help-dialog").showModal();
  }
  $("invite").addEventListener("click", async () => {
    try {
      const { address } = await post("/invite", {});
      $("invite-text").textContent = address;
    } catch { $("invite-text").textContent = "The server does not answer."; }
  });

  /* the end */
  const value = (name) => document.querySelector(`input[name="${name}"]:checked`).value;
  let planning = 0, planned = 0;
  async function plan() {
    const mine = ++planning, query = `how=${value("how")}&which=${value("which")}`;
    $("labels-csv").href = `/table/labels.csv?which=${value("which")}`;
    $("metadata-csv").href = `/table/metadata.csv?which=${value("which")}`;
    let found;
    try {
      const response = await fetch(`/plan?${query}`);
      found = await response.json();
      if (!response.ok) throw new Error(found.problem);
    } catch {
      if (mine !== planning) return;
      $("finish-wrong").textContent = found?.problem || "The server does not answer.";
      $("apply").hidden = true;
      return;
    }
    if (mine !== planning) return;
    planned = found.version;
    const done = found.sorting;
    if (done && value("how") !== done.how) {
      document.querySelector(`input[name="how"][value="${done.how}"]`).checked = true;
      await plan();
      return;
    }
    $("sorted-now").hidden = !done;
    $("to-sort").hidden = Boolean(done && !done.done);
    document.querySelectorAll('input[name="how"]').forEach((input) => { input.disabled = Boolean(done && input.value !== done.how); });
    if (done) {
      const verb = { copy: "copied", move: "moved", link: "linked" }[done.how];
      $("sorted-text").textContent = done.done ? `${counted(done.files, "file")} ${done.files === 1 ? "has" : "have"} been ${verb} to ${found.out}. Undo puts everything back as it was; so does “${found.command}”, later.` : `A sorting of ${counted(done.files, "file")} was interrupted. Undo it to begin again.`;
    }
    const verb = { copy: "copied", move: "moved", link: "linked by symbolic links" }[value("how")];
    const again = Boolean(done);
    const nothing = value("which") === "confirmed" ? "There is nothing to sort: no image is confirmed yet." : "There is nothing to sort yet: label some images first.";
    const first = element("p", "", !found.files ? nothing : again ? `Sorted again by the answers of now, in ${found.out}; files that lie in the right folder stay:` : `${counted(found.files, "file")} ${found.files === 1 ? "is" : "are"} ${verb} to ${found.out}:`);
    const folders = element("ul");
    folders.tabIndex = 0; // it may have to be scrolled
    folders.setAttribute("aria-label", "Folders");
    folders.append(...Object.entries(found.folders).map(([folder, count]) => {
      const line = element("li");
      line.append(element("span", "", folder), element("span", "", number(count)));
      return line;
    }));
    const rest = [];
    if (found.left) rest.push(`${counted(found.left, "file")} ${found.left === 1 ? "stays" : "stay"} where ${found.left === 1 ? "it is" : "they are"}.`);
    if (found.links) rest.push(`${counted(found.links, "file")} behind links ${found.links === 1 ? "is" : "are"} not moved.`);
    if (value("how") === "copy" && !again) rest.push(`This takes ${size(found.bytes)}; ${size(found.free)} are free.`);
    if (value("how") === "move" && !again) rest.push(`They leave ${found.pile}.`);
    rest.push(`Nothing is overwritten, and “${found.command}” undoes it.`);
    $("plan").replaceChildren(first, ...(found.files ? [folders, element("p", "", rest.join(" "))] : []));
    $("apply").hidden = !found.files;
    $("apply").textContent = again ? "Sort again" : `${{ copy: "Copy", move: "Move", link: "Link" }[value("how")]} ${counted(found.files, "file")}`;
  }
  function size(bytes) {
    const units = ["bytes", "KB", "MB", "GB", "TB"];
    let at = 0;
    while (bytes >= 1000 && at < 4) { bytes /= 1000; at++; }
    return `${bytes < 10 && at ? bytes.toFixed(1) : Math.round(bytes)} ${units[at]}`;
  }
  function finish() {
    $("finish-wrong").textContent = "";
    $("model-text").textContent = "";
    $("finish-dialog").showModal();
    plan();
  }
  async function busy(button, work) {
    button.disabled = true;
    $("finish-wrong").textContent = "";
    try {
      await work();
    } catch (error) { $("finish-wrong").textContent = error.message; } finally { button.disabled = false; }
  }
  function problems(answer) {
    if (answer.problems.length) $("finish-wrong").textContent = `Not done: ${answer.problems.join("; ")}${answer.more ? `; and ${number(answer.more)} more` : ""}`;
  }
  document.querySelectorAll("#to-sort input").forEach((input) => input.addEventListener("change", plan));
  $("apply").addEventListener("click", () => busy($("apply"), async () => {
    const answer = await post("/apply", { how: value("how"), which: value("which"), version: planned }).catch(async (error) => {
      if (error.status === 409) await plan(); // it would not be what was shown
      throw error;
    });
    toast(`${counted(answer.files, "file")} sorted`);
    await plan();
    problems(answer);
  }));
  $("unsort").addEventListener("click", () => busy($("unsort"), async () => {
    const answer = await post("/undo", {});
    toast(answer.said);
    await plan();
    problems(answer);
  }));
  $("model").addEventListener("click", () => busy($("model"), async () => {
    $("model-text").textContent = "Saving…";
    try {
      const { path } = await post("/model", {});
      $("model-text").textContent = `Saved in ${path}`;
    } catch (error) {
      $("model-text").textContent = "";
      throw error;
    }
  }));

  return { name, edit, find, large, largeStep, largeImage: () => big.image, help, finish };
}
