// In step with the server: answers that wait until they are on its disk, its newest state.

import { $, banner, counted, number, plainText, toast } from "/dom.js";
import { currentImage } from "/navigation.js";
import { State } from "/state.js";
import { draw, isGone, repaint } from "/views.js";

const NAMES_AT_ONCE = 400, PAUSE = 100, AWAY = 1000;

export async function post(path, body) {
  const response = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  const type = response.headers.get("content-type") || "";
  const reply = type.includes("json") ? await response.json() : { problem: (await response.text()).trim() };
  if (!response.ok) throw Object.assign(new Error(reply.problem || "refused"), { status: response.status });
  return reply;
}

/** Answers on their way: kept until they are known to be on disk, sent again if the server was away. */
export const outboxOf = (page) => ({
  waiting: JSON.parse(sessionStorage.getItem("waiting") || "[]"),
  sent: [],
  busy: false,
  last: 0, // the newest event that is known to be on disk
  problem: "", // why the first of them cannot be written
  add(event, overlay = []) {
    const entry = { event: { ...event, pile: page.state.pile, key: crypto.getRandomValues(new Uint32Array(4)).join("-") }, overlay };
    this.waiting.push(entry);
    this.keep();
    return new Promise((done, failed) => {
      Object.defineProperties(entry, { done: { value: done }, failed: { value: failed } });
      this.send();
    });
  },
  keep() {
    try { sessionStorage.setItem("waiting", JSON.stringify(this.waiting)); } catch { /* too large: it is in memory */ }
  },
  async send() {
    if (this.busy) return;
    this.busy = true;
    while (this.waiting.length) {
      const entry = this.waiting[0];
      try {
        const { event } = await post("/answer", entry.event);
        this.sent.push({ event, overlay: entry.overlay, kind: entry.event.kind });
        this.last = event;
        page.server.fetchState();
        this.problem = "";
        entry.done?.(event);
      } catch (error) {
        if (!error.status || error.status >= 500 || error.status === 401) {
          this.problem = error.status >= 500 ? error.message : "";
          page.server.lost(true, error.status);
          await new Promise((go) => setTimeout(go, 1000));
          continue;
        }
        entry.failed ? entry.failed(error) : toast(error.message);
      }
      this.waiting.shift();
      this.keep();
    }
    this.busy = false;
    page.server.lost(false);
  },
  pending() {
    this.sent = this.sent.filter(({ event }) => event > page.state.event);
    return [...this.sent, ...this.waiting].flatMap(({ overlay }) => overlay);
  },
});

/** isHeld: whether a button is held down, under which nothing must move away. */
export function serverOf(page, isHeld) {
  let news = {}, fetching = false, again = 0, away = false, unknown = false;
  const isBehind = () => !page.state || page.state.epoch !== news.epoch || page.state.version < news.version || page.state.event < page.outbox.last;
  /** The server answers when there are news, or after a second; a hidden tab does not ask. */
  async function follow() {
    clearTimeout(again);
    if (document.hidden) return;
    const response = await fetch(`/news/${news.version || 0}`).catch(() => null);
    if (response?.ok) {
      news = await response.json();
      lost(false);
      drawReading(news.progress);
      fetchState();
    } else lost(true, response?.status);
    clearTimeout(again);
    again = setTimeout(follow, response?.ok ? PAUSE : AWAY);
  }
  document.addEventListener("visibilitychange", follow);
  /** The server answers as soon as the last answer is judged. */
  async function fetchState() {
    if (fetching || !isBehind()) return;
    const { epoch, version } = page.state || {};
    fetching = true;
    try {
      const response = await fetch(`/state/${page.outbox.last}`);
      if (!response.ok) throw new Error(response.statusText);
      const next = new State(await response.arrayBuffer());
      if (page.state?.rows && !next.rows) return; // the server has just started: what was shown stays
      while (isHeld()) await new Promise((go) => setTimeout(go, 20));
      take(next);
    } catch { return; /* the news say when the server is back */ } finally {
      fetching = false;
    }
    if (page.state.epoch !== epoch || page.state.version !== version) fetchState();
  }
  function refetch() {
    if (!news.version) return;
    page.state.version = -1;
    fetchState();
  }
  function take(next) {
    const { outbox, selected, state } = page, first = !page.state?.rows, focusedImage = currentImage(page);
    page.state = next;
    next.overlay(outbox.pending());
    if ([...outbox.sent, ...outbox.waiting.map(({ event }) => event)].some(({ kind }) => kind === "reject")) next.cutoff = state.cutoff; // the slider has moved since
    if (isGone(next, page.view)) page.view = page.view.startsWith("kind:") ? "kinds" : "all";
    if (page.fresh && !selected.size && next.kinds.length && !next.classes.length) page.view = "kinds";
    if (next.event >= outbox.last) page.judged.clear();
    for (const image of selected) if (!next.rowOf.has(image)) selected.delete(image);
    draw(page, !first, focusedImage);
  }
  /** The server is away or back; `status` is what it has refused an answer with. */
  function lost(now, status = 0) {
    const { problem, waiting } = page.outbox, answers = counted(waiting.length, "answer");
    if (away && !now) page.grid.load(true); // what could not be loaded meanwhile
    away = now;
    unknown = now && (status === 401 || (unknown && !status));
    if (unknown) banner("The server does not know this tab any more: open the address that semishot label has printed.");
    else if (problem) banner(`${problem}. ${answers} of yours ${waiting.length === 1 ? "waits" : "wait"} in this tab, and will be sent again; do not close it.`);
    else if (away) banner(`The server does not answer. What you have answered is safe.${waiting.length ? ` ${answers} will be sent when it is back.` : ""} Start semishot label again to go on.`);
    else if (news.problem) banner(news.problem);
    else banner(news.progress?.problem ? `Reading has stopped: ${news.progress.problem}` : "");
  }
  return { follow, fetchState, refetch, lost };
}

function drawReading({ phase, done, total, rate }) {
  const busy = phase === "reading" || phase === "listing";
  $("reading").hidden = !busy;
  if (!busy) return;
  $("reading-bar").max = total || 1;
  $("reading-bar").value = done;
  const left = rate > 0 ? (total - done) / rate : 0;
  const time = left > 5400 ? `${Math.round(left / 3600)} h` : left > 90 ? `${Math.round(left / 60)} min` : `${Math.ceil(left)} s`;
  $("reading-text").textContent = phase === "listing" ? "Looking for images" :
    `${number(done)} of ${number(total)} images read${rate ? `, ${rate < 10 ? rate.toFixed(1) : Math.round(rate)} per second, ${time} left` : ""}`;
}

/** What asks for the names of the files on the screen, when scrolling has settled. */
export function fileNames(page) {
  const { names } = page, asking = new Set();
  let naming = 0;
  return (tiles) => {
    clearTimeout(naming);
    naming = setTimeout(async () => {
      const wanted = tiles.filter((tile) => tile.isConnected && !names.has(tile.image) && !asking.has(tile.image));
      const images = [...new Set(wanted.map((tile) => tile.image))].slice(0, NAMES_AT_ONCE);
      if (!images.length) return;
      images.forEach((image) => asking.add(image));
      try {
        const reply = await post("/names", { images });
        if (names.size > 20000) names.clear();
        for (const [image, files] of Object.entries(reply)) names.set(Number(image), plainText(files[0] || `image ${image}`));
        for (const tile of page.grid.tiles.values()) if (reply[tile.image]) repaint(page, tile);
      } catch { /* names come with the next scroll */ } finally {
        images.forEach((image) => asking.delete(image));
      }
    }, 120);
  };
}
