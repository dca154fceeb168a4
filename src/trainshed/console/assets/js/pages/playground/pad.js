// @ts-check
// A pad to draw on: by mouse, finger, pen, or with the keyboard.

import { h } from "../../dom.js";
import { isKey } from "../../lookup.js";
import { draw } from "./strokes.js";

const PIXELS = 560; // of the canvas; the page shows it smaller
const STEP = 0.04; // of the pad, for an arrow key
const FINE_STEP = 0.01;
const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/**
 * @param {{onChange: () => void, onPen?: (text: string) => void}} listeners `onPen`: of the keyboard
 * @returns {HTMLCanvasElement & {strokes: () => import("./strokes.js").Stroke[], clear: () => void, undo: () => void,
 *   thickness: (pixels?: number) => number}}
 */
export function pad({ onChange, onPen = () => {} }) {
  const canvas = h("canvas", {
    class: "pad",
    width: PIXELS,
    height: PIXELS,
    tabIndex: 0,
    role: "application",
    "aria-label":
      "Drawing pad. Arrow keys move, space puts the pen down and lifts it, Backspace undoes, Delete clears.",
    dataset: { testid: "pad" },
  });
  const board = new Board(canvas, onChange, onPen);
  canvas.addEventListener("pointerdown", (event) => board.press(event));
  canvas.addEventListener("pointermove", (event) => board.move(event));
  canvas.addEventListener("pointerup", (event) => board.release(event));
  canvas.addEventListener("pointercancel", (event) => board.release(event));
  canvas.addEventListener("keydown", (event) => board.key(event));
  canvas.addEventListener("focus", () => board.paint());
  canvas.addEventListener("blur", () => board.lift());
  return Object.assign(canvas, {
    strokes: () => board.strokes,
    clear: () => board.clear(),
    undo: () => board.undo(),
    thickness: (/** @type {number | undefined} */ pixels) => board.setThickness(pixels),
  });
}

class Board {
  /** @param {HTMLCanvasElement} canvas @param {() => void} onChange @param {(text: string) => void} onPen */
  constructor(canvas, onChange, onPen) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    this.onChange = onChange;
    this.onPen = onPen;
    /** @type {import("./strokes.js").Stroke[]} */
    this.strokes = [];
    this.thickness = 2.4; // in pixels of the 28 x 28 picture
    /** @type {number | null} */
    this.pointer = null;
    /** @type {[number, number]} */
    this.cursor = [0.5, 0.3]; // of the keyboard
    this.down = false; // the keyboard's pen
    this.byKeys = false;
    this.paint();
  }

  /** @param {PointerEvent} event @returns {[number, number]} */
  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return [inside((event.clientX - box.left) / box.width), inside((event.clientY - box.top) / box.height)];
  }

  /** @param {PointerEvent} event */
  press(event) {
    if (this.pointer !== null || event.button !== 0) return;
    this.pointer = event.pointerId;
    this.canvas.setPointerCapture(event.pointerId);
    this.byKeys = this.down = false;
    this.strokes.push({ points: [this.at(event)] });
    this.changed();
  }

  /** @param {PointerEvent} event */
  move(event) {
    if (event.pointerId !== this.pointer) return;
    const seen = event.getCoalescedEvents?.() ?? [];
    const points = this.strokes[this.strokes.length - 1].points;
    for (const each of seen.length ? seen : [event]) points.push(this.at(each));
    this.changed();
  }

  /** @param {PointerEvent} event */
  release(event) {
    if (event.pointerId === this.pointer) this.pointer = null;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const act = this.keys(event);
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    this.byKeys = true;
    act();
    this.paint();
  }

  /** What a key does here, if anything. @param {KeyboardEvent} event @returns {(() => void) | undefined} */
  keys(event) {
    if (isKey(MOVES, event.key)) {
      const way = MOVES[event.key];
      return () => this.step(way, event.shiftKey ? FINE_STEP : STEP);
    }
    if (event.key === " ") return () => (this.down ? this.lift() : this.lower());
    if (event.key === "Backspace" || (event.key === "z" && (event.ctrlKey || event.metaKey))) return () => this.undo();
    return event.key === "Delete" ? () => this.clear() : undefined;
  }

  lower() {
    this.down = true;
    this.strokes.push({ points: [[...this.cursor]] });
    this.onPen("The pen is down.");
    this.changed();
  }

  lift() {
    if (this.down) this.onPen("The pen is up.");
    this.down = this.byKeys = false;
    this.paint();
  }

  /** @param {number[]} way @param {number} size */
  step([x, y], size) {
    this.cursor = [inside(this.cursor[0] + x * size), inside(this.cursor[1] + y * size)];
    if (!this.down) return;
    this.strokes[this.strokes.length - 1].points.push([...this.cursor]);
    this.changed();
  }

  undo() {
    if (!this.strokes.pop()) return;
    this.down = false;
    this.pointer = null;
    this.changed();
  }

  clear() {
    this.strokes = [];
    this.down = false;
    this.pointer = null;
    this.changed();
  }

  /** @param {number} [pixels] */
  setThickness(pixels) {
    if (pixels) {
      this.thickness = pixels;
      this.changed();
    }
    return this.thickness;
  }

  changed() {
    this.paint();
    this.onChange();
  }

  paint() {
    const { context } = this;
    context.fillStyle = "#000";
    context.fillRect(0, 0, PIXELS, PIXELS);
    this.grid();
    draw(context, this.strokes, { scale: PIXELS, width: (this.thickness / 28) * PIXELS, colour: "#fff" });
    if (this.byKeys && document.activeElement === this.canvas) this.cross();
  }

  /** The box that a digit fills in MNIST, as a faint guide. */
  grid() {
    this.context.strokeStyle = "#2b2f36";
    this.context.lineWidth = 2;
    this.context.setLineDash([8, 8]);
    this.context.strokeRect(PIXELS / 7, PIXELS / 7, (PIXELS * 5) / 7, (PIXELS * 5) / 7);
    this.context.setLineDash([]);
  }

  cross() {
    const [x, y] = this.cursor.map((part) => part * PIXELS);
    this.context.strokeStyle = this.down ? "#ff8a3d" : "#5aa9ff";
    this.context.lineWidth = 4;
    this.context.beginPath();
    for (const [dx, dy] of Object.values(MOVES)) {
      this.context.moveTo(x + dx * 6, y + dy * 6);
      this.context.lineTo(x + dx * 22, y + dy * 22);
    }
    this.context.stroke();
  }
}

/** @param {number} part */
function inside(part) {
  return Math.min(1, Math.max(0, part));
}
