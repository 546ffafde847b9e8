// The last dialog: what a sorting would do, the sorting and its undo, tables and the model.

import { $, counted, element, number, on, toast } from "/dom.js";
import { post } from "/server.js";

const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`).value;

/** What opens it. */
export function finishDialog() {
  let planning = 0, planned = 0;
  async function plan() {
    const mine = ++planning, how = chosen("how"), which = chosen("which");
    for (const link of document.querySelectorAll("#tables a")) link.href = `/table/${link.download}?which=${which}`;
    const response = await fetch(`/plan?how=${how}&which=${which}`).catch(() => null);
    const proposed = await response?.json() || { problem: "The server does not answer." };
    if (mine !== planning) return;
    if (proposed.problem) {
      $("finish-wrong").textContent = proposed.problem;
      $("apply").hidden = true;
      return;
    }
    planned = proposed.version;
    if (proposed.sorting && how !== proposed.sorting.how) {
      document.querySelector(`input[name="how"][value="${proposed.sorting.how}"]`).checked = true;
      await plan();
      return;
    }
    drawSorted(proposed);
    drawPlan(proposed, how, which);
  }
  document.querySelectorAll("#to-sort input").forEach((input) => input.addEventListener("change", plan));
  async function change(path, body) {
    const { said, files, problems, more } = await post(path, body).catch(async (error) => {
      if (error.status === 409) await plan(); // it would not be what was shown
      throw error;
    });
    toast(said || `${counted(files, "file")} sorted`);
    await plan();
    if (problems.length) $("finish-wrong").textContent = `Not done: ${problems.join("; ")}${more ? `; and ${number(more)} more` : ""}`;
  }
  on("apply", "click", () => busy($("apply"), () => change("/apply", { how: chosen("how"), which: chosen("which"), version: planned })));
  on("unsort", "click", () => busy($("unsort"), () => change("/undo", {})));
  on("keywords", "click", () => busy($("keywords"), async () => {
    const { path, files } = await post("/keywords", { which: chosen("which") });
    $("model-text").textContent = `${counted(files, "sidecar")} in ${path}`;
  }));
  on("model", "click", () => busy($("model"), async () => {
    $("model-text").textContent = "Saving…";
    const { path } = await post("/model", {}).finally(() => { $("model-text").textContent = ""; });
    $("model-text").textContent = `Saved in ${path}`;
  }));
  return () => {
    $("finish-wrong").textContent = $("model-text").textContent = "";
    $("finish-dialog").showModal();
    plan();
  };
}

/** The sorting that has been done or was interrupted, if there is one. */
function drawSorted({ sorting, out, command }) {
  $("sorted-now").hidden = !sorting;
  $("to-sort").hidden = Boolean(sorting && !sorting.done);
  document.querySelectorAll('input[name="how"]').forEach((input) => { input.disabled = Boolean(sorting && input.value !== sorting.how); });
  if (!sorting) return;
  const verb = { copy: "copied", move: "moved", link: "linked" }[sorting.how];
  $("sorted-text").textContent = sorting.done ? `${counted(sorting.files, "file")} ${sorting.files === 1 ? "has" : "have"} been ${verb} to ${out}. Undo puts everything back as it was; so does “${command}”, later.` : `A sorting of ${counted(sorting.files, "file")} was interrupted. Undo it to begin again.`;
}

/** What Apply would do. */
function drawPlan(proposed, how, which) {
  const again = Boolean(proposed.sorting);
  const verb = { copy: "copied", move: "moved", link: "linked by symbolic links" }[how];
  const nothing = which === "confirmed" ? "There is nothing to sort: no image is confirmed yet." : "There is nothing to sort yet: label some images first.";
  const first = element("p", "", !proposed.files ? nothing : again ? `Sorted again by the answers of now, in ${proposed.out}; files that lie in the right folder stay:` : `${counted(proposed.files, "file")} ${proposed.files === 1 ? "is" : "are"} ${verb} to ${proposed.out}:`);
  const folders = element("ul");
  folders.tabIndex = 0; // it may have to be scrolled
  folders.setAttribute("aria-label", "Folders");
  folders.append(...Object.entries(proposed.folders).map(([folder, count]) => {
    const line = element("li");
    line.append(element("span", "", folder), element("span", "", number(count)));
    return line;
  }));
  const rest = [];
  if (proposed.left) rest.push(`${counted(proposed.left, "file")} ${proposed.left === 1 ? "stays" : "stay"} where ${proposed.left === 1 ? "it is" : "they are"}.`);
  if (proposed.links) rest.push(`${counted(proposed.links, "file")} behind links ${proposed.links === 1 ? "is" : "are"} not moved.`);
  if (how === "copy" && !again) rest.push(`This takes ${size(proposed.bytes)}; ${size(proposed.free)} are free.`);
  if (how === "move" && !again) rest.push(`They leave ${proposed.pile}.`);
  rest.push(`Nothing is overwritten, and “${proposed.command}” undoes it.`);
  $("plan").replaceChildren(first, ...(proposed.files ? [folders, element("p", "", rest.join(" "))] : []));
  $("apply").hidden = !proposed.files;
  $("apply").textContent = again ? "Sort again" : `${{ copy: "Copy", move: "Move", link: "Link" }[how]} ${counted(proposed.files, "file")}`;
}

async function busy(button, work) {
  button.disabled = true;
  $("finish-wrong").textContent = "";
  try {
    await work();
  } catch (error) { $("finish-wrong").textContent = error.message; } finally { button.disabled = false; }
}

function size(bytes) {
  const units = ["bytes", "KB", "MB", "GB", "TB"];
  let at = 0;
  while (bytes >= 1000 && at < 4) { bytes /= 1000; at++; }
  return `${bytes < 10 && at ? bytes.toFixed(1) : Math.round(bytes)} ${units[at]}`;
}
