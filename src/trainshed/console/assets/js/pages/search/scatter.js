// @ts-check
// Trials as dots between two axes.

import { palette, shade } from "./palette.js";
import { Plot } from "./plot.js";

/** @typedef {import("./axes.js").Axis} Axis */
/** @typedef {import("./plot.js").Pen} Pen */

const DOT = 3.2;
const TICK_PX = 70;

export class Scatter extends Plot {
  /** The axes, for the trials that are shown; null if there is nothing to draw. @returns {{x: Axis, y: Axis} | null} */
  axes() {
    return null;
  }

  /**
   * The position of a trial on both axes, from 0 to 1; NaN if it has none.
   * @param {number} _index
   * @returns {[number, number]}
   */
  units(_index) {
    return [NaN, NaN];
  }

  /** Drawn above the axes and below the dots. @param {Pen} _pen */
  below(_pen) {}

  /** @override @param {number} index @returns {[number, number] | null} */
  spot(index) {
    const [x, y] = this.units(index);
    if (Number.isNaN(x) || Number.isNaN(y)) return null;
    return this.at(x, y);
  }

  /** @param {number} x @param {number} y from 0 to 1 @returns {[number, number]} */
  at(x, y) {
    const { left, top, wide, tall } = this.box;
    return [left + x * wide, top + (1 - y) * tall];
  }

  /** @override @param {Pen} pen */
  paint(pen) {
    const { search } = this;
    const axes = this.axes();
    if (search === null || axes === null) return nothing(pen, this.width, this.height);
    drawAxes(pen, this.box, axes);
    this.below(pen);
    const mask = this.selection.mask(search);
    this.dots(pen, (index) => !mask[index], 0.3);
    this.dots(pen, (index) => Boolean(mask[index]), 1);
  }

  /** @param {Pen} pen @param {(index: number) => boolean} wanted @param {number} alpha */
  dots(pen, wanted, alpha) {
    const search = /** @type {import("./search.js").Search} */ (this.search);
    const colours = palette();
    pen.globalAlpha = alpha;
    for (let index = 0; index < search.size; index += 1) {
      const spot = wanted(index) ? this.spot(index) : null;
      if (spot === null) continue;
      pen.beginPath();
      pen.arc(spot[0], spot[1], alpha < 1 ? DOT - 1 : DOT, 0, 2 * Math.PI);
      if (alpha < 1) pen.fillStyle = colours["line-strong"];
      else pen.fillStyle = search.standings[index] === "stopped" ? colours.surface : shade(search.goodness[index]);
      pen.fill();
      if (alpha === 1 && search.standings[index] === "stopped") outline(pen, colours["ink-3"]);
    }
    pen.globalAlpha = 1;
  }
}

/**
 * A grid with ticks, and the titles of the axes.
 * @param {Pen} pen
 * @param {import("./plot.js").Box} box
 * @param {{x: Axis, y: Axis}} axes
 */
export function drawAxes(pen, { left, top, wide, tall }, { x, y }) {
  const colours = palette();
  pen.strokeStyle = colours.line;
  pen.lineWidth = 1;
  pen.fillStyle = colours["ink-3"];
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  for (const { unit, text } of y.ticks(Math.max(2, Math.floor(tall / 40)))) {
    const at = Math.round(top + (1 - unit) * tall) + 0.5;
    pen.beginPath();
    pen.moveTo(left, at);
    pen.lineTo(left + wide, at);
    pen.stroke();
    pen.fillText(fitted(pen, text, left - 10), left - 7, at);
  }
  pen.textBaseline = "alphabetic";
  const ticks = x.ticks(Math.max(2, Math.floor(wide / TICK_PX)));
  for (const { unit, text } of ticks) {
    pen.textAlign = unit < 0.03 ? "left" : unit > 0.97 ? "right" : "center";
    pen.fillText(fitted(pen, text, wide / Math.max(1, ticks.length - 0.5)), left + unit * wide, top + tall + 17);
  }
}

/** A text that is cut to a width. @param {Pen} pen @param {string} text @param {number} width */
export function fitted(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let kept = text;
  while (kept.length > 1 && pen.measureText(`${kept}…`).width > width) kept = kept.slice(0, -1);
  return `${kept}…`;
}

/**
 * A text whose middle is left out, for names that differ in their ends.
 * @param {Pen} pen
 * @param {string} text
 * @param {number} width
 */
export function shortened(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  for (let kept = text.length - 1; kept > 2; kept -= 1) {
    const short = `${text.slice(0, Math.ceil(kept / 2))}…${text.slice(text.length - Math.floor(kept / 2))}`;
    if (pen.measureText(short).width <= width) return short;
  }
  return `${text.slice(0, 2)}…`;
}

/** @param {Pen} pen @param {number} width @param {number} height */
export function nothing(pen, width, height, text = "No trial has a value yet") {
  pen.fillStyle = palette()["ink-3"];
  pen.textAlign = "center";
  pen.fillText(text, width / 2, height / 2);
}

/** @param {Pen} pen @param {string} colour */
function outline(pen, colour) {
  pen.strokeStyle = colour;
  pen.lineWidth = 1.3;
  pen.stroke();
}
