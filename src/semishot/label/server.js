// In step with the server: its events, its newest state, and whether it is there.

import { draw } from "/draw.js";
import { banner, drawReading } from "/messages.js";
import { isGone } from "/places.js";
import { currentImage } from "/selection.js";
import { State } from "/state.js";
import { counted } from "/words.js";

export function serverOf(page, isHeld) {
  let known = {}, fetching = false, stream = null, again = 0, away = false, stranger = false;
  /** Follow the server; a hidden tab does not, and does again when it is shown. */
  function follow() {
    clearTimeout(again);
    stream?.close();
    const events = stream = new EventSource("/events");
    events.onmessage = ({ data }) => {
      known = JSON.parse(data);
      lost(false);
      drawReading(known.progress);
      fetchState();
    };
    events.onerror = () => {
      lost(true);
      if (events === stream && events.readyState === EventSource.CLOSED) refused(); // the browser does not try again
    };
  }
  async function refused() {
    again = setTimeout(() => document.hidden || follow(), 2000);
    const response = await fetch("/state").catch(() => null);
    if (response?.status === 401) lost(true, 401);
  }
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stream.close();
    else follow();
  });
  async function fetchState() {
    const { state } = page;
    if (fetching || (state && state.epoch === known.epoch && state.version >= known.version)) return;
    fetching = true;
    try {
      const response = await fetch("/state");
      if (!response.ok) throw new Error(response.statusText);
      const next = new State(await response.arrayBuffer());
      while (isHeld()) await new Promise((go) => setTimeout(go, 20));
      take(page, next);
    } catch { /* the event stream says when the server is back */ } finally {
      fetching = false;
    }
    if (page.state && known.epoch && (page.state.epoch !== known.epoch || page.state.version < known.version)) fetchState();
  }
  function refetch() {
    if (!known.version) return;
    page.state.version = -1;
    fetchState();
  }
  /** The server is away or back; `status` is what it has refused an answer with. */
  function lost(now, status = 0) {
    const { outbox } = page;
    if (away && !now) page.grid.retry(); // what could not be loaded meanwhile
    away = now;
    stranger = now && (status === 401 || (stranger && !status));
    const waits = outbox.waiting.length ? ` ${counted(outbox.waiting.length, "answer")} will be sent when it is back.` : "";
    if (stranger) banner("The server does not know this tab any more: open the address that semishot label has printed.");
    else if (outbox.problem) banner(`${outbox.problem}. ${counted(outbox.waiting.length, "answer")} of yours ${outbox.waiting.length === 1 ? "waits" : "wait"} in this tab, and will be sent again; do not close it.`);
    else if (away) banner(`The server does not answer. What you have answered is safe.${waits} Start semishot label again to go on.`);
    else if (known.problem) banner(known.problem);
    else banner(known.progress?.problem ? `Reading has stopped: ${known.progress.problem}` : "");
  }
  return { follow, fetchState, refetch, lost };
}

function take(page, next) {
  const { outbox, selected } = page;
  const first = !page.state?.rows;
  const focusedImage = currentImage(page);
  page.state = next;
  next.overlay(outbox.pending());
  next.rejectNow = outbox.reject() ?? next.reject;
  if (isGone(next, page.place)) page.place = "all";
  for (const image of selected) if (!next.rowOf.has(image)) selected.delete(image);
  draw(page, !first, focusedImage);
}
