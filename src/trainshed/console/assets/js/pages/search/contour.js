// @ts-check
// Two parameters against each other, above the metric that is estimated between the trials.

import { h, replace } from "../../dom.js";
import { shade } from "./palette.js";
import { Scatter } from "./scatter.js";

/** @typedef {import("./search.js").Search} Search */
/** @typedef {import("./search.js").Column} Column */

const CELLS = 36;
const WIDTH = 0.11; // of the kernel, in parts of an axis
const LEAST = 0.02; // the weight of the trials nearby below which nothing is estimated

class Contour extends Scatter {
  /** @param {import("./selection.js").Selection} selection */
  constructor(selection) {
    super({ selection, label: "Two parameters and the metric", height: 300, testid: "plot-contour" });
    this.keys = ["", ""];
    this.field = /** @type {Float32Array | null} */ (null);
  }

  /** @returns {[Column, Column] | null} */
  get columns() {
    const [x, y] = this.keys.map((key) => this.search?.column(key));
    return x && y ? [x, y] : null;
  }

  /** @override */
  axes() {
    const { columns } = this;
    return columns && this.search && this.search.best >= 0 ? { x: columns[0].axis, y: columns[1].axis } : null;
  }

  /** @override @param {number} index @returns {[number, number]} */
  units(index) {
    const { columns, search } = this;
    if (!columns || !search || Number.isNaN(search.goodness[index])) return [NaN, NaN];
    return [columns[0].units[index], columns[1].units[index]];
  }

  /** @override @param {Search} search */
  update(search) {
    this.field = null;
    super.update(search);
  }

  /** @param {string[]} keys */
  show(keys) {
    this.keys = keys;
    this.field = null;
    this.words.textContent = this.describe();
    this.redraw();
  }

  /** @override @param {import("./plot.js").Pen} pen */
  below(pen) {
    const { columns, search } = this;
    if (columns === null || search === null) return;
    this.field ??= estimate(search, columns);
    const { left, top, wide, tall } = this.box;
    pen.globalAlpha = 0.55;
    pen.imageSmoothingQuality = "high";
    pen.drawImage(picture(this.field), left, top, wide, tall);
    pen.globalAlpha = 1;
  }

  /** @override */
  describe() {
    const { columns } = this;
    if (columns === null) return "A contour needs two parameters.";
    return `${columns[0].axis.title} across and ${columns[1].axis.title} up. Darker fields are better.`;
  }
}

/**
 * The mean rank of the trials around each cell, weighted by nearness; NaN where none is near.
 * @param {Search} search @param {[Column, Column]} columns
 */
function estimate(search, [x, y]) {
  const field = new Float32Array(CELLS * CELLS);
  const known = search.ranked.filter((index) => !Number.isNaN(x.units[index]) && !Number.isNaN(y.units[index]));
  for (let cell = 0; cell < field.length; cell += 1) {
    const [across, up] = [((cell % CELLS) + 0.5) / CELLS, (Math.floor(cell / CELLS) + 0.5) / CELLS];
    let [weights, sum] = [0, 0];
    for (const index of known) {
      const square = (x.units[index] - across) ** 2 + (y.units[index] - up) ** 2;
      const weight = Math.exp(-square / (2 * WIDTH * WIDTH));
      weights += weight;
      sum += weight * search.goodness[index];
    }
    field[cell] = weights < LEAST ? NaN : sum / weights;
  }
  return field;
}

/** A field as a small picture, which is smooth when it is drawn larger. @param {Float32Array} field */
function picture(field) {
  const canvas = h("canvas", { width: CELLS, height: CELLS });
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  field.forEach((goodness, cell) => {
    if (Number.isNaN(goodness)) return;
    pen.fillStyle = shade(goodness);
    pen.fillRect(cell % CELLS, CELLS - 1 - Math.floor(cell / CELLS), 1, 1);
  });
  return canvas;
}

/** A contour with the choice of its two parameters. @param {import("./selection.js").Selection} selection */
export function contour(selection) {
  const plot = new Contour(selection);
  const [across, up] = ["Across", "Up"].map((name) => h("select", { class: "input-small", "aria-label": name }));
  const choose = () => plot.show([across.value, up.value]);
  for (const select of [across, up]) select.addEventListener("change", choose);
  const node = h("div", null, h("div", { class: "plot-choice" }, up, h("span", null, "over"), across), plot.node);
  let known = "";
  const update = (/** @type {Search} */ search, /** @type {string[]} */ order) => {
    const names = search.parameters.map(({ axis }) => axis);
    const sign = names.map(({ key }) => key).join("\n");
    if (sign !== known) {
      known = sign;
      for (const select of [across, up])
        replace(
          select,
          names.map(({ key, title }) => h("option", { value: key }, title)),
        );
      const wanted = order.length > 1 ? order : names.map(({ title }) => title);
      across.value = names.find(({ title }) => title === wanted[0])?.key ?? names[0]?.key ?? "";
      up.value = names.find(({ title }) => title === wanted[1])?.key ?? across.value;
    }
    plot.keys = [across.value, up.value];
    plot.update(search);
  };
  return { node, update };
}
