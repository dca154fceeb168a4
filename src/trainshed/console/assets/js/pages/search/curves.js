// @ts-check
// The learning curves of all trials over each other. Those that were stopped are grey.

import { number } from "../../format.js";
import { linearAxis, usualRange } from "./axes.js";
import { bucket, palette } from "./palette.js";
import { Plot } from "./plot.js";
import { drawAxes, nothing } from "./scatter.js";

/** @typedef {import("./plot.js").Pen} Pen */

export class Curves extends Plot {
  /** @param {import("./selection.js").Selection} selection */
  constructor(selection) {
    super({ selection, label: "Learning curves", testid: "plot-curves", height: 338 });
    this.x = linearAxis("", "", 0, 1);
    this.y = this.x;
    /** @type {Map<number, Api.SearchCurve>} by the index of the trial */
    this.curves = new Map();
  }

  /** @override @param {import("./search.js").Search} search */
  update(search) {
    const { curves, unit } = search.table;
    this.curves = new Map(
      curves.flatMap((curve) => {
        const index = search.index.get(curve.trial);
        return index === undefined ? [] : [[index, curve]];
      }),
    );
    let right = 0;
    for (const { x } of curves) right = Math.max(right, x[x.length - 1]);
    const [low, high] = usualRange(curves.flatMap((curve) => curve.y));
    this.x = linearAxis("", unit, Math.min(...curves.map(({ x }) => x[0]), right), right);
    const room = (high - low || Math.abs(high) || 1) * 0.04;
    this.y = linearAxis("", "", low - room, high + room);
    super.update(search);
  }

  /** @override @param {Pen} pen */
  paint(pen) {
    const { search } = this;
    if (search === null || this.curves.size === 0)
      return nothing(pen, this.width, this.height, "No trial has reported a value yet");
    drawAxes(pen, this.box, this);
    const colours = palette();
    const mask = this.selection.mask(search);
    /** @type {Map<string, number[]>} */
    const groups = new Map();
    for (const index of this.curves.keys()) {
      const stopped = search.standings[index] === "stopped";
      const ranked = !Number.isNaN(search.goodness[index]);
      const colour = !mask[index]
        ? colours.line
        : stopped
          ? colours["ink-3"]
          : ranked
            ? colours.ramp[bucket(search.goodness[index])]
            : colours.accent;
      groups.set(colour, [...(groups.get(colour) ?? []), index]);
    }
    const order = [colours.line, ...colours.ramp, colours.accent, colours["ink-3"]];
    pen.lineWidth = this.curves.size > 200 ? 1 : 1.5;
    for (const colour of order) {
      const indexes = groups.get(colour);
      if (!indexes) continue;
      pen.globalAlpha = colour === colours["ink-3"] ? 0.6 : this.curves.size > 200 ? 0.6 : 0.9;
      pen.strokeStyle = colour;
      pen.beginPath();
      for (const index of indexes) this.#trace(pen, index);
      pen.stroke();
    }
    pen.globalAlpha = 1;
    this.#stops(pen, search, mask);
  }

  /**
   * Where trials were stopped.
   * @param {Pen} pen
   * @param {import("./search.js").Search} search
   * @param {Uint8Array} mask
   */
  #stops(pen, search, mask) {
    const colours = palette();
    pen.strokeStyle = colours["ink-3"];
    pen.fillStyle = colours.surface;
    pen.lineWidth = 1.3;
    for (const index of this.curves.keys()) {
      const end = mask[index] && search.standings[index] === "stopped" ? this.spot(index) : null;
      if (end === null) continue;
      pen.beginPath();
      pen.arc(end[0], end[1], 2.8, 0, 2 * Math.PI);
      pen.fill();
      pen.stroke();
    }
  }

  /** @param {Pen} pen @param {number} index */
  #trace(pen, index) {
    const curve = this.curves.get(index);
    if (!curve) return;
    curve.x.forEach((_, at) => {
      const [x, y] = this.#at(curve, at);
      if (at === 0) pen.moveTo(x, y);
      else pen.lineTo(x, y);
    });
  }

  /** @param {Api.SearchCurve} curve @param {number} at @returns {[number, number]} */
  #at(curve, at) {
    const { left, top, wide, tall } = this.box;
    return [left + this.x.unit(curve.x[at]) * wide, top + (1 - this.y.unit(curve.y[at])) * tall];
  }

  /** @override @param {number} index @returns {[number, number] | null} the end of the curve */
  spot(index) {
    const curve = this.curves.get(index);
    return curve ? this.#at(curve, curve.x.length - 1) : null;
  }

  /** @override The trial whose curve is nearest. @param {number} x @param {number} y */
  find(x, y) {
    const { search } = this;
    if (search === null) return -1;
    const mask = this.selection.mask(search);
    let [found, least] = [-1, 10 ** 2];
    for (const [index, curve] of this.curves) {
      if (!mask[index]) continue;
      for (let at = 0; at < curve.x.length; at += 1) {
        const [px, py] = this.#at(curve, at);
        const far = (px - x) ** 2 / 4 + (py - y) ** 2;
        if (far < least) [found, least] = [index, far];
      }
    }
    return found;
  }

  /** @override @param {Pen} pen @param {number} index */
  mark(pen, index) {
    pen.strokeStyle = palette().ink;
    pen.lineWidth = 2.6;
    pen.beginPath();
    this.#trace(pen, index);
    pen.stroke();
    super.mark(pen, index);
  }

  /** @override */
  describe() {
    const { search } = this;
    if (search === null || this.curves.size === 0) return "No trial has reported a value yet.";
    const best = this.curves.get(search.best);
    const end = best ? ` That of the best trial ends at ${number(best.y[best.y.length - 1])}.` : "";
    const stopped = `${search.count("stopped")} of them stopped early`;
    return `${this.curves.size} curves by ${search.table.unit}, ${stopped}.${end}`;
  }
}
