// @ts-check
// Ink from photos: dark on light or light on dark, of any size, on paper that is not quite white.
import { SIDE, blank } from "./digits.js";

const LARGEST = 400; // pixels of the longer side that are looked at
const SHADOW = 0.25; // of the darkest ink: what is fainter is a shadow on the paper
const FULL = 0.75; // of the darkest ink: what is darker is ink without doubt

/**
 * @param {Blob} file
 * @returns {Promise<import("./digits.js").Ink>}
 */
export async function inkOfFile(file) {
  let picture;
  try {
    picture = await createImageBitmap(file);
  } catch {
    throw new Error("This file is no picture that the browser can read. Take a PNG, JPEG, GIF or WebP file.");
  }
  const shrink = Math.min(1, LARGEST / Math.max(picture.width, picture.height));
  const width = Math.max(1, Math.round(picture.width * shrink));
  const height = Math.max(1, Math.round(picture.height * shrink));
  const context = blank(width, height);
  context.fillStyle = "#fff"; // shows through where the picture is transparent
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(picture, 0, 0, width, height);
  picture.close();
  return separated(lightOf(context), width, height);
}

/** @param {CanvasRenderingContext2D} context */
function lightOf(context) {
  const { data } = context.getImageData(0, 0, context.canvas.width, context.canvas.height);
  const light = (/** @type {number} */ at) => (0.299 * data[at] + 0.587 * data[at + 1] + 0.114 * data[at + 2]) / 255;
  return Float32Array.from({ length: data.length / 4 }, (_, at) => light(at * 4));
}

/** The ink: what is not paper. @param {Float32Array} light @param {number} width @param {number} height */
function separated(light, width, height) {
  const paper = borderOf(light, width, height);
  const ink = light.map((value) => Math.max(0, paper > 0.5 ? paper - value : value - paper));
  const darkest = quantile(ink, 0.995) || Math.max(...ink);
  if (darkest < 0.05) return { values: ink.fill(0), width, height };
  const ready = width === SIDE && height === SIDE; // its greys are right already
  const [least, most] = ready ? [0, 1] : [SHADOW * darkest, FULL * darkest];
  return { values: ink.map((value) => Math.min(1, Math.max(0, (value - least) / (most - least)))), width, height };
}

/**
 * The median lightness of a picture's edge.
 * @param {Float32Array} light
 * @param {number} width
 * @param {number} height
 */
function borderOf(light, width, height) {
  const edge = light.filter((_, at) => {
    const [x, y] = [at % width, Math.floor(at / width)];
    return x === 0 || y === 0 || x === width - 1 || y === height - 1;
  });
  return quantile(edge, 0.5);
}

/** @param {Float32Array} values @param {number} share */
function quantile(values, share) {
  const sorted = Float32Array.from(values).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}
