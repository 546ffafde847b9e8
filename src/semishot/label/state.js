// What the server says of every image, in columns; and what the page makes of it: which image is shown where.

export const NONE = -2, UNKNOWN = -1;
export const MISSING = 1, CHANGED = 2;

export class State {
  constructor(buffer) {
    const length = new DataView(buffer).getUint32(0, true);
    Object.assign(this, JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length))));
    let at = 4 + length;
    const column = (Type) => {
      const values = new Type(buffer, at, this.rows);
      at += Math.ceil((this.rows * Type.BYTES_PER_ELEMENT) / 8) * 8;
      return values;
    };
    this.image = column(Uint32Array);
    this.group = column(Uint32Array);
    this.score = column(Float32Array);
    this.answer = column(Int16Array);
    this.guess = column(Int16Array);
    this.sure = column(Uint8Array);
    this.stranger = column(Uint8Array);
    this.flags = column(Uint8Array);
    this.copies = column(Uint8Array);
    this.rowOf = new Map();
    this.stack = new Map();
    for (let row = 0; row < this.rows; row++) {
      const image = this.image[row], group = this.group[row];
      this.rowOf.set(image, row);
      if (group !== image) this.stack.set(group, (this.stack.get(group) || 1) + 1);
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
      const row = this.rowOf.get(image), index = value > 0 ? this.index(value) : value === 0 ? NONE : UNKNOWN;
      if (row !== undefined && (value <= 0 || index >= 0)) this.answer[row] = index;
    }
  }

  cutoff() {
    if (!this.judged) return -Infinity;
    const at = this.rejects.findIndex((value) => value >= this.rejectNow - 1e-9);
    if (at <= 0) return this.cutoffs.at(at);
    const [a, b] = [Math.log(this.rejects[at - 1]), Math.log(this.rejects[at])];
    const part = (Math.log(this.rejectNow) - a) / (b - a);
    return this.cutoffs[at - 1] + part * (this.cutoffs[at] - this.cutoffs[at - 1]);
  }

  /** The class that a row is shown in: its index, NONE or UNKNOWN. */
  shownIn(row) {
    if (this.isConfirmed(row)) return this.answer[row];
    if (this.guess[row] < 0) return UNKNOWN;
    return this.score[row] < this.cutoffNow ? NONE : this.guess[row];
  }

  isConfirmed(row) {
    return this.answer[row] !== UNKNOWN;
  }

  /** Whether a row has a tile: near copies with the same answer have one together. */
  hasTile(row) {
    if (this.group[row] === this.image[row]) return true;
    return this.answer[row] !== this.answer[this.rowOf.get(this.group[row])];
  }

  /** Rows of each class, the surest guess first; `least` turns that round. */
  arrange(least = false) {
    this.cutoffNow = this.cutoff();
    const empty = () => ({ guessed: [], confirmed: [], files: 0, confirmedFiles: 0 });
    const classes = this.classes.map(empty), none = empty(), unknown = empty(), odd = [];
    const partOf = (index) => (index === NONE ? none : index === UNKNOWN ? unknown : classes[index]);
    for (let row = 0; row < this.rows; row++) {
      const part = partOf(this.shownIn(row)), confirmed = this.isConfirmed(row);
      part.files++;
      if (confirmed) part.confirmedFiles++;
      if (this.flags[row] & (MISSING | CHANGED)) odd.push(row);
      if (this.hasTile(row)) (confirmed ? part.confirmed : part.guessed).push(row);
    }
    for (const part of classes) part.guessed = byBucket(part.guessed, this.sure, least);
    none.guessed = byBucket(none.guessed, this.stranger, least);
    const doubtful = this.rowsOf(this.doubtful.map(([image]) => image));
    const asked = this.rowsOf(this.asked).filter((row) => !this.isConfirmed(row));
    return { classes, none, unknown, odd, doubtful, asked };
  }

  rowsOf(images) {
    return images.map((image) => this.rowOf.get(image)).filter((row) => row !== undefined);
  }

  /** What the cutoff does: how many go out, of how many, members likely lost, strangers likely kept; and the scores. */
  putOut() {
    const cutoff = this.cutoff(), effect = { out: 0, of: 0, lost: 0, missed: 0, scores: [] };
    for (let row = 0; row < this.rows; row++) {
      if (this.isConfirmed(row) || this.guess[row] < 0) continue;
      const out = this.score[row] < cutoff, stranger = this.stranger[row] / 255;
      effect.of++;
      effect.out += out;
      effect.lost += out ? 1 - stranger : 0;
      effect.missed += out ? 0 : stranger;
      if (Number.isFinite(this.score[row])) effect.scores.push(this.score[row]);
    }
    return effect;
  }
}

/** Rows in 32 steps of a column of bytes, largest first: small changes move nothing. */
function byBucket(rows, column, least) {
  const buckets = Array.from({ length: 32 }, () => []);
  for (const row of rows) buckets[column[row] >> 3].push(row);
  if (!least) buckets.reverse();
  return buckets.flat();
}
