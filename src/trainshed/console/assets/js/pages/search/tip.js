// @ts-check
// A trial in a few lines, beside the pointer.

import { h, replace } from "../../dom.js";
import { number } from "../../format.js";
import { trialBadgeText } from "./states.js";

const MOST = 8;

/**
 * The value of a parameter of a trial, as text.
 * @param {import("./search.js").Search} search
 * @param {number} index
 * @param {number} at
 */
export function valueText(search, index, at) {
  const { axis, values } = search.parameters[at];
  return Number.isNaN(values[index]) ? "–" : axis.text(values[index]);
}

/** @param {HTMLElement} tip @param {import("./search.js").Search} search @param {number} index */
export function trialTip(tip, search, index) {
  const trial = search.trials[index];
  const found = search.table.metrics.map((metric, at) => {
    const value = trial.metrics[at] ?? trial.lastMetrics[at];
    return row(
      metric.name,
      value === null ? "no value" : `${number(value)}${trial.metrics[at] === null ? " so far" : ""}`,
    );
  });
  const parameters = search.parameters
    .slice(0, MOST)
    .map(({ axis }, at) => row(axis.title, valueText(search, index, at)));
  const more = search.parameters.length - MOST;
  replace(
    tip,
    h("div", { class: "chart-tip-head" }, `Trial ${trial.trial} · ${trialBadgeText(search, index)}`),
    found,
    h("div", { class: "plot-tip-values" }, parameters),
    more > 0 ? h("div", { class: "chart-tip-head" }, `and ${more} more`) : null,
  );
}

/** @param {string} name @param {string} value */
function row(name, value) {
  return h("div", { class: "chart-tip-row" }, h("span", { class: "chart-tip-name" }, name), h("b", null, value));
}
