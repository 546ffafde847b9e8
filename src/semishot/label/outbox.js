// What the page posts to the server, and answers that wait until they are on its disk.

export async function post(path, body) {
  const response = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  const type = response.headers.get("content-type") || "";
  const answer = type.includes("json") ? await response.json() : { problem: (await response.text()).trim() };
  if (!response.ok) throw Object.assign(new Error(answer.problem || "refused"), { status: response.status });
  return answer;
}

/** Answers on their way: kept until they are known to be on disk, sent again if the server was away. */
export const outboxOf = (page) => ({
  waiting: JSON.parse(sessionStorage.getItem("waiting") || "[]"),
  sent: [],
  busy: false,
  last: 0, // the newest event that is known to be on disk
  problem: "", // why the first of them cannot be written
  add(event, overlay = []) {
    const entry = { event: { ...event, pile: page.state().pile, key: crypto.getRandomValues(new Uint32Array(4)).join("-") }, overlay };
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
        this.sent.push({ event, overlay: entry.overlay, reject: entry.event.value });
        this.last = event;
        this.problem = "";
        entry.done?.(event);
      } catch (error) {
        if (!error.status || error.status >= 500 || error.status === 429 || error.status === 401) {
          this.problem = error.status >= 500 ? error.message : "";
          page.lost(true, error.status);
          await new Promise((go) => setTimeout(go, 1000));
          continue;
        }
        entry.failed ? entry.failed(error) : page.toast(error.message);
      }
      this.waiting.shift();
      this.keep();
    }
    this.busy = false;
    page.lost(false);
  },
  pending() {
    this.sent = this.sent.filter(({ event }) => event > page.state().event);
    return [...this.sent, ...this.waiting].flatMap(({ overlay }) => overlay);
  },
  /** The newest cutoff on its way, if there is one. */
  reject() {
    return [...this.sent.map(({ reject }) => reject), ...this.waiting.map(({ event }) => event.value)].findLast((value) => value !== undefined);
  },
});
