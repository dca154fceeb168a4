// @ts-check
// A table body with only the rows near the screen; spacers have the height of the others.

import { h } from "./dom.js";

const AHEAD_PX = 800;

/** @template Row */
export class RowWindow {
  /**
   * @param {HTMLTableSectionElement} body
   * @param {(row: Row) => string} key
   * @param {(row: Row) => HTMLTableRowElement} line the up-to-date element of a row
   */
  constructor(body, key, line) {
    this.body = body;
    this.key = key;
    this.line = line;
    this.rows = /** @type {Row[]} */ ([]);
    this.heights = /** @type {Map<string, number>} */ (new Map());
    this.usual = 48; // of a row that was never drawn
    this.first = 0;
    this.last = 0;
    this.above = room();
    this.below = room();
    this.planned = false;
    this.seen = false;
    this.scrolled = () => this.plan();
    window.addEventListener("scroll", this.scrolled, { passive: true });
    window.addEventListener("resize", this.scrolled, { passive: true });
  }

  /** @param {Row[]} rows */
  show(rows) {
    this.rows = rows;
    this.draw();
  }

  plan() {
    if (this.planned) return;
    this.planned = true;
    requestAnimationFrame(() => {
      this.planned = false;
      if (this.body.isConnected) this.draw();
      else if (this.seen) this.end();
    });
  }

  end() {
    window.removeEventListener("scroll", this.scrolled);
    window.removeEventListener("resize", this.scrolled);
  }

  draw() {
    this.measure();
    const top = this.body.getBoundingClientRect().top;
    const [from, to] = [-top - AHEAD_PX, -top + window.innerHeight + AHEAD_PX];
    let [at, before, shown] = [0, 0, 0];
    this.first = this.rows.length;
    this.last = 0;
    this.rows.forEach((row, index) => {
      const height = this.heights.get(this.key(row)) ?? this.usual;
      if (at + height < from) before += height;
      else if (at <= to) {
        this.first = Math.min(this.first, index);
        this.last = index + 1;
        shown += height;
      }
      at += height;
    });
    this.place(this.rows.slice(this.first, this.last));
    if (fit(this.above, before)) this.body.prepend(this.above);
    if (fit(this.below, at - before - shown)) this.body.append(this.below);
  }

  /** Store the heights of the drawn rows. */
  measure() {
    if (!this.body.isConnected) return;
    this.seen = true;
    let [sum, count] = [0, 0];
    for (const row of /** @type {Iterable<HTMLElement>} */ (this.body.querySelectorAll("tr[data-key]"))) {
      const height = row.offsetHeight;
      if (height === 0) continue;
      this.heights.set(row.dataset.key ?? "", height);
      sum += height;
      count += 1;
    }
    if (count > 0) this.usual = sum / count;
  }

  /**
   * Put these rows between the two spacers, with few moves: a moved row loses the focus and the pointer.
   * @param {Row[]} rows
   */
  place(rows) {
    const lines = rows.map((row) => this.line(row));
    const wanted = new Set(/** @type {Element[]} */ (lines));
    for (const row of [...this.body.children]) {
      if (row !== this.above && row !== this.below && !wanted.has(row)) row.remove();
    }
    let at = this.above.isConnected ? this.above.nextElementSibling : this.body.firstElementChild;
    lines.forEach((line, index) => {
      line.setAttribute("aria-rowindex", String(this.first + index + 2)); // the head is the first
      if (line === at) at = line.nextElementSibling;
      else this.body.insertBefore(line, at);
    });
  }
}

function room() {
  return h("tr", { class: "row-room", "aria-hidden": "true" }, h("td", { colspan: "20" }));
}

/**
 * @param {HTMLTableRowElement} row
 * @param {number} height
 * @returns {boolean} whether it must still be inserted
 */
function fit(row, height) {
  row.cells[0].style.height = `${Math.max(0, height)}px`;
  if (height <= 0) row.remove();
  return height > 0 && row.parentElement === null;
}
