// @ts-check
// The lines of a job for one set of filters, loaded forwards live and backwards on demand.

import { ApiError } from "../../api.js";

/** Maximum lines in memory. Older ones are dropped while following, and loaded again on scrolling up. */
const MOST_LINES = 200_000;
const PAGE = 2000;
const WAIT_S = 20;
const GATHER_MS = 120; // between two answers that were not full: a few large ones cost less than many small ones
const LONGEST_MS = 15_000;

/**
 * @typedef {Api.LogEntry} Line
 * @typedef {{pageSize: number, cursor?: string, before?: string, waitSeconds?: number}} Wanted
 * @typedef {(params: Wanted, signal: AbortSignal) => Promise<Api.LogPage>} Read
 */

/**
 * Every line once, in order. A line keeps its number (`first`, `first` + 1, ...) when lines before it come or go.
 * `changed` is called after each change; `trouble` is the error while the server is unreachable.
 */
export class LogFeed {
  /** @param {Read} read @param {() => void} changed @param {number} [most] */
  constructor(read, changed, most = MOST_LINES) {
    this.read = read;
    this.changed = changed;
    this.most = most;
    /** @type {Line[]} */
    this.lines = [];
    this.first = 0; // the number of lines[0]
    /** @type {{count: number, before: string, cursor: string}[]} the pages that `lines` is made of */
    this.pages = [];
    /** @type {string[]} */
    this.replicas = [];
    this.loaded = false;
    this.ended = false;
    this.held = false; // memory is full and nobody follows: what is new stays with the server
    /** @type {unknown} */
    this.trouble = null;
    this.before = "";
    this.cursor = "";
    this.stopping = new AbortController();
    /** @type {Promise<number | undefined> | null} */
    this.reading = null;
    this.following = true;
  }

  /** The number after the last line. */
  get end() {
    return this.first + this.lines.length;
  }

  /** @param {number} number @returns {Line | undefined} */
  line(number) {
    return this.lines[number - this.first];
  }

  /** Load the last page, then new lines, until the job has ended or `stop` is called. */
  async start() {
    await this.#persist(async (signal) => {
      const page = await this.read({ before: "end", pageSize: PAGE }, signal);
      this.before = page.before;
      this.loaded = true;
      this.#append(page);
    });
    while (!this.#over && !this.ended && !this.held) {
      const full = await this.#persist((signal) => this.#next(signal));
      if (!full) await this.#pause(GATHER_MS);
    }
  }

  stop() {
    this.stopping.abort();
  }

  /**
   * Load the page before the first line.
   * @returns {Promise<number | undefined>} how many lines came; undefined: it was given up
   */
  earlier() {
    if (this.reading === null && this.before !== "" && this.loaded) {
      this.reading = this.#persist((signal) => this.#previous(signal)).finally(() => {
        this.reading = null;
      });
    }
    return this.reading ?? Promise.resolve(0);
  }

  /** @param {AbortSignal} signal @returns {Promise<boolean>} whether there may be more at once */
  async #next(signal) {
    const page = await this.read({ cursor: this.cursor, pageSize: PAGE, waitSeconds: WAIT_S }, signal);
    if (this.#over) return false;
    this.#append(page);
    return page.more;
  }

  /** @param {AbortSignal} signal @returns {Promise<number>} */
  async #previous(signal) {
    const page = await this.read({ before: this.before, pageSize: PAGE }, signal);
    if (this.#over) return 0;
    this.lines = page.entries.concat(this.lines);
    this.first -= page.entries.length;
    this.pages.unshift({ count: page.entries.length, before: page.before, cursor: this.before });
    this.before = page.before;
    this.#dropLast();
    this.changed();
    return page.entries.length;
  }

  /** @param {Api.LogPage} page */
  #append(page) {
    this.pages.push({
      count: page.entries.length,
      before: this.pages.length ? this.cursor : page.before,
      cursor: page.cursor,
    });
    for (const line of page.entries) this.lines.push(line);
    this.cursor = page.cursor;
    this.ended = page.ended;
    this.replicas = page.replicas;
    if (this.following) this.#dropFirst();
    else this.held = this.lines.length >= this.most;
    this.#joinLast();
    this.changed();
  }

  /** Merge small pages. */
  #joinLast() {
    const [before, last] = this.pages.slice(-2);
    if (last === undefined || before === undefined || before.count + last.count > PAGE) return;
    this.pages.splice(-2, 2, { count: before.count + last.count, before: before.before, cursor: last.cursor });
  }

  #dropFirst() {
    let gone = 0;
    while (this.pages.length > 1 && this.lines.length - gone > this.most) {
      const page = /** @type {{count: number, before: string, cursor: string}} */ (this.pages.shift());
      gone += page.count;
      this.before = page.cursor;
    }
    if (gone > 0) {
      this.lines.splice(0, gone);
      this.first += gone;
    }
  }

  #dropLast() {
    while (this.pages.length > 1 && this.lines.length > this.most) {
      const page = /** @type {{count: number, before: string, cursor: string}} */ (this.pages.pop());
      this.lines.length -= page.count;
      this.cursor = /** @type {{cursor: string}} */ (this.pages.at(-1)).cursor;
      this.held = true;
      this.ended = false;
    }
  }

  get #over() {
    return this.stopping.signal.aborted;
  }

  /**
   * Retry until it succeeds, while the server is unreachable.
   * @template T
   * @param {(signal: AbortSignal) => Promise<T>} action
   * @returns {Promise<T | undefined>} undefined: it was given up
   */
  async #persist(action) {
    for (let wait = 500; !this.#over; wait = Math.min(LONGEST_MS, wait * 2)) {
      try {
        const found = await action(this.stopping.signal);
        this.#tell(null);
        return found;
      } catch (error) {
        if (this.#over) return undefined;
        this.#tell(error);
        if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429) {
          this.stop(); // the server will not change its mind
          return undefined;
        }
        await this.#pause(wait);
      }
    }
    return undefined;
  }

  /** @param {unknown} trouble */
  #tell(trouble) {
    if (this.trouble === trouble) return;
    this.trouble = trouble;
    this.changed();
  }

  /** @param {number} ms */
  #pause(ms) {
    return new Promise((resolve) => setTimeout(resolve, ms));
  }
}
