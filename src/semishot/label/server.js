// In step with the server: answers that wait until they are on its disk, its newest state, names and files.

import { complain, counted, plainText } from "/dom.js";
import { isGone, page, State } from "/state.js";

const NAMES_AT_ONCE = 400, PAUSE = 100, AWAY = 1000, SCROLLED = 120;
const GONE = "The server does not answer.";

export const post = (path, body = {}) =>
  ask(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

/** What the server answers, or an error with its words and status; without a status, it is away. */
export async function ask(path, options) {
  const response = await fetch(path, options).catch(() => { throw new Error(GONE); });
  const isJson = (response.headers.get("content-type") || "").includes("json");
  const reply = isJson ? await response.json() : { problem: (await response.text()).trim() };
  if (!response.ok) throw Object.assign(new Error(reply.problem || "refused"), { status: response.status });
  return reply;
}

/** Answers on their way: kept until they are known to be on disk, sent again if the server was away. */
export const outbox = {
  waiting: JSON.parse(sessionStorage.getItem("waiting") || "[]"),
  sent: [],
  busy: false,
  last: 0, // the newest event that is known to be on disk
  problem: "", // why the first of them cannot be written
  /** `overlay`: what it says of images, [[image, answer], …]. */
  add(event, overlay = []) {
    const key = crypto.getRandomValues(new Uint32Array(4)).join("-");
    return new Promise((done, failed) => {
      this.waiting.push({ event: { ...event, pile: page.state.pile, key }, overlay, done, failed });
      this.keep(); // JSON has no functions: after a reload, nobody waits for it
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
        this.problem = "";
        fetchState();
        entry.done?.(event);
      } catch (error) {
        if (!error.status || error.status >= 500 || error.status === 401) {
          this.problem = error.status >= 500 ? error.message : "";
          lost(true, error.status);
          await new Promise((go) => setTimeout(go, AWAY));
          continue;
        }
        (entry.failed || complain)(error);
      }
      this.waiting.shift();
      this.keep();
    }
    this.busy = false;
    lost(false);
  },
  pending() {
    this.sent = this.sent.filter(({ event }) => event > page.state.event);
    return [...this.sent, ...this.waiting].flatMap(({ overlay }) => overlay);
  },
  /** Whether the state takes all answers into account. */
  isJudged() {
    return !this.waiting.length && page.state.event >= this.last;
  },
};

let news = {}, fetching = false, again = 0, away = false, unknown = false;

/** The server answers when there are news, or after a second; a hidden tab does not ask. */
export async function follow() {
  clearTimeout(again);
  if (document.hidden) return;
  let pause = PAUSE;
  try {
    news = await ask(`/news/${news.version || 0}`);
    const { phase } = news.progress;
    page.reading = phase === "reading" || phase === "listing" ? news.progress : null;
    lost(false);
    fetchState();
  } catch (error) {
    pause = AWAY;
    lost(true, error.status);
  }
  clearTimeout(again);
  again = setTimeout(follow, pause);
}

/** The server answers as soon as the last answer is judged. */
export async function fetchState() {
  const { state } = page, { epoch, version } = state || {};
  const behind = !state || epoch !== news.epoch || version < news.version || !outbox.isJudged();
  if (fetching || !behind) return;
  fetching = true;
  const response = await fetch(`/state/${outbox.last}`).catch(() => null);
  const buffer = response?.ok && (await response.arrayBuffer().catch(() => null));
  while (page.held) await new Promise((go) => setTimeout(go, 20)); // nothing moves away under a button
  fetching = false;
  if (!buffer) return; // the news say when the server is back
  const next = new State(buffer);
  if (state?.rows && !next.rows) return; // it has just started: what was shown stays
  take(next);
  if (next.epoch !== epoch || next.version !== version) fetchState();
}

export function refetch() {
  page.state.version = -1;
  fetchState();
}

function take(next) {
  const { selected, state } = page;
  page.state = next;
  const moving = [...outbox.sent, ...outbox.waiting.map(({ event }) => event)].some(({ kind }) => kind === "reject");
  next.overlay(outbox.pending());
  if (moving) next.cutoff = state.cutoff; // the slider has moved since
  if (isGone(page.view)) page.view = page.view.startsWith("kind:") ? "kinds" : "all";
  if (page.fresh && !selected.size && next.kinds.length && !next.classes.length) page.view = "kinds";
  if (next.event >= outbox.last) page.judged.clear();
  for (const image of selected) if (!next.rowOf.has(image)) selected.delete(image);
  page.draw(Boolean(state?.rows));
}

/** The server is away or back; `status` is what it has refused an answer with. */
function lost(now, status = 0) {
  if (away && !now) page.reload(); // what could not be loaded meanwhile
  away = now;
  unknown = now && (status === 401 || (unknown && !status));
  page.banner = problemNow();
  page.paint();
}

function problemNow() {
  const { problem, waiting } = outbox, answers = counted(waiting.length, "answer");
  if (unknown) return "The server does not know this tab any more: open the address that semishot label has printed.";
  if (problem) {
    const wait = waiting.length === 1 ? "waits" : "wait";
    return `${problem}. ${answers} of yours ${wait} in this tab, and will be sent again; do not close it.`;
  }
  if (away) {
    const sent = waiting.length ? ` ${answers} will be sent when it is back.` : "";
    return `${GONE} What you have answered is safe.${sent} Start semishot label again to go on.`;
  }
  return news.problem || (news.progress?.problem ? `Reading has stopped: ${news.progress.problem}` : "");
}

const asking = new Set();
let naming = 0;

/** Ask for the names of files, when scrolling has settled; `images` says which are on the screen then. */
export function askNames(images) {
  clearTimeout(naming);
  naming = setTimeout(async () => {
    const unnamed = images().filter((image) => !page.names.has(image) && !asking.has(image));
    const wanted = [...new Set(unnamed)].slice(0, NAMES_AT_ONCE);
    if (!wanted.length) return;
    wanted.forEach((image) => asking.add(image));
    try {
      const reply = await post("/names", { images: wanted });
      for (const image of wanted) page.names.set(image, plainText(reply[image]?.[0] || `image ${image}`));
      page.paint();
    } catch { /* names come with the next scroll */ } finally {
      wanted.forEach((image) => asking.delete(image));
    }
  }, SCROLLED);
}

/** The folders of the pile, and the files that are skipped. */
export async function fetchFiles() {
  const skippedThen = page.state.skipped, files = await ask("/files").catch(complain);
  page.files = { ...(files || page.files), skippedThen };
  page.paint();
}
