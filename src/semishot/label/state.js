// What the server says of every image, in columns; and what the person looks at. All that is shown follows from both.

export const NONE = -2, UNKNOWN = -1; // in place of the index of a class: a stranger; not known
export const STEPS = 65535; // probabilities are whole numbers of 1 / STEPS
/** What is found: a part of the name, a folder, days, and probabilities in percent. */
export const NO_FILTER = { text: "", folder: "", first: "", last: "", least: 0, most: 100 };

/** Where the ring is when there is no tile. */
export const NOWHERE = { section: null, index: 0, image: null };

/** What the parts of the page share; `page.js` adds what draws it. */
export const page = {
  state: null, // what the server says of every image
  arranged: null, // its rows by class
  view: "all", // what is shown
  sections: [], // of tiles, in this view
  fresh: true, // whether no view has been chosen yet: kinds are shown when they are found
  least: false, // whether a class begins with the least sure
  filter: NO_FILTER,
  finding: false, // whether the fields of the filter are shown
  matches: null, // images whose files fit it; null: all
  files: { folders: [], skipped: [] }, // of the pile
  cursor: NOWHERE, // the tile with the ring
  anchor: null, // where a range begins
  selected: new Set(), // images
  crossed: new Set(), // images that do not belong to the row of kinds they are in
  lassoed: [], // images that were selected on the map
  judged: new Set(), // images of the audit whose answer is on its way
  names: new Map(), // of the file of an image
  box: null, // in which tiles are being selected
  dialog: null, // the one that is open, and what it shows
  large: null, // the picture that is shown large
  message: { text: "" }, // the short one, below
  banner: "",
  reading: null, // how far it is
  size: Number(localStorage.getItem("size")),
  captions: localStorage.getItem("captions") === "on",
  phone: matchMedia("(max-width: 760px)"),
};

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
    this.doubts = new Map(this.doubtful);
  }

  index(classId) {
    return this.classes.findIndex(([id]) => id === classId);
  }

  className(index) {
    return index === NONE ? "stranger" : index < 0 ? "not sorted" : this.classes[index][1];
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
    return this.isOut(row, this.cutoff) ? NONE : this.guess[row];
  }

  /** Whether a guess is a stranger, by this cutoff. */
  isOut(row, cutoff) {
    return cutoff === null ? this.stranger[row] > this.sure[row] : this.stranger[row] >= cutoff;
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

  /** What is known of a row: confirmed, worth asking, guessed or open. */
  kindOf(row) {
    if (this.isConfirmed(row)) return "confirmed";
    if (this.isAsked.has(this.image[row])) return "ask";
    return this.shownIn(row) === UNKNOWN ? "open" : "guess";
  }

  /** Whether a row has a tile: near copies with the same answer have one together. */
  hasTile(row) {
    if (this.group[row] === this.image[row]) return true;
    return this.answer[row] !== this.answer[this.rowOf.get(this.group[row])];
  }

  /** Rows of each class, the surest guess first; `least` turns that round. And how many are likely sorted wrong. */
  arrange(least) {
    const empty = () => ({ guessed: [], confirmed: [], files: 0, confirmedFiles: 0 });
    const classes = this.classes.map(empty), none = empty(), unknown = empty(), missing = [];
    const partOf = (index) => (index === NONE ? none : index === UNKNOWN ? unknown : classes[index]);
    const chances = new Uint16Array(this.rows);
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

  /** What the cutoff does to guesses: strangers, of how many; members likely lost, of how many; strangers missed. */
  putOut() {
    const effect = { out: 0, of: 0, lost: 0, members: 0, missed: 0 };
    for (let row = 0; row < this.rows; row++) {
      if (this.isConfirmed(row) || this.guess[row] < 0) continue;
      const share = this.stranger[row] / STEPS, out = this.isOut(row, this.cutoff);
      effect.of++;
      effect.out += out;
      effect.members += 1 - share;
      effect.lost += out ? 1 - share : 0;
      effect.missed += out ? 0 : share;
    }
    return effect;
  }
}

/** The section of tiles with this key, if there is one. */
export const sectionOf = (key) => page.sections.find((section) => section.key === key);

/** The index of the class that a view shows; negative if it shows none, or if the class is gone. */
export function classShown(view = page.view) {
  return view.startsWith("class:") ? page.state.index(Number(view.slice(6))) : -1;
}

/** The images of the kind that is open, by the one that it is known by. */
export function kindShown(view = page.view) {
  return page.state.kinds.find((images) => images.includes(Number(view.slice(5))));
}

export function isGone(view) {
  return view.startsWith("kind:") ? !kindShown(view) : view.startsWith("class:") && classShown(view) < 0;
}

export const isFiltered = () => page.matches !== null || page.filter.least > 0 || page.filter.most < 100;

/** What an answer is for. */
export function chosen() {
  const { view, selected, cursor } = page;
  if (view === "audit") return toJudge().slice(0, 1).map(([image]) => image);
  if (view === "kinds") return ofKind(cursor.section);
  if (selected.size) return [...selected];
  return cursor.image === null ? [] : [cursor.image];
}

/** The images of a row of kinds that have not been clicked away; of an open kind, all. */
export function ofKind(key) {
  const { rows = [], shown } = sectionOf(key) || {};
  return rows.slice(0, shown).map((row) => page.state.image[row]).filter((image) => !page.crossed.has(image));
}

/** Images of the audit, and what was decided of them, that have not been judged. */
export function toJudge() {
  const { state, judged } = page;
  const isOpen = ([image]) => !judged.has(image) && !state.isConfirmed(state.rowOf.get(image));
  return (state.audit?.waiting || []).filter(isOpen);
}

export function deselect() {
  page.selected.clear();
  page.crossed.clear();
  page.anchor = null;
}
