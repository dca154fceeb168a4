// @ts-check
// The colours of canvases: those of the style sheet, of the theme that is on.

const STEPS = 24;
const NAMES = /** @type {const} */ ([
  "ink",
  "ink-2",
  "ink-3",
  "line",
  "line-strong",
  "surface",
  "accent",
  "bad",
  "good",
]);
const RAMP = ["ramp-1", "ramp-2", "ramp-3"];

/**
 * @typedef {{[name in typeof NAMES[number]]: string} & {ramp: string[], font: string}} Palette `ramp`: from poor to
 * good
 */

/** @type {Palette | null} */
let known = null;
/** @type {Set<() => void>} */
const listeners = new Set();

/** The colours now. They are read once for each theme. @returns {Palette} */
export function palette() {
  known ??= read();
  return known;
}

/** The colour of a trial by how good it is, from 0 to 1. @param {number} goodness */
export function shade(goodness) {
  return palette().ramp[bucket(goodness)];
}

/** The step of the ramp. @param {number} goodness */
export function bucket(goodness) {
  return Math.min(STEPS - 1, Math.max(0, Math.floor(goodness * STEPS)));
}

/**
 * Call a function whenever the theme changes, as long as a node is in the document.
 * @param {Node} node
 * @param {() => void} redraw
 */
export function onTheme(node, redraw) {
  const listener = () => {
    if (node.isConnected) redraw();
    else listeners.delete(listener);
  };
  listeners.add(listener);
}

function read() {
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  const colour = (/** @type {string} */ name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const named = Object.fromEntries(NAMES.map((name) => [name, colour(name)]));
  const stops = RAMP.map((name) => channels(colour(name)));
  const font = `11.5px ${getComputedStyle(document.body).fontFamily}`;
  probe.remove();
  return /** @type {Palette} */ ({ ...named, ramp: Array.from({ length: STEPS }, (_, at) => mixed(stops, at)), font });
}

/** @param {number[][]} stops @param {number} at */
function mixed(stops, at) {
  const place = (at / (STEPS - 1)) * (stops.length - 1);
  const first = Math.min(stops.length - 2, Math.floor(place));
  const mix = stops[first].map((value, index) => value + (stops[first + 1][index] - value) * (place - first));
  return `rgb(${mix.map(Math.round).join(" ")})`;
}

/** @param {string} colour as browsers compute it @returns {number[]} red, green, blue */
function channels(colour) {
  return (colour.match(/[\d.]+/g) ?? []).slice(0, 3).map(Number);
}

function changed() {
  known = null;
  for (const listener of [...listeners]) listener();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
new MutationObserver(changed).observe(document.documentElement, { attributeFilter: ["data-theme"] });
