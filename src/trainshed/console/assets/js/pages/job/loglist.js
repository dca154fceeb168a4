// @ts-check
// A virtual list of log lines: only visible ones are in the document.

import { h, replace } from "../../dom.js";
import { isKey } from "../../lookup.js";
import { copyButton } from "../../parts.js";
import { highlighted, pieces, plain } from "./logtext.js";

const ROW = 20; // pixels, as css/job.css has it
const SPARE = 12; // rows beyond either edge, so that quick scrolling finds something there
const NEAR_TOP = 30 * ROW;
const CLIP = 600; // characters of a row; opening it shows all of them
/** @type {Record<Api.Severity, string>} */
const LETTERS = {
  DEFAULT: "·",
  DEBUG: "D",
  INFO: "I",
  NOTICE: "N",
  WARNING: "W",
  ERROR: "E",
  CRITICAL: "C",
  ALERT: "A",
  EMERGENCY: "!",
};

/** @typedef {import("./logfeed.js").LogFeed} LogFeed */
/** @typedef {import("./logfeed.js").Line} Line */

/** @param {string} iso @returns {string} the time of day to the millisecond, by this machine's clock */
function clock(iso) {
  const time = new Date(iso);
  if (Number.isNaN(time.getTime())) return "";
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  const ms = String(time.getMilliseconds()).padStart(3, "0");
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}.${ms}`;
}

/** @param {string} text @param {string} search */
function textNodes(text, search) {
  return highlighted(pieces(text), search).map((piece) => {
    if (piece.hit) return h("mark", { class: piece.style || null }, piece.text);
    return piece.style ? h("span", { class: piece.style }, piece.text) : piece.text;
  });
}

export class LogList {
  /**
   * @param {object} options
   * @param {(following: boolean) => void} options.onFollow told when scrolling starts or ends the following
   * @param {(line: Line) => string} options.linkTo the address of a line
   */
  constructor({ onFollow, linkTo }) {
    this.onFollow = onFollow;
    this.linkTo = linkTo;
    /** @type {LogFeed | null} */
    this.feed = null;
    this.search = "";
    this.following = true;
    this.active = /** @type {number | null} */ (null);
    /** @type {Map<number, number>} how much taller than a row each open line is */
    this.open = new Map();
    /** @type {Map<number, HTMLElement>} */
    this.rows = new Map();
    this.lastTop = 0;
    this.frame = 0;
    this.knownFirst = 0;
    this.saying = /** @type {HTMLElement | null} */ (null);
    this.space = h("div", { class: "log-space" });
    this.node = h(
      "div",
      {
        class: "log-list",
        role: "listbox",
        tabIndex: 0,
        "aria-label": "Log lines. Arrow keys move, Enter opens a line, End follows what is new.",
        dataset: { testid: "log-list" },
        on: {
          scroll: () => this.#scrolled(),
          keydown: (event) => this.#pressed(event),
          click: (event) => this.#clicked(event),
        },
      },
      this.space,
    );
    new ResizeObserver(() => this.refresh()).observe(this.node);
  }

  /** Show another feed from its end. @param {LogFeed} feed @param {string} search */
  show(feed, search) {
    this.feed = feed;
    this.search = search;
    this.knownFirst = feed.first;
    this.open.clear();
    this.active = null;
    for (const row of this.rows.values()) row.remove();
    this.rows.clear();
    this.refresh();
  }

  /** @param {boolean} following */
  follow(following) {
    this.following = following;
    if (this.feed) this.feed.following = following;
    this.refresh();
  }

  /** Scroll a line to the middle, and mark it. @param {number} number */
  reveal(number) {
    this.follow(false);
    this.#activate(number);
    this.knownFirst = this.feed?.first ?? 0;
    this.space.style.height = `${this.#top(this.feed?.end ?? 0)}px`; // else there is nowhere to scroll to yet
    this.node.scrollTop = this.#top(number) - this.node.clientHeight / 2;
    this.lastTop = this.node.scrollTop;
    this.refresh();
  }

  /** Draw once in the next frame. */
  refresh() {
    if (this.frame === 0) this.frame = requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    this.frame = 0;
    const feed = this.feed;
    if (!feed || !this.node.isConnected) return;
    this.#keepPlace(feed);
    this.space.style.height = `${this.#top(feed.end)}px`;
    if (this.following) this.node.scrollTop = this.node.scrollHeight;
    this.lastTop = this.node.scrollTop;
    this.#place(feed);
    if (this.#measure()) this.refresh();
    const short = this.node.scrollHeight <= this.node.clientHeight;
    if (short || (this.node.scrollTop < NEAR_TOP && !this.following)) void feed.earlier();
  }

  /** Keep visible lines in place when lines before them come or go. @param {LogFeed} feed */
  #keepPlace(feed) {
    const moved = this.knownFirst - feed.first;
    if (moved === 0) return;
    for (const number of [...this.open.keys()]) if (number < feed.first) this.open.delete(number);
    this.knownFirst = feed.first;
    if (this.following) return;
    this.space.style.height = `${this.#top(feed.end)}px`;
    this.node.scrollTop += moved * ROW;
  }

  /** @param {LogFeed} feed */
  #place(feed) {
    const from = Math.max(feed.first, this.#at(this.node.scrollTop) - SPARE);
    const to = Math.min(feed.end, this.#at(this.node.scrollTop + this.node.clientHeight) + SPARE);
    for (const [number, row] of this.rows) {
      if (number < from || number >= to) {
        row.remove();
        this.rows.delete(number);
      }
    }
    let next = null;
    for (let number = to - 1; number >= from; number -= 1) {
      const row = this.rows.get(number) ?? this.#row(number, /** @type {Line} */ (feed.line(number)));
      if (row.nextSibling !== next || row.parentNode !== this.space) this.space.insertBefore(row, next);
      row.style.transform = `translateY(${this.#top(number)}px)`;
      next = row;
    }
  }

  /** Measure the heights of open lines. @returns {boolean} whether one is not what it was */
  #measure() {
    let changed = false;
    for (const [number, extra] of this.open) {
      const row = this.rows.get(number);
      const found = row ? row.offsetHeight - ROW : extra;
      if (found !== extra) {
        this.open.set(number, found);
        changed = true;
      }
    }
    return changed;
  }

  /** The offset of a line, in pixels from the top. @param {number} number */
  #top(number) {
    let top = (number - (this.feed?.first ?? 0)) * ROW;
    for (const [open, extra] of this.open) if (open < number) top += extra;
    return top;
  }

  /** The line at an offset. @param {number} y */
  #at(y) {
    const first = this.feed?.first ?? 0;
    let rest = y;
    for (const [open, extra] of [...this.open].sort(([a], [b]) => a - b)) {
      const bottom = (open - first + 1) * ROW;
      if (rest < bottom) break;
      rest = Math.max(bottom, rest - extra);
    }
    return first + Math.floor(rest / ROW);
  }

  /** @param {number} number @param {Line} line */
  #row(number, line) {
    const row = h(
      "div",
      {
        id: `log-row-${number}`,
        role: "option",
        "aria-selected": String(number === this.active),
        class: `log-row log-${line.severity}`,
        dataset: { number: String(number), testid: "log-row" },
      },
      h("span", { class: "log-severity", title: line.severity }, LETTERS[line.severity]),
      h("time", { class: "log-time", dateTime: line.time, title: line.time }, clock(line.time)),
      h("span", { class: "log-replica", title: line.replica }, line.replica),
      this.open.has(number) ? this.#whole(line) : this.#clipped(line),
    );
    if (this.open.has(number)) row.classList.add("log-open");
    this.rows.set(number, row);
    return row;
  }

  /** @param {Line} line */
  #clipped(line) {
    const rest = line.message.length - CLIP;
    const shown = rest > 0 ? line.message.slice(0, CLIP) : line.message;
    const more = rest > 0 ? h("span", { class: "log-more" }, ` … ${rest.toLocaleString()} more characters`) : null;
    return h("span", { class: "log-text" }, textNodes(shown.replaceAll("\n", " ↵ "), this.search), more);
  }

  /** @param {Line} line */
  #whole(line) {
    return h(
      "div",
      { class: "log-text" },
      h("div", { class: "log-whole", dataset: { testid: "log-whole" } }, textNodes(line.message, this.search)),
      h(
        "div",
        { class: "log-row-tools" },
        h("span", { class: "log-row-facts" }, `${line.severity} · ${line.replica} · ${line.time}`),
        copyButton(plain(line.message)),
        h("a", { href: this.linkTo(line), dataset: { testid: "log-link" } }, "Link to this line"),
      ),
    );
  }

  /** @param {number} number */
  #toggle(number) {
    if (!this.open.delete(number)) this.open.set(number, 0);
    this.rows.get(number)?.remove();
    this.rows.delete(number);
    this.refresh();
  }

  /** @param {number} number */
  #activate(number) {
    if (this.active !== null) this.rows.get(this.active)?.setAttribute("aria-selected", "false");
    this.active = number;
    this.rows.get(number)?.setAttribute("aria-selected", "true");
    this.node.setAttribute("aria-activedescendant", `log-row-${number}`);
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.node;
    const atEnd = scrollTop + clientHeight >= scrollHeight - ROW / 2;
    if (this.following && scrollTop < this.lastTop - 1 && !atEnd) this.#setFollow(false);
    else if (!this.following && atEnd && scrollTop > this.lastTop) this.#setFollow(true);
    this.lastTop = scrollTop;
    this.refresh();
  }

  /** @param {boolean} following */
  #setFollow(following) {
    this.following = following;
    if (this.feed) this.feed.following = following;
    this.onFollow(following);
  }

  /** @param {MouseEvent} event */
  #clicked(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    const row = /** @type {HTMLElement | null} */ (target.closest(".log-row"));
    if (!row || target.closest("a, button") || !getSelection()?.isCollapsed) return;
    const number = Number(row.dataset.number);
    this.#activate(number);
    if (!target.closest(".log-whole")) this.#toggle(number);
  }

  /** @param {KeyboardEvent} event */
  #pressed(event) {
    if (event.target !== this.node || event.ctrlKey || event.metaKey || event.altKey || !this.feed) return;
    const page = Math.max(1, Math.floor(this.node.clientHeight / ROW) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    if (isKey(steps, event.key)) this.#move(steps[event.key]);
    else if (event.key === "Home") this.#moveTo(this.feed.first);
    else if (event.key === "End") this.#toEnd();
    else if ((event.key === "Enter" || event.key === " ") && this.active !== null) this.#toggle(this.active);
    else return;
    event.preventDefault();
  }

  #toEnd() {
    this.#setFollow(true);
    this.refresh();
  }

  /** @param {number} step */
  #move(step) {
    const from = this.active ?? (step < 0 ? /** @type {LogFeed} */ (this.feed).end : this.#at(this.node.scrollTop) - 1);
    this.#moveTo(from + step);
  }

  /** @param {number} wanted */
  #moveTo(wanted) {
    const feed = /** @type {LogFeed} */ (this.feed);
    const number = Math.min(feed.end - 1, Math.max(feed.first, wanted));
    if (number < feed.first) return;
    if (this.following && number < feed.end - 1) this.#setFollow(false);
    this.#activate(number);
    const top = this.#top(number);
    const bottom = this.#top(number + 1);
    if (top < this.node.scrollTop) this.node.scrollTop = top;
    else if (bottom > this.node.scrollTop + this.node.clientHeight)
      this.node.scrollTop = bottom - this.node.clientHeight;
    this.refresh();
  }

  /** The loaded lines, as text. */
  text() {
    return (this.feed?.lines ?? []).map(lineText).join("");
  }

  /** Show a message instead of lines. @param {Node | null} node */
  say(node) {
    this.node.classList.toggle("log-saying", node !== null);
    this.saying?.remove();
    this.saying = node === null ? null : h("div", { class: "log-saying-box" });
    if (this.saying) {
      replace(this.saying, node);
      this.node.append(this.saying);
    }
  }
}

/**
 * A line of a text file. @param {Line} line
 */
export function lineText(line) {
  return `${line.time} ${line.severity} ${line.replica}: ${plain(line.message)}\n`;
}
