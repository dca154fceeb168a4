// @ts-check
// Parallel coordinates: a line for each trial across one axis for each parameter, and the metrics at the right.
// Dragging along an axis chooses the trials that cross it there.

import { h } from "../../dom.js";
import { isKey } from "../../lookup.js";
import { bucket, palette } from "./palette.js";
import { Plot } from "./plot.js";
import { fitted, nothing, shortened } from "./scatter.js";

/** @typedef {import("./search.js").Search} Search */
/** @typedef {import("./search.js").Column} Column */
/** @typedef {import("./plot.js").Pen} Pen */

const GRAB = 26; // pixels beside an axis where a drag is one along it
const EDGE = 7; // pixels around the end of a range
const STEP = 0.05; // of an axis, for the keyboard
const BETWEEN = 88; // the least pixels between two axes

/** @typedef {{key: string, from: number, low: number, high: number, move: "range" | "low" | "high" | "all"}} Drag */

export class Parallel extends Plot {
  /** @param {import("./selection.js").Selection} selection */
  constructor(selection) {
    const margin = { left: 58, right: 62, top: 40, bottom: 16 };
    super({ selection, label: "Parallel coordinates", height: 330, margin, testid: "plot-parallel" });
    this.drag = /** @type {Drag | null} */ (null);
    this.frame = h("div", { class: "plot-scroll" }, this.node);
    this.axis = 0; // that the keyboard changes
    this.stage.classList.add("plot-dragged");
    this.stage.setAttribute(
      "aria-label",
      "Parallel coordinates. Left and right go from axis to axis, up and down move the lower end of its range, with " +
        "Shift the upper end, Delete removes the range.",
    );
  }

  /** @override @param {Search} search */
  update(search) {
    this.node.style.minWidth = `${this.margin.left + this.margin.right + (search.columns.length - 1) * BETWEEN}px`;
    super.update(search);
  }

  /** @param {number} at @param {number} count */
  #x(at, count) {
    const { left, wide } = this.box;
    return left + (count === 1 ? 0.5 : at / (count - 1)) * wide;
  }

  /** @param {number} unit */
  #y(unit) {
    const { top, tall } = this.box;
    return top + (1 - unit) * tall;
  }

  /** @override @param {Pen} pen */
  paint(pen) {
    const { search } = this;
    if (search === null) return;
    if (search.size === 0) return nothing(pen, this.width, this.height, "No trial has started yet");
    const columns = search.columns;
    const mask = this.selection.mask(search);
    this.#lines(pen, columns, this.#buckets(search, mask));
    columns.forEach((column, at) => this.#axis(pen, column, this.#x(at, columns.length), at, columns.length));
  }

  /**
   * The trials by their colour, in the order of drawing: one stroke for each is much faster than one for each trial.
   * @param {Search} search @param {Uint8Array} mask
   * @returns {[colour: string, alpha: number, indexes: number[]][]}
   */
  #buckets(search, mask) {
    const colours = palette();
    /** @type {number[][]} */
    const byColour = colours.ramp.map(() => []);
    /** @type {[number[], number[]]} */
    const [left, grey] = [[], []];
    for (let index = 0; index < search.size; index += 1) {
      const goodness = search.goodness[index];
      if (!mask[index]) left.push(index);
      else if (Number.isNaN(goodness)) grey.push(index);
      else byColour[bucket(goodness)].push(index);
    }
    const alpha = search.size > 400 ? 0.55 : 0.85;
    return [
      [colours.line, 0.6, left],
      [colours["ink-3"], 0.35, grey],
      ...byColour.map((indexes, at) => /** @type {[string, number, number[]]} */ ([colours.ramp[at], alpha, indexes])),
    ];
  }

  /** @param {Pen} pen @param {Column[]} columns @param {[string, number, number[]][]} groups */
  #lines(pen, columns, groups) {
    pen.lineWidth = this.search && this.search.size > 400 ? 1 : 1.4;
    for (const [colour, alpha, indexes] of groups) {
      if (indexes.length === 0) continue;
      pen.strokeStyle = colour;
      pen.globalAlpha = alpha;
      pen.beginPath();
      for (const index of indexes) this.#trace(pen, columns, index);
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  /**
   * The line of a trial, with a gap where it has no value.
   * @param {Pen} pen
   * @param {Column[]} columns
   * @param {number} index
   */
  #trace(pen, columns, index) {
    let drawing = false;
    const { left, top, wide, tall } = this.box;
    const step = columns.length === 1 ? 0 : wide / (columns.length - 1);
    const start = columns.length === 1 ? left + wide / 2 : left;
    for (let at = 0; at < columns.length; at += 1) {
      const unit = columns[at].units[index];
      if (Number.isNaN(unit)) drawing = false;
      else {
        const [x, y] = [start + at * step, top + (1 - unit) * tall];
        if (drawing) pen.lineTo(x, y);
        else pen.moveTo(x, y);
        drawing = true;
      }
    }
  }

  /** @param {Pen} pen @param {Column} column @param {number} x @param {number} at @param {number} count */
  #axis(pen, { axis }, x, at, count) {
    const colours = palette();
    const { top, tall } = this.box;
    const focused = at === this.axis && document.activeElement === this.stage;
    pen.strokeStyle = focused ? colours.accent : colours["line-strong"];
    pen.lineWidth = focused ? 2 : 1;
    pen.beginPath();
    pen.moveTo(x, top);
    pen.lineTo(x, top + tall);
    pen.stroke();
    const range = this.selection.ranges.get(axis.key);
    if (range) this.#range(pen, x, range);
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    for (const { unit, text } of axis.ticks(6)) label(pen, fitted(pen, text, 52), x + 6, this.#y(unit));
    pen.textBaseline = "alphabetic";
    pen.textAlign = at === 0 ? "left" : at === count - 1 ? "right" : "center";
    const room = this.box.wide / Math.max(1, count - 1) - 10;
    const edge = at === 0 ? x - 50 : at === count - 1 ? x + 56 : x;
    pen.fillStyle = colours.ink;
    pen.fillText(shortened(pen, axis.title, Math.max(60, room)), edge, 16);
    if (axis.log) {
      pen.fillStyle = colours["ink-3"];
      pen.fillText("log", edge, 30);
    }
  }

  /** @param {Pen} pen @param {number} x @param {[number, number]} range */
  #range(pen, x, [low, high]) {
    const colours = palette();
    const [bottom, top] = [this.#y(low), this.#y(high)];
    pen.globalAlpha = 0.22;
    pen.fillStyle = colours.accent;
    pen.fillRect(x - 8, top, 16, bottom - top);
    pen.globalAlpha = 1;
    for (const y of [top, bottom]) pen.fillRect(x - 8, y - 1.5, 16, 3);
  }

  /** @override @param {Pen} pen @param {number} index */
  mark(pen, index) {
    const search = /** @type {Search} */ (this.search);
    pen.strokeStyle = palette().ink;
    pen.lineWidth = 2.6;
    pen.beginPath();
    this.#trace(pen, search.columns, index);
    pen.stroke();
  }

  /** @override @param {number} index @returns {[number, number] | null} */
  spot(index) {
    const unit = this.search?.metrics[0].units[index] ?? NaN;
    return Number.isNaN(unit) ? null : [this.box.left + this.box.wide, this.#y(unit)];
  }

  /** @override The trial whose line is nearest. @param {number} x @param {number} y */
  find(x, y) {
    const { search } = this;
    if (search === null || this.drag) return -1;
    const columns = search.columns;
    const mask = this.selection.mask(search);
    const place = ((x - this.box.left) / this.box.wide) * (columns.length - 1);
    const at = Math.min(columns.length - 2, Math.max(0, Math.floor(place)));
    if (columns.length < 2) return -1;
    let [found, least] = [-1, 7];
    for (let index = 0; index < search.size; index += 1) {
      if (!mask[index]) continue;
      const [one, two] = [columns[at].units[index], columns[at + 1].units[index]];
      const far = Math.abs(this.#y(one + (two - one) * (place - at)) - y);
      if (far < least) [found, least] = [index, far];
    }
    return found;
  }

  // Ranges, by the pointer.

  /** @param {number} x */
  #near(x) {
    const columns = this.search?.columns ?? [];
    const at = columns.findIndex((_, each) => Math.abs(this.#x(each, columns.length) - x) <= GRAB);
    return at < 0 ? null : { at, key: columns[at].axis.key };
  }

  /** @override @param {PointerEvent} event @param {number} x @param {number} y */
  pressed(event, x, y) {
    const near = this.#near(x);
    if (near === null || event.button !== 0) return;
    const unit = this.#unit(y);
    const range = this.selection.ranges.get(near.key);
    this.axis = near.at;
    /** @type {Drag} */
    const made = { key: near.key, from: unit, low: unit, high: unit, move: "range" };
    this.drag = made;
    if (range) {
      const [bottom, top] = [this.#y(range[0]), this.#y(range[1])];
      const [atLow, atHigh] = [bottom, top].map((edge) => Math.abs(y - edge) <= EDGE);
      /** @type {Drag["move"]} */
      const move = atLow ? "low" : atHigh ? "high" : "all";
      const inside = y < bottom + EDGE && y > top - EDGE;
      if (inside) this.drag = { key: near.key, from: unit, low: range[0], high: range[1], move };
    }
    this.stage.setPointerCapture(event.pointerId);
  }

  /** @override @param {number} x @param {number} y */
  moved(x, y) {
    const { drag } = this;
    if (drag === null) {
      this.stage.classList.toggle("plot-axis", this.#near(x) !== null);
      super.moved(x, y);
      return;
    }
    const unit = this.#unit(y);
    const { from, low, high } = drag;
    if (drag.move === "range") this.#set(drag.key, from, unit);
    else if (drag.move === "low") this.#set(drag.key, unit, high);
    else if (drag.move === "high") this.#set(drag.key, low, unit);
    else {
      const shift = Math.min(1 - high, Math.max(-low, unit - from));
      this.#set(drag.key, low + shift, high + shift);
    }
  }

  /** @override */
  released() {
    const { drag } = this;
    this.drag = null;
    if (drag === null) return;
    this.selection.settle();
    const range = this.selection.ranges.get(drag.key);
    if (range && range[1] - range[0] < 0.005 && !this.search?.column(drag.key)?.axis.list)
      this.selection.setRange(drag.key, null);
  }

  /**
   * @override A click on an axis removes its range; one on a line opens its trial.
   * @param {number} x
   * @param {number} y
   */
  clicked(x, y) {
    if (this.#near(x) === null) super.clicked(x, y);
  }

  /** @param {string} key @param {number} one @param {number} two */
  #set(key, one, two) {
    const list = this.search?.column(key)?.axis.list;
    const room = list ? 0.02 : 0; // a value of a list is one point
    this.selection.dragRange(key, [Math.max(0, Math.min(one, two) - room), Math.min(1, Math.max(one, two) + room)]);
    this.redraw();
  }

  /** @param {number} y */
  #unit(y) {
    const { top, tall } = this.box;
    return Math.min(1, Math.max(0, 1 - (y - top) / tall));
  }

  // Ranges, by the keyboard.

  /** @override @param {KeyboardEvent} event */
  key(event) {
    const columns = this.search?.columns ?? [];
    const moves = { ArrowLeft: -1, ArrowRight: 1 };
    const steps = { ArrowUp: STEP, ArrowDown: -STEP };
    if (columns.length === 0) return;
    if (isKey(moves, event.key)) {
      this.axis = Math.min(columns.length - 1, Math.max(0, this.axis + moves[event.key]));
    } else if (isKey(steps, event.key)) {
      const { key } = columns[this.axis].axis;
      const [low, high] = this.selection.ranges.get(key) ?? [0, 1];
      const step = steps[event.key];
      if (event.shiftKey) this.selection.setRange(key, [low, Math.max(low, Math.min(1, high + step))]);
      else this.selection.setRange(key, [Math.min(high, Math.max(0, low + step)), high]);
    } else if (event.key === "Delete" || event.key === "Backspace") {
      this.selection.setRange(columns[this.axis].axis.key, null);
    } else return;
    event.preventDefault();
    const { axis } = columns[this.axis];
    const [low, high] = this.selection.ranges.get(axis.key) ?? [0, 1];
    this.spoken.textContent = `${axis.title}, from ${axis.text(axis.at(low))} to ${axis.text(axis.at(high))}`;
    this.redraw();
  }

  /** @override */
  describe() {
    const { search } = this;
    if (search === null) return "";
    const names = search.columns.map(({ axis }) => axis.title).join(", ");
    return `${search.size} trials across ${search.columns.length} axes: ${names}. The table below has the same values.`;
  }
}

/** A text that can be read above lines. @param {Pen} pen @param {string} text @param {number} x @param {number} y */
function label(pen, text, x, y) {
  const colours = palette();
  pen.lineWidth = 3.5;
  pen.strokeStyle = colours.surface;
  pen.strokeText(text, x, y);
  pen.fillStyle = colours["ink-2"];
  pen.fillText(text, x, y);
}
