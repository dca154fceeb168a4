// @ts-check
// Keeps pages up to date by polling.

import { ApiError } from "./api.js";
import { h } from "./dom.js";
import { errorBox } from "./parts.js";

const LONGEST_S = 30;

/** @typedef {Pick<Poll<unknown>, "run" | "gone">} AnyPoll */

/** @type {Set<AnyPoll>} polls whose last request found no server */
const lost = new Set();
/** @type {Set<AnyPoll>} */
const polls = new Set();
/** @type {HTMLElement | null} */
let bar = null;

/**
 * Calls `load()` and then `show(value)`: immediately, and then every `seconds` while `node` is in the document and the
 * tab is visible. When the server does not respond, the content stays, one bar says so, and the request is retried with
 * backoff. An error response is shown at the top of `node`.
 * @template T
 * @param {HTMLElement} node
 * @param {number} seconds
 * @param {() => Promise<T>} load
 * @param {(value: T) => void} show
 * @returns {{now: () => Promise<void>, stop: () => void, every: (seconds: number) => void}} `every` changes the time
 *   between requests
 */
export function live(node, seconds, load, show) {
  const poll = new Poll(node, seconds, load, show);
  polls.add(poll);
  void poll.run();
  return {
    now: () => poll.run(),
    stop: () => poll.stop(),
    every: (each) => void (poll.seconds = each),
  };
}

/** @template T */
class Poll {
  /**
   * @param {HTMLElement} node
   * @param {number} seconds
   * @param {() => Promise<T>} load
   * @param {(value: T) => void} show
   */
  constructor(node, seconds, load, show) {
    this.node = node;
    this.seconds = seconds;
    this.load = load;
    this.show = show;
    this.failures = 0;
    this.turn = 0; // of the newest run: the answer of an older one is not shown
    this.timer = 0;
    this.attached = false;
    this.error = /** @type {HTMLElement | null} */ (null);
    this.over = false;
  }

  async run() {
    if (this.over) return;
    clearTimeout(this.timer);
    const turn = ++this.turn;
    try {
      const value = await this.load();
      if (turn !== this.turn || this.gone()) return;
      this.failures = 0;
      this.found();
      this.error?.remove();
      this.show(value);
    } catch (error) {
      if (turn !== this.turn || this.gone()) return;
      this.failed(error);
    }
    this.plan();
  }

  /** Whether the node has left the document, which ends the poll. */
  gone() {
    if (this.node.isConnected) this.attached = true;
    else if (this.attached) this.stop();
    return this.over;
  }

  plan() {
    clearTimeout(this.timer);
    if (this.over || document.visibilityState === "hidden") return;
    const wait =
      this.failures === 0 ? this.seconds : Math.min(LONGEST_S, Math.max(1, this.seconds) * 1.6 ** this.failures);
    this.timer = setTimeout(() => {
      if (!this.node.isConnected) this.stop();
      else void this.run();
    }, wait * 1000);
  }

  /** @param {unknown} error */
  failed(error) {
    this.failures += 1;
    if (error instanceof DOMException && error.name === "AbortError") return;
    if (error instanceof ApiError && (error.status === 0 || error.status === 502 || error.status === 503)) {
      lost.add(this);
      showBar();
      return;
    }
    this.found();
    if (!(error instanceof ApiError)) console.error(error);
    this.error?.remove();
    this.error = errorBox(error);
    this.node.prepend(this.error);
  }

  /** The server is back: retry all polls that lost it. */
  found() {
    if (!lost.delete(this)) return;
    for (const other of [...lost]) void other.run();
    showBar();
  }

  stop() {
    this.over = true;
    clearTimeout(this.timer);
    polls.delete(this);
    if (lost.delete(this)) showBar();
  }
}

function showBar() {
  if (bar === null) {
    const again = h("button", { class: "bar-button", type: "button", on: { click: tryNow } }, "Try now");
    bar = h(
      "div",
      { class: "lost-bar", role: "status", hidden: true, dataset: { testid: "connection-lost" } },
      "Connection lost. What you see may be old; trying again…",
      again,
    );
    document.body.append(bar);
  }
  bar.hidden = lost.size === 0;
}

function tryNow() {
  for (const poll of [...lost]) void poll.run();
}

document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "hidden") return;
  for (const poll of [...polls]) {
    if (poll.gone()) continue;
    void poll.run();
  }
});
