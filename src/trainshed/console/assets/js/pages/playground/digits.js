// @ts-check
/**
 * Pictures as MNIST has them: the digit fits a box of 20 x 20, lies with its centre of mass in the middle of 28 x 28,
 * and is white (1) on black (0), with soft edges.
 */
import { bounds, draw } from "./strokes.js";

export const SIDE = 28;
const BOX = 20;
const FINE = 10; // pixels in which one pixel of the box is drawn
const SMALLEST = 0.12; // of the pad: what is smaller is not blown up to the whole box
const FAINT = 0.1; // ink below this is paper
/** The middle of the picture, where its centre of mass comes to lie, from the edge of the first pixel. */
const MIDDLE = SIDE / 2 + 0.5;

/**
 * Ink from 0 to 1 by rows.
 * @typedef {{values: Float32Array, width: number, height: number}} Ink
 */

/**
 * The 784 values of a drawing; null if nothing is drawn. Lines become as thick as asked, however large they are drawn.
 * @param {import("./strokes.js").Stroke[]} strokes
 * @param {number} thickness of a line, in pixels of the 28 x 28
 */
export function fromStrokes(strokes, thickness) {
  const box = bounds(strokes);
  if (!box) return null;
  const scale = ((BOX - thickness) * FINE) / Math.max(box.width, box.height, SMALLEST);
  const margin = (thickness / 2) * FINE;
  const width = Math.ceil(box.width * scale + 2 * margin);
  const height = Math.ceil(box.height * scale + 2 * margin);
  const context = blank(width, height);
  const place = { left: box.left - margin / scale, top: box.top - margin / scale };
  draw(context, strokes, { scale, ...place, width: thickness * FINE, colour: "#fff" });
  return placed(inkOf(context), 1 / FINE);
}

/**
 * The 784 values of ink of any size; null if there is none. What is 28 x 28 already is taken as it is.
 * @param {Ink} ink
 */
export function fromInk(ink) {
  if (ink.width === SIDE && ink.height === SIDE) return ink.values.some((value) => value > FAINT) ? ink.values : null;
  const cut = cropped(ink);
  return cut && placed(cut, BOX / Math.max(cut.width, cut.height));
}

/** @param {number} width @param {number} height */
export function blank(width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  if (!context) throw new Error("This browser gives no canvas to draw on.");
  return context;
}

/** @param {CanvasRenderingContext2D} context @returns {Ink} */
function inkOf(context) {
  const { width, height } = context.canvas;
  const { data } = context.getImageData(0, 0, width, height);
  return { values: Float32Array.from({ length: width * height }, (_, at) => data[at * 4 + 3] / 255), width, height };
}

/** @param {Ink} ink @returns {Ink | null} */
function cropped({ values, width, height }) {
  let [left, top, right, bottom] = [width, height, 0, 0];
  values.forEach((value, at) => {
    if (value <= FAINT) return;
    const [x, y] = [at % width, Math.floor(at / width)];
    [left, right] = [Math.min(left, x), Math.max(right, x + 1)];
    [top, bottom] = [Math.min(top, y), Math.max(bottom, y + 1)];
  });
  if (right <= left) return null;
  const size = { width: right - left, height: bottom - top };
  const from = (/** @type {number} */ at) => (top + Math.floor(at / size.width)) * width + left + (at % size.width);
  return { values: Float32Array.from({ length: size.width * size.height }, (_, at) => values[from(at)]), ...size };
}

/**
 * Shrink ink, and lay it down with its centre of mass in the middle.
 * @param {Ink} ink @param {number} scale
 */
function placed(ink, scale) {
  const [x, y] = centreOfMass(ink);
  const sums = sumsOf(ink);
  const [left, top] = [MIDDLE - x * scale, MIDDLE - y * scale]; // where the ink's first corner comes to lie
  return Float32Array.from({ length: SIDE * SIDE }, (_, at) => {
    const [column, row] = [at % SIDE, Math.floor(at / SIDE)];
    const sum = sums(
      (column - left) / scale,
      (row - top) / scale,
      (column + 1 - left) / scale,
      (row + 1 - top) / scale,
    );
    return Math.min(1, Math.max(0, sum * scale * scale));
  });
}

/** @param {Ink} ink */
function centreOfMass({ values, width }) {
  let [mass, x, y] = [0, 0, 0];
  values.forEach((value, at) => {
    mass += value;
    x += value * ((at % width) + 0.5);
    y += value * (Math.floor(at / width) + 0.5);
  });
  return [x / mass, y / mass];
}

/**
 * A function for the ink in any rectangle, to fractions of pixels: shrinking by it makes no jagged edges.
 * @param {Ink} ink
 * @returns {(x0: number, y0: number, x1: number, y1: number) => number}
 */
function sumsOf({ values, width, height }) {
  const across = width + 1;
  const table = new Float64Array(across * (height + 1));
  for (let row = 0; row < height; row += 1) {
    for (let column = 0, line = 0; column < width; column += 1) {
      line += values[row * width + column];
      table[(row + 1) * across + column + 1] = table[row * across + column + 1] + line;
    }
  }
  const upTo = (/** @type {number} */ x, /** @type {number} */ y) => {
    const [px, py] = [Math.min(width, Math.max(0, x)), Math.min(height, Math.max(0, y))];
    const [column, row] = [Math.min(width - 1, Math.floor(px)), Math.min(height - 1, Math.floor(py))];
    const [right, down] = [px - column, py - row];
    const at = row * across + column;
    const above = table[at] * (1 - right) + table[at + 1] * right;
    const below = table[at + across] * (1 - right) + table[at + across + 1] * right;
    return above * (1 - down) + below * down;
  };
  return (x0, y0, x1, y1) => upTo(x1, y1) - upTo(x0, y1) - upTo(x1, y0) + upTo(x0, y0);
}
