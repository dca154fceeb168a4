// @ts-check
// When trials ran, a row for each that ran at the same time.

import { timeLabel, timeTicks } from "../../scales.js";
import { linearAxis } from "./axes.js";
import { palette, shade } from "./palette.js";
import { Plot } from "./plot.js";
import { fitted, nothing } from "./scatter.js";

/** @typedef {import("./plot.js").Pen} Pen */
/** @typedef {{index: number, slot: number, from: number, to: number}} Bar */

const ROW = 24;
const MOST = 24; // rows: of more, the bars are thinner

/**
 * Rows for trials: each takes the first row that is free when it starts.
 * @param {Api.SearchTrial[]} trials
 * @param {number} now
 * @returns {Bar[]}
 */
export function bars(trials, now) {
  const begun = [...trials.keys()].filter((index) => trials[index].startTime);
  const start = (/** @type {number} */ index) => Date.parse(/** @type {string} */ (trials[index].startTime));
  /** @type {number[]} */
  const free = [];
  return begun
    .sort((a, b) => start(a) - start(b) || a - b)
    .map((index) => {
      const [from, end] = [start(index), trials[index].endTime];
      const to = Math.max(from, end ? Date.parse(end) : now);
      const found = free.findIndex((time) => time <= from);
      const slot = found < 0 ? free.length : found;
      free[slot] = to;
      return { index, slot, from, to };
    });
}

export class Timeline extends Plot {
  /** @param {import("./selection.js").Selection} selection */
  constructor(selection) {
    super({ selection, label: "Timeline of the trials", height: 120, margin: { left: 30 }, testid: "plot-timeline" });
    /** @type {Map<number, Bar>} */
    this.bars = new Map();
    this.slots = 1;
    this.from = 0;
    this.to = 1;
  }

  /** @override @param {import("./search.js").Search} search */
  update(search) {
    const found = bars(search.trials, Date.now());
    this.bars = new Map(found.map((bar) => [bar.index, bar]));
    this.slots = found.reduce((most, { slot }) => Math.max(most, slot + 1), 1);
    this.from = found.reduce((least, bar) => Math.min(least, bar.from), Infinity);
    this.to = found.reduce((most, bar) => Math.max(most, bar.to), -Infinity);
    this.setHeight(Math.max(90, Math.min(this.slots, MOST) * ROW + this.margin.top + this.margin.bottom));
    super.update(search);
  }

  /** @param {Bar} bar @returns {[x: number, y: number, wide: number, tall: number]} */
  #rectangle({ slot, from, to }) {
    const { left, top, wide, tall } = this.box;
    const span = this.to - this.from || 1;
    const row = tall / this.slots;
    const gap = Math.min(3, row * 0.2);
    const x = left + ((from - this.from) / span) * wide;
    return [x, top + slot * row + gap, Math.max(2, ((to - from) / span) * wide - 1), Math.max(1, row - 2 * gap)];
  }

  /** @override @param {Pen} pen */
  paint(pen) {
    const { search } = this;
    if (search === null || this.bars.size === 0)
      return nothing(pen, this.width, this.height, "No trial has started yet");
    const colours = palette();
    this.#axis(pen);
    const mask = this.selection.mask(search);
    for (const [index, bar] of this.bars) {
      const [x, y, wide, tall] = this.#rectangle(bar);
      const standing = search.standings[index];
      pen.globalAlpha = mask[index] ? 1 : 0.25;
      pen.fillStyle =
        standing === "done"
          ? shade(search.goodness[index])
          : standing === "lost"
            ? colours.bad
            : standing === "running"
              ? colours.accent
              : colours["line-strong"];
      pen.fillRect(x, y, wide, tall);
      if (wide > 22 && tall > 12) this.#number(pen, search.trials[index].trial, [x, y, wide, tall], standing);
    }
    pen.globalAlpha = 1;
  }

  /**
   * @param {Pen} pen
   * @param {number} trial
   * @param {number[]} rectangle
   * @param {import("./search.js").Standing} standing
   */
  #number(pen, trial, [x, y, wide, tall], standing) {
    const colours = palette();
    pen.fillStyle = standing === "stopped" ? colours.ink : colours.surface;
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    pen.fillText(fitted(pen, String(trial), wide - 8), x + 4, y + tall / 2 + 0.5);
    pen.textBaseline = "alphabetic";
  }

  /** @param {Pen} pen */
  #axis(pen) {
    const colours = palette();
    const { left, top, wide, tall } = this.box;
    const axis = linearAxis("", "time", this.from, this.to);
    const labels = timeLabel(this.to - this.from);
    pen.strokeStyle = colours.line;
    pen.fillStyle = colours["ink-3"];
    pen.textAlign = "center";
    for (const tick of timeTicks(this.from, this.to, Math.max(2, Math.floor(wide / 90)))) {
      const x = Math.round(left + axis.unit(tick) * wide) + 0.5;
      pen.beginPath();
      pen.moveTo(x, top);
      pen.lineTo(x, top + tall);
      pen.stroke();
      pen.fillText(labels.format(tick), Math.min(x, left + wide - 22), top + tall + 17);
    }
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    if (this.slots <= MOST)
      for (let slot = 0; slot < this.slots; slot += 1)
        pen.fillText(String(slot + 1), left - 8, top + ((slot + 0.5) * tall) / this.slots);
    pen.textBaseline = "alphabetic";
  }

  /** @override @param {number} index @returns {[number, number] | null} */
  spot(index) {
    const bar = this.bars.get(index);
    if (!bar) return null;
    const [x, y, wide, tall] = this.#rectangle(bar);
    return [x + wide / 2, y + tall / 2];
  }

  /** @override @param {number} x @param {number} y */
  find(x, y) {
    for (const [index, bar] of this.bars) {
      const [left, top, wide, tall] = this.#rectangle(bar);
      if (x >= left - 2 && x <= left + wide + 2 && y >= top && y <= top + tall) return index;
    }
    return -1;
  }

  /** @override @param {Pen} pen @param {number} index */
  mark(pen, index) {
    const bar = this.bars.get(index);
    if (!bar) return;
    pen.strokeStyle = palette().ink;
    pen.lineWidth = 2;
    pen.strokeRect(...this.#rectangle(bar));
  }

  /** @override */
  describe() {
    return `${this.bars.size} trials have started, up to ${this.slots} at the same time.`;
  }
}
