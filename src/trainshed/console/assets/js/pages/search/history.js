// @ts-check
// The values of the trials in the order of their numbers, and the best value so far.

import { number } from "../../format.js";
import { linearAxis } from "./axes.js";
import { palette } from "./palette.js";
import { Scatter } from "./scatter.js";

export class History extends Scatter {
  /** @param {import("./selection.js").Selection} selection */
  constructor(selection) {
    super({ selection, label: "History of the search", testid: "plot-history", height: 280 });
  }

  /** @override */
  axes() {
    const { search } = this;
    if (search === null || search.best < 0) return null;
    const [first, last] = this.#ends(search);
    return { x: linearAxis("", "trial", first, last, { whole: true }), y: search.metrics[0].axis };
  }

  /** @param {import("./search.js").Search} search @returns {[number, number]} */
  #ends(search) {
    return [search.trials[0].trial, search.trials[search.size - 1].trial];
  }

  /** @override @param {number} index @returns {[number, number]} */
  units(index) {
    const search = /** @type {import("./search.js").Search} */ (this.search);
    const [first, last] = this.#ends(search);
    const x = last === first ? 0.5 : (search.trials[index].trial - first) / (last - first);
    return [x, search.metrics[0].units[index]];
  }

  /**
   * @override The line of the best value: a step at each trial that was better.
   * @param {import("./plot.js").Pen} pen
   */
  below(pen) {
    const { search } = this;
    if (search === null) return;
    const { axis } = search.metrics[0];
    pen.beginPath();
    let before = NaN;
    let right = 0;
    const byNumber = search.bestSoFar().sort((a, b) => search.trials[a[0]].trial - search.trials[b[0]].trial);
    let best = NaN;
    for (const [index] of byNumber) {
      const value = search.metrics[0].values[index];
      if (!(search.sign * best >= search.sign * value)) best = value;
      const [x, y] = this.at(this.units(index)[0], axis.unit(best));
      if (Number.isNaN(before)) pen.moveTo(x, y);
      else {
        pen.lineTo(x, before);
        pen.lineTo(x, y);
      }
      [before, right] = [y, x];
    }
    const { left, wide } = this.box;
    if (right < left + wide) pen.lineTo(left + wide, before);
    pen.strokeStyle = palette().accent;
    pen.lineWidth = 2;
    pen.stroke();
  }

  /** @override */
  describe() {
    const { search } = this;
    if (search === null || search.best < 0) return "No trial has a value yet.";
    const trial = search.trials[search.best];
    const value = number(search.metrics[0].values[search.best]);
    const known = `${search.ranked.length} of ${search.size} trials have a value`;
    return `${known}. The best is ${value}, of trial ${trial.trial}.`;
  }
}
