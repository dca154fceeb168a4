// @ts-check
// A search as columns of numbers, which all plots read: positions on axes, values and ranks. Pure, without DOM.

import { parameterAxis, valueAxis } from "./axes.js";

/** @typedef {import("./axes.js").Axis} Axis */
/** @typedef {{axis: Axis, values: Float64Array, units: Float32Array}} Column NaN where a trial has no value */

const RUNNING = new Set(["PREPARING", "RUNNING", "CANCELLING", "ACTIVE", "STOPPING"]);
const WAITING = new Set(["QUEUED", "REQUESTED"]);

/**
 * How a trial stands, for tuning jobs and studies alike.
 * @typedef {"waiting" | "running" | "done" | "stopped" | "lost"} Standing
 */

/** @param {Api.SearchTrial} trial @returns {Standing} "lost": it ended without a value */
export function standing(trial) {
  if (RUNNING.has(trial.state)) return "running";
  if (WAITING.has(trial.state)) return "waiting";
  if (trial.stoppedEarly) return "stopped";
  return trial.metrics[0] === null ? "lost" : "done";
}

/** Immutable: a new answer of the server makes a new one. */
export class Search {
  /** @param {Api.SearchTable} table */
  constructor(table) {
    this.table = table;
    this.trials = table.trials;
    this.size = table.trials.length;
    this.standings = table.trials.map(standing);
    /** @type {Map<number, number>} the index of each trial by its number */
    this.index = new Map(table.trials.map((trial, at) => [trial.trial, at]));
    this.parameters = table.parameters.map((parameter, at) => this.#parameter(parameter, at));
    this.metrics = table.metrics.map((metric, at) => this.#metric(metric, at));
    this.sign = table.metrics[0]?.goal === "MINIMIZE" ? -1 : 1;
    this.ranked = this.#ranked();
    this.goodness = this.#goodness();
  }

  /** All columns, those of the metrics last. */
  get columns() {
    return [...this.parameters, ...this.metrics];
  }

  /** The index of the best trial; -1 without one. */
  get best() {
    return this.ranked[0] ?? -1;
  }

  /** How many trials stand like this. @param {...Standing} wanted */
  count(...wanted) {
    return this.standings.filter((each) => wanted.includes(each)).length;
  }

  /** @param {string} key of an axis @returns {Column | undefined} */
  column(key) {
    return this.columns.find((column) => column.axis.key === key);
  }

  /** The best share of the measured trials, one at least. @param {number} percent @returns {Set<number>} */
  top(percent) {
    return new Set(this.ranked.slice(0, Math.max(1, Math.round((this.ranked.length * percent) / 100))));
  }

  /**
   * The best value after each trial that has one, in the order of their ends.
   * @returns {[index: number, best: number][]}
   */
  bestSoFar() {
    const { values } = this.metrics[0];
    const ends = this.trials.map(ended);
    const order = [...this.ranked].sort((a, b) => ends[a] - ends[b] || a - b);
    let best = NaN;
    return order.map((index) => {
      if (!(this.sign * best >= this.sign * values[index])) best = values[index];
      return [index, best];
    });
  }

  /** @param {Api.SearchParameter} parameter @param {number} at @returns {Column} */
  #parameter(parameter, at) {
    const axis = parameterAxis(parameter);
    const given = this.trials.map((trial) => trial.values[at]);
    return column(
      axis,
      given.map((value) => axis.number(value)),
    );
  }

  /** @param {Api.SearchMetric} metric @param {number} at @returns {Column} */
  #metric(metric, at) {
    const values = this.trials.map((trial) => trial.metrics[at] ?? NaN);
    return column(valueAxis(`m.${metric.name}`, metric.name, values), values);
  }

  /** The indexes of the measured trials, best first, by the first metric. */
  #ranked() {
    const { values } = this.metrics[0];
    const known = [...values.keys()].filter((index) => !Number.isNaN(values[index]));
    return known.sort((a, b) => this.sign * (values[b] - values[a]) || a - b);
  }

  /** From 0, the worst, to 1, the best; NaN for those without a value. */
  #goodness() {
    const result = new Float32Array(this.size).fill(NaN);
    const last = Math.max(1, this.ranked.length - 1);
    this.ranked.forEach((index, place) => (result[index] = 1 - place / last));
    return result;
  }
}

/** @param {Axis} axis @param {number[]} values @returns {Column} */
function column(axis, values) {
  return { axis, values: Float64Array.from(values), units: Float32Array.from(values, (value) => axis.unit(value)) };
}

/** @param {Api.SearchTrial} trial */
function ended(trial) {
  return Date.parse(trial.endTime ?? trial.startTime ?? "") || 0;
}
