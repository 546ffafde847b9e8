// What the server says of every image, in columns; and what the page makes of it: who lies where.

export const NONE = -2, UNKNOWN = -1;
export const MISSING = 1, CHANGED = 2;
const UNANSWERED = -1;

export class State {
  constructor(buffer) {
    const length = new DataView(buffer).getUint32(0, true);
    Object.assign(this, JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length))));
    let at = 4 + length;
    const column = (Type) => {
      const found = new Type(buffer, at, this.rows);
      at += Math.ceil((this.rows * Type.BYTES_PER_ELEMENT) / 8) * 8;
      return found;
    };
    this.image = column(Uint32Array);
    this.group = column(Uint32Array);
    this.score = column(Float32Array);
    this.said = column(Int16Array);
    this.guess = column(Int16Array);
    this.sure = column(Uint8Array);
    this.stranger = column(Uint8Array);
    this.flags = column(Uint8Array);
    this.copies = column(Uint8Array);
    this.rowOf = new Map();
    for (let row = 0; row < this.rows; row++) this.rowOf.set(this.image[row], row);
    this.stack = new Map();
    for (let row = 0; row < this.rows; row++) {
      if (this.group[row] !== this.image[row]) {
        this.stack.set(this.group[row], (this.stack.get(this.group[row]) || 1) + 1);
      }
    }
    this.isAsked = new Set(this.asked);
    this.doubts = new Map(this.doubtful.map(([image, suggested, chance]) => [image, { suggested, chance }]));
    this.judged = this.cutoffs !== null;
    this.rejectNow = this.reject;
  }

  index(classId) {
    return this.classes.findIndex(([id]) => id === classId);
  }

  className(index) {
    return index === NONE ? "none of these" : index < 0 ? "not sorted" : this.classes[index][1];
  }

  /** Answers on their way, shown at once. */
  overlay(pending) {
    for (const [image, value] of pending) {
      const row = this.rowOf.get(image);
      if (row === undefined) continue;
      if (value === UNANSWERED) this.said[row] = UNKNOWN;
      else if (value === 0) this.said[row] = NONE;
      else {
        const place = this.index(value);
        if (place >= 0) this.said[row] = place;
      }
    }
  }

  cutoff() {
    return this.judged ? this.cutoffAt(this.rejectNow) : -Infinity;
  }

  cutoffAt(reject) {
    const at = this.rejects.findIndex((value) => value >= reject - 1e-9);
    if (at <= 0) return this.cutoffs[at === 0 ? 0 : this.cutoffs.length - 1];
    const [a, b] = [Math.log(this.rejects[at - 1]), Math.log(this.rejects[at])];
    const part = (Math.log(reject) - a) / (b - a);
    return this.cutoffs[at - 1] + part * (this.cutoffs[at] - this.cutoffs[at - 1]);
  }

  /** The class that a row is shown in: its index, NONE or UNKNOWN. */
  placeOf(row) {
    if (this.said[row] !== UNKNOWN) return this.said[row];
    if (this.guess[row] < 0) return UNKNOWN;
    return this.score[row] < this.cutoffNow ? NONE : this.guess[row];
  }

  isSaid(row) {
    return this.said[row] !== UNKNOWN;
  }

  /** Whether a row has a tile: near copies with the same answer have one together. */
  hasTile(row) {
    if (this.group[row] === this.image[row]) return true;
    return this.said[row] !== this.said[this.rowOf.get(this.group[row])];
  }

  /** Rows of each place, the surest guess first; `least` turns that round. */
  arrange(least = false) {
    this.cutoffNow = this.cutoff();
    const count = this.classes.length;
    const empty = () => ({ guessed: [], said: [], files: 0, saidFiles: 0 });
    const places = Array.from({ length: count }, empty);
    const none = empty(), unknown = empty(), odd = [];
    const of = (place) => (place === NONE ? none : place === UNKNOWN ? unknown : places[place]);
    for (let row = 0; row < this.rows; row++) {
      const held = of(this.placeOf(row));
      held.files++;
      if (this.isSaid(row)) held.saidFiles++;
      if (this.flags[row] & (MISSING | CHANGED)) odd.push(row);
      if (this.hasTile(row)) (this.isSaid(row) ? held.said : held.guessed).push(row);
    }
    for (const held of places) held.guessed = byBucket(held.guessed, this.sure, least);
    none.guessed = byBucket(none.guessed, this.stranger, least);
    const doubtful = this.doubtful.map(([image]) => this.rowOf.get(image)).filter((row) => row !== undefined);
    const asked = this.asked.map((image) => this.rowOf.get(image)).filter((row) => row !== undefined && !this.isSaid(row));
    return { places, none, unknown, odd, doubtful, asked };
  }

  /** What the cutoff does: how many go out, of how many, members likely lost, strangers likely kept. */
  putOut() {
    const cutoff = this.cutoff(), found = { out: 0, of: 0, lost: 0, missed: 0 };
    for (let row = 0; row < this.rows; row++) {
      if (this.said[row] !== UNKNOWN || this.guess[row] < 0) continue;
      const out = this.score[row] < cutoff, stranger = this.stranger[row] / 255;
      found.of++;
      found.out += out;
      found.lost += out ? 1 - stranger : 0;
      found.missed += out ? 0 : stranger;
    }
    return found;
  }

  /** Counts of scores in bins, and the range they cover. */
  histogram(bins) {
    const scores = [];
    for (let row = 0; row < this.rows; row++) {
      if (this.said[row] === UNKNOWN && this.guess[row] >= 0 && Number.isFinite(this.score[row])) scores.push(this.score[row]);
    }
    let low = Math.min(...this.cutoffs), high = Math.max(...this.cutoffs);
    for (const score of scores) { low = Math.min(low, score); high = Math.max(high, score); }
    const counts = new Array(bins).fill(0);
    for (const score of scores) counts[Math.min(bins - 1, Math.floor(((score - low) / (high - low || 1)) * bins))]++;
    return { counts, low, high };
  }
}

/** Rows in 32 steps of a column of bytes, largest first: small changes move nothing. */
function byBucket(rows, column, least) {
  const buckets = Array.from({ length: 32 }, () => []);
  for (const row of rows) buckets[column[row] >> 3].push(row);
  if (!least) buckets.reverse();
  return buckets.flat();
}
