// @ts-check
// Bars and sparklines.

import { h, s } from "./dom.js";
import { number } from "./format.js";

/**
 * Horizontal bars, one for each label: probabilities, shares. `highlight` is an index or "max". `.update(values)`.
 * @param {{labels: string[], values: number[], format?: (value: number) => string, highlight?: number | "max" | null,
 *   max?: number, title?: string}} options
 * @returns {HTMLElement & {update: (values: number[], highlight?: number | "max" | null) => void}}
 */
export function barChart({ labels, values, format = number, highlight = null, max, title = "" }) {
  const rows = labels.map((label) => {
    const fill = h("div", { class: "bar-fill" });
    const value = h("span", { class: "bar-value" });
    const row = h(
      "div",
      { class: "bar-row", role: "listitem" },
      h("span", { class: "bar-label" }, label),
      h("div", { class: "bar-track" }, fill),
      value,
    );
    return { row, fill, value };
  });
  const element = h(
    "div",
    { class: "bars", role: "list", "aria-label": title || "Bars" },
    rows.map(({ row }) => row),
  );
  const update = (/** @type {number[]} */ given, /** @type {number | "max" | null} */ set = highlight) => {
    const sizes = given.map((each) => (Number.isFinite(each) ? Math.max(0, each) : 0));
    const top = max ?? Math.max(...sizes, 1e-12);
    const best = set === "max" ? sizes.indexOf(Math.max(...sizes)) : set;
    rows.forEach(({ row, fill, value }, index) => {
      fill.style.transform = `scaleX(${Math.min(1, (sizes[index] ?? 0) / top)})`;
      value.textContent = given[index] === undefined ? "" : format(given[index]);
      row.classList.toggle("bar-best", index === best);
    });
  };
  update(values);
  return Object.assign(element, { update });
}

/**
 * A sparkline: a small line chart without axes.
 * @param {(number | [number, number])[]} points
 * @returns {SVGElement}
 */
export function spark(points) {
  const ys = points.map((point) => (Array.isArray(point) ? point[1] : point)).filter((y) => Number.isFinite(y));
  const [low, high] = [Math.min(...ys), Math.max(...ys)];
  const down = (/** @type {number} */ y) => (high === low ? 12 : 22 - ((y - low) / (high - low)) * 20);
  const across = (/** @type {number} */ index) => (index / Math.max(1, ys.length - 1)) * 98 + 1;
  const path = ys.map((y, index) => `${across(index).toFixed(1)} ${down(y).toFixed(1)}`).join("L");
  return s(
    "svg",
    { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" },
    ys.length > 1 ? s("path", { d: `M${path}` }) : null,
  );
}
