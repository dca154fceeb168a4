// @ts-check
// Two metrics against each other, and the front: trials that no other one is better than in both.

import { palette } from "./palette.js";
import { Scatter } from "./scatter.js";

export class Pareto extends Scatter {
  /** @param {import("./selection.js").Selection} selection */
  constructor(selection) {
    super({ selection, label: "Pareto front", height: 280, testid: "plot-pareto" });
  }

  /** @override */
  axes() {
    const { search } = this;
    if (search === null || search.best < 0 || search.metrics.length < 2) return null;
    return { x: search.metrics[0].axis, y: search.metrics[1].axis };
  }

  /** @override @param {number} index @returns {[number, number]} */
  units(index) {
    const search = /** @type {import("./search.js").Search} */ (this.search);
    return [search.metrics[0].units[index], search.metrics[1].units[index]];
  }

  /** @override @param {import("./plot.js").Pen} pen */
  below(pen) {
    const spots = (this.search?.table.optimal ?? []).flatMap((number) => {
      const spot = this.spot(this.search?.index.get(number) ?? -1);
      return spot ? [spot] : [];
    });
    spots.sort((a, b) => a[0] - b[0]);
    pen.beginPath();
    spots.forEach(([x, y], at) => (at === 0 ? pen.moveTo(x, y) : pen.lineTo(x, y)));
    pen.strokeStyle = palette().accent;
    pen.lineWidth = 2;
    pen.stroke();
  }

  /** @override */
  describe() {
    const { search } = this;
    if (search === null) return "";
    return `Trials of the front: ${search.table.optimal.join(", ") || "none yet"}.`;
  }
}
