// What the server says of every image, in columns; and what the page makes of it: which image is shown where.

export const NONE = -2, UNKNOWN = -1;
export const STEPS = 65535; // probabilities are whole numbers of 1 / STEPS

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
    this.answer = column(Int16Array);
    this.guess = column(Int16Array);
    this.sure = column(Uint16Array);
    this.stranger = column(Uint16Array);
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
  }

  index(classId) {
    return this.classes.findIndex(([id]) => id === classId);
  }

  className(index) {
    return index === NONE ? "stranger" : index < 0 ? "not sorted" : this.classes[index][1];
  }

  /** The key and the color of a class are its own while it lives. */
  slot(index) {
    return index < 0 ? index : this.classes[index][2];
  }

  /** Answers on their way, shown at once. */
  overlay(pending) {
    for (const [image, value] of pending) {
      const row = this.rowOf.get(image), index = value > 0 ? this.index(value) : value === 0 ? NONE : UNKNOWN;
      if (row !== undefined && (value <= 0 || index >= 0)) this.answer[row] = index;
    }
  }

  /** The class that a row is shown in: its index, NONE or UNKNOWN. */
  shownIn(row) {
    if (this.isConfirmed(row)) return this.answer[row];
    if (this.guess[row] < 0) return UNKNOWN;
    const out = this.cutoff === null ? this.stranger[row] > this.sure[row] : this.stranger[row] >= this.cutoff;
    return out ? NONE : this.guess[row];
  }

  /** The probability, of STEPS, of what a row is shown in. */
  chance(row) {
    if (this.isConfirmed(row)) return STEPS;
    const where = this.shownIn(row);
    return where === UNKNOWN ? 0 : where === NONE ? this.stranger[row] : this.sure[row];
  }

  isConfirmed(row) {
    return this.answer[row] !== UNKNOWN;
  }

  /** Whether a row has a tile: near copies with the same answer have one together. */
  hasTile(row) {
    if (this.group[row] === this.image[row]) return true;
    return this.answer[row] !== this.answer[this.rowOf.get(this.group[row])];
  }

  /** Rows of each class, the surest guess first; `least` turns that round. And how many are likely sorted wrong. */
  arrange(least = false) {
    const empty = () => ({ guessed: [], confirmed: [], files: 0, confirmedFiles: 0 });
    const classes = this.classes.map(empty), none = empty(), unknown = empty(), missing = [], chances = new Uint16Array(this.rows);
    const partOf = (index) => (index === NONE ? none : index === UNKNOWN ? unknown : classes[index]);
    let wrong = 0;
    for (let row = 0; row < this.rows; row++) {
      const part = partOf(this.shownIn(row)), confirmed = this.isConfirmed(row);
      chances[row] = this.chance(row);
      wrong += 1 - chances[row] / STEPS;
      part.files++;
      if (confirmed) part.confirmedFiles++;
      if (!this.copies[row]) missing.push(row);
      if (this.hasTile(row)) (confirmed ? part.confirmed : part.guessed).push(row);
    }
    const sign = least ? 1 : -1;
    for (const part of [...classes, none]) part.guessed.sort((a, b) => sign * (chances[a] - chances[b]) || a - b);
    const doubtful = this.rowsOf(this.doubtful.map(([image]) => image));
    const asked = this.rowsOf(this.asked).filter((row) => !this.isConfirmed(row));
    return { classes, none, unknown, missing, doubtful, asked, wrong };
  }

  rowsOf(images) {
    return images.map((image) => this.rowOf.get(image)).filter((row) => row !== undefined);
  }

  /** What taking guesses for strangers from this probability on does: members likely lost, of how many, and strangers kept. */
  putOut(cutoff = this.cutoff) {
    const effect = { out: 0, of: 0, lost: 0, members: 0, missed: 0 };
    for (let row = 0; row < this.rows; row++) {
      if (this.isConfirmed(row) || this.guess[row] < 0) continue;
      const stranger = this.stranger[row], share = stranger / STEPS, out = cutoff === null ? stranger > this.sure[row] : stranger >= cutoff;
      effect.of++;
      effect.out += out;
      effect.members += 1 - share;
      effect.lost += out ? 1 - share : 0;
      effect.missed += out ? 0 : share;
    }
    return effect;
  }
}
