// @ts-check
// The one selection of trials that all plots share. The URL keeps it.

/** @typedef {import("./search.js").Search} Search */
/** @typedef {[low: number, high: number]} Range of an axis, from 0 to 1 */

/** How many percent `Best` keeps. */
export const BEST = 10;

const FOLLOW_MS = 150; // from a step of a drag to what follows in the other plots

export class Selection {
  /** @param {{get: (key: string) => string, set: (values: Record<string, string>) => void}} place */
  constructor(place) {
    this.place = place;
    this.best = place.get("best") === String(BEST) ? BEST : 0;
    /** @type {Map<string, Range>} by the key of the axis */
    this.ranges = readRanges(place.get("where"));
    /** @type {number | null} the number of the trial that is open */
    this.opened = readNumber(place.get("trial"));
    this.pointed = -1; // the index of the trial under the pointer
    /** @type {Set<(what: "chosen" | "opened" | "pointed") => void>} */
    this.listeners = new Set();
    this.known = /** @type {{search: Search, mask: Uint8Array} | null} */ (null);
    this.following = 0; // the timer of a drag
  }

  /** Whether anything is left out. */
  get active() {
    return this.best > 0 || this.ranges.size > 0;
  }

  /** Which trials are chosen, by index: 1 or 0. @param {Search} search @returns {Uint8Array} */
  mask(search) {
    if (this.known?.search === search) return this.known.mask;
    const mask = new Uint8Array(search.size).fill(1);
    for (const [key, [low, high]] of this.ranges) {
      const units = search.column(key)?.units;
      if (units) mask.forEach((_, at) => (mask[at] &= Number(units[at] >= low - 1e-6 && units[at] <= high + 1e-6)));
    }
    if (this.best > 0) {
      const top = search.top(this.best);
      mask.forEach((_, at) => (mask[at] &= Number(top.has(at))));
    }
    this.known = { search, mask };
    return mask;
  }

  /** @param {string} key of an axis @param {Range | null} range null: all of it */
  setRange(key, range) {
    this.#put(key, range);
    this.#chosen();
  }

  /**
   * A step of a drag. The plot that is dragged in redraws itself; address, table and other plots follow a few times a
   * second, so that they do not hold it up.
   * @param {string} key @param {Range} range
   */
  dragRange(key, range) {
    this.#put(key, range);
    this.known = null;
    this.following ||= setTimeout(() => this.settle(), FOLLOW_MS);
  }

  /** Let all that follows a drag follow now. */
  settle() {
    if (this.following) this.#chosen();
  }

  /** @param {string} key @param {Range | null} range */
  #put(key, range) {
    if (range === null || (range[0] <= 0 && range[1] >= 1)) this.ranges.delete(key);
    else this.ranges.set(key, range);
  }

  /** @param {number} percent 0: all */
  setBest(percent) {
    this.best = percent;
    this.#chosen();
  }

  clear() {
    this.best = 0;
    this.ranges.clear();
    this.#chosen();
  }

  /** @param {number | null} number of a trial */
  open(number) {
    this.opened = number;
    this.place.set({ trial: number === null ? "" : String(number) });
    this.#tell("opened");
  }

  /** @param {number} index -1: none */
  point(index) {
    if (this.pointed === index) return;
    this.pointed = index;
    this.#tell("pointed");
  }

  #chosen() {
    clearTimeout(this.following);
    this.following = 0;
    this.known = null;
    this.place.set({ best: this.best ? String(this.best) : "", where: writeRanges(this.ranges) });
    this.#tell("chosen");
  }

  /** @param {"chosen" | "opened" | "pointed"} what */
  #tell(what) {
    for (const listener of this.listeners) listener(what);
  }
}

/** @param {string} text such as `p.units~0.1~0.5|m.loss~0~0.2` @returns {Map<string, Range>} */
function readRanges(text) {
  /** @type {Map<string, Range>} */
  const found = new Map();
  for (const part of text.split("|")) {
    const [key, low, high] = part.split("~");
    const range = [Number(low), Number(high)];
    if (high !== undefined && range.every((end) => end >= 0 && end <= 1)) found.set(decoded(key), [range[0], range[1]]);
  }
  return found;
}

/** @param {Map<string, Range>} ranges */
function writeRanges(ranges) {
  return [...ranges]
    .map(([key, range]) => [escaped(key), ...range.map((end) => String(Number(end.toFixed(4))))].join("~"))
    .join("|");
}

/** @param {string} key */
function escaped(key) {
  return encodeURIComponent(key).replaceAll("~", "%7E");
}

/** @param {string} key */
function decoded(key) {
  try {
    return decodeURIComponent(key);
  } catch {
    return key; // an invalid percent sign, of a link that was cut
  }
}

/** @param {string} text */
function readNumber(text) {
  return /^\d{1,9}$/.test(text) ? Number(text) : null;
}
