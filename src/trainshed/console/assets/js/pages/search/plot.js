// @ts-check
// What all plots of a search are: two canvases above each other, drawn in the next frame and only while they can be
// seen. The lower one has all trials; the upper one has what changes under the pointer. People who do not see them get
// a text.

import { h } from "../../dom.js";
import { isKey } from "../../lookup.js";
import { onTheme, palette } from "./palette.js";
import { trialTip } from "./tip.js";

/** @typedef {import("./search.js").Search} Search */
/** @typedef {import("./selection.js").Selection} Selection */
/** @typedef {CanvasRenderingContext2D} Pen */
/** @typedef {{left: number, top: number, wide: number, tall: number}} Box where the data are, without axes */

const NEAR = 14; // pixels from the pointer to a trial

export class Plot {
  /**
   * @param {{selection: Selection, label: string, height?: number, margin?: Partial<typeof MARGIN>, testid?: string}}
   * options
   */
  constructor({ selection, label, height = 240, margin = {}, testid }) {
    this.selection = selection;
    this.label = label;
    this.height = height;
    this.margin = { ...MARGIN, ...margin };
    this.width = 0;
    this.visible = false;
    this.stale = true;
    this.planned = false;
    this.keyed = false; // whether the keyboard, and not the pointer, walks through the trials
    /** @type {Search | null} */
    this.search = null;
    this.canvas = h("canvas", { class: "plot-canvas", "aria-hidden": "true" });
    this.over = h("canvas", { class: "plot-canvas", "aria-hidden": "true" });
    this.tip = h("div", { class: "chart-tip plot-tip", hidden: true });
    this.words = h("p", { class: "sr-only" });
    this.spoken = h("p", { class: "sr-only", role: "status" });
    this.stage = this.#stage();
    this.node = h("div", { class: "plot" }, this.stage, this.words, this.spoken);
    if (testid) this.node.dataset.testid = testid;
    new ResizeObserver(() => this.#resized()).observe(this.stage);
    new IntersectionObserver(([entry]) => this.#seen(entry.isIntersecting), { rootMargin: "200px" }).observe(
      this.stage,
    );
    onTheme(this.node, () => this.redraw());
    selection.listeners.add((what) => (what === "pointed" ? this.#pointed() : this.redraw()));
  }

  #stage() {
    return h(
      "div",
      {
        class: "plot-stage",
        tabIndex: 0,
        role: "group",
        "aria-label": `${this.label}. Arrow keys go from trial to trial, Enter opens one.`,
        style: { height: `${this.height}px` },
        on: {
          pointermove: (event) => this.moved(...this.#place(event)),
          pointerdown: (event) => this.pressed(event, ...this.#place(event)),
          pointerup: (event) => this.released(event),
          pointercancel: (event) => this.released(event),
          pointerleave: () => this.#look(-1),
          blur: () => this.#look(-1),
          click: (event) => this.clicked(...this.#place(event)),
          keydown: (event) => this.key(event),
        },
      },
      this.canvas,
      this.over,
      this.tip,
    );
  }

  // What a plot says of itself. These are replaced.

  /** @param {Pen} _pen */
  paint(_pen) {}

  /**
   * Where a trial is on the canvas; null if it is not drawn.
   * @param {number} _index
   * @returns {[number, number] | null}
   */
  spot(_index) {
    return null;
  }

  /** What marks the trial under the pointer. @param {Pen} pen @param {number} index */
  mark(pen, index) {
    const spot = this.spot(index);
    if (spot) ring(pen, spot);
  }

  /** The text alternative. @returns {string} */
  describe() {
    return "";
  }

  /** The trials in the order of the arrow keys. @returns {number[]} */
  order() {
    const search = this.search;
    if (search === null) return [];
    const mask = this.selection.mask(search);
    return [...Array(search.size).keys()].filter((index) => mask[index] && this.spot(index));
  }

  /** The trial at a place; -1 if there is none. @param {number} x @param {number} y */
  find(x, y) {
    const { search } = this;
    if (search === null) return -1;
    const mask = this.selection.mask(search);
    let [found, least] = [-1, NEAR * NEAR];
    for (let index = 0; index < search.size; index += 1) {
      const spot = mask[index] ? this.spot(index) : null;
      const far = spot ? (spot[0] - x) ** 2 + (spot[1] - y) ** 2 : Infinity;
      if (far < least) [found, least] = [index, far];
    }
    return found;
  }

  /** @param {number} x @param {number} y */
  moved(x, y) {
    this.#look(this.find(x, y));
  }

  /** @param {PointerEvent} _event @param {number} _x @param {number} _y */
  pressed(_event, _x, _y) {}

  /** @param {PointerEvent} _event */
  released(_event) {}

  /** @param {number} x @param {number} y */
  clicked(x, y) {
    const found = this.find(x, y);
    if (found >= 0 && this.search) this.selection.open(this.search.trials[found].trial);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const { search } = this;
    const order = this.order();
    const last = order.length - 1;
    const now = order.indexOf(this.selection.pointed);
    if (event.key === "Escape") this.#look(-1);
    if (event.key === "Enter" && search && now >= 0) this.selection.open(search.trials[order[now]].trial);
    const to = { ArrowRight: Math.min(last, now + 1), ArrowLeft: Math.max(0, now - 1), Home: 0, End: last };
    if (!isKey(to, event.key) || last < 0) return;
    event.preventDefault();
    this.keyed = true;
    this.#look(order[to[event.key]]);
  }

  // What is the same for all.

  /** @param {Search} search */
  update(search) {
    this.search = search;
    this.words.textContent = this.describe();
    this.redraw();
  }

  /** @returns {Box} */
  get box() {
    const { left, right, top, bottom } = this.margin;
    return { left, top, wide: Math.max(1, this.width - left - right), tall: Math.max(1, this.height - top - bottom) };
  }

  /** @param {number} height */
  setHeight(height) {
    if (height === this.height) return;
    this.height = height;
    this.stage.style.height = `${height}px`;
    this.redraw();
  }

  redraw() {
    this.stale = true;
    if (this.planned || !this.visible) return;
    this.planned = true;
    requestAnimationFrame(() => {
      this.planned = false;
      this.#draw();
    });
  }

  #draw() {
    if (this.width === 0 || this.search === null || !this.stale) return;
    this.stale = false;
    const pen = this.#pen(this.canvas);
    this.paint(pen);
    this.#pointed();
  }

  #pointed() {
    const index = this.selection.pointed;
    if (!this.visible || this.width === 0 || this.search === null) return;
    const pen = this.#pen(this.over);
    const opened = this.search.index.get(this.selection.opened ?? -1) ?? -1;
    for (const each of new Set([opened, index])) if (each >= 0 && each < this.search.size) this.mark(pen, each);
    if (index < 0) this.tip.hidden = true;
  }

  /** Point at a trial, with its tip beside it. @param {number} index */
  #look(index) {
    this.selection.point(index);
    const spot = index < 0 ? null : (this.tipSpot(index) ?? this.spot(index));
    this.tip.hidden = spot === null || this.search === null;
    this.stage.classList.toggle("plot-found", index >= 0);
    if (spot === null || this.search === null) return;
    trialTip(this.tip, this.search, index);
    const side = spot[0] > this.width / 2;
    this.tip.style.left = side ? "" : `${spot[0] + 14}px`;
    this.tip.style.right = side ? `${this.width - spot[0] + 14}px` : "";
    if (this.keyed) this.spoken.textContent = this.tip.innerText.replaceAll("\n", ", ");
    this.keyed = false;
  }

  /** Where the tip is, if not at the trial. @param {number} _index @returns {[number, number] | null} */
  tipSpot(_index) {
    return null;
  }

  /** A cleared canvas with the right number of pixels. @param {HTMLCanvasElement} canvas @returns {Pen} */
  #pen(canvas) {
    const ratio = devicePixelRatio || 1;
    const [width, height] = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    const pen = /** @type {Pen} */ (canvas.getContext("2d"));
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    pen.font = palette().font;
    pen.lineJoin = "round";
    return pen;
  }

  #resized() {
    const width = Math.floor(this.stage.clientWidth);
    if (width === this.width || width === 0) return;
    this.width = width;
    this.redraw();
  }

  /** @param {boolean} visible */
  #seen(visible) {
    this.visible = visible;
    if (visible && this.stale) this.redraw();
  }

  /** @param {PointerEvent | MouseEvent} event @returns {[number, number]} */
  #place(event) {
    const box = this.stage.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }
}

const MARGIN = { left: 52, right: 14, top: 12, bottom: 30 };

/** @param {Pen} pen @param {[number, number]} spot */
function ring(pen, [x, y]) {
  const colours = palette();
  pen.beginPath();
  pen.arc(x, y, 6.5, 0, 2 * Math.PI);
  pen.lineWidth = 2;
  pen.strokeStyle = colours.ink;
  pen.stroke();
}
