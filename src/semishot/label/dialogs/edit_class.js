// The dialog that renames, merges or deletes a class.

import { $, counted, element } from "/words.js";

/** What opens it, for the id of a class. */
export function editClassDialog(page) {
  let editing = 0;
  function open(id) {
    editing = id;
    const state = page.state, index = state.index(id);
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
      await page.outbox.add(event);
      $("class-dialog").close();
    } catch (error) { $("class-wrong").textContent = error.message; }
  }
  $("class-dialog").querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    change({ kind: "rename", class: editing, name: $("class-name").value });
  });
  $("class-merge").addEventListener("click", () => change({ kind: "merge", class: editing, into: Number($("class-into").value) }));
  $("class-delete").addEventListener("click", () => change({ kind: "delete", class: editing }));

  return open;
}
