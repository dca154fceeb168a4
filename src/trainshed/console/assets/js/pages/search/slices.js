// @ts-check
// Slices: each parameter against the metric, side by side.

import { h, replace } from "../../dom.js";
import { Scatter } from "./scatter.js";

/** @typedef {import("./search.js").Search} Search */
/** @typedef {import("./selection.js").Selection} Selection */

class Slice extends Scatter {
  /** @param {Selection} selection @param {string} key of the parameter's axis @param {string} name */
  constructor(selection, key, name) {
    super({ selection, label: `${name} against the metric`, height: 170, margin: { bottom: 26, left: 46 } });
    this.axisKey = key;
  }

  /** @override */
  axes() {
    const column = this.search?.column(this.axisKey);
    return this.search && this.search.best >= 0 && column ? { x: column.axis, y: this.search.metrics[0].axis } : null;
  }

  /** @override @param {number} index @returns {[number, number]} */
  units(index) {
    const search = /** @type {Search} */ (this.search);
    return [search.column(this.axisKey)?.units[index] ?? NaN, search.metrics[0].units[index]];
  }
}

/** A grid of slices that is made anew when the parameters change. @param {Selection} selection */
export function slices(selection) {
  const node = h("div", { class: "plot-slices", dataset: { testid: "plot-slices" } });
  /** @type {Slice[]} */
  let made = [];
  const update = (/** @type {Search} */ search) => {
    const keys = search.parameters.map(({ axis }) => axis.key);
    if (keys.join("\n") !== made.map((slice) => slice.axisKey).join("\n")) {
      made = search.parameters.map(({ axis }) => new Slice(selection, axis.key, axis.title));
      replace(
        node,
        made.map((slice, at) => h("figure", { class: "plot-slice" }, caption(search.parameters[at].axis), slice.node)),
      );
    }
    for (const slice of made) slice.update(search);
  };
  return { node, update };
}

/** @param {import("./axes.js").Axis} axis */
function caption(axis) {
  return h("figcaption", { class: "chart-title" }, axis.title, axis.log ? h("span", { class: "muted" }, " log") : null);
}
