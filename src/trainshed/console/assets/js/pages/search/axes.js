// @ts-check
// Axes of plots: where a value is between 0 and 1, and which ticks are drawn. Pure, without DOM.

import { number } from "../../format.js";
import { innerTicks, niceScale, shortNumber } from "../../scales.js";

/** @typedef {{unit: number, text: string}} Tick */
/**
 * `number` is the value of a trial as a number: of a list, its place in it. `list` are the texts of a list. `unit` is
 * where a number is on the axis, from 0 to 1; `text` its text.
 * @typedef {{key: string, title: string, log: boolean, list: string[] | null,
 *   number: (value: Api.SearchValue) => number, unit: (value: number) => number,
 *   text: (value: number) => string, at: (unit: number) => number,
 *   ticks: (wanted: number) => Tick[]}} Axis
 */

const FAR = 3; // values farther out than so many spans of the middle 96 % are drawn at the edge

/**
 * The axis of a parameter, over its whole range and on its own scale.
 * @param {Api.SearchParameter} parameter
 * @returns {Axis}
 */
export function parameterAxis(parameter) {
  const key = `p.${parameter.name}`;
  const evenly = parameter.type === "DISCRETE" && parameter.scale === "NONE";
  if (parameter.type === "CATEGORICAL" || evenly) return listAxis(key, parameter.name, parameter.values, evenly);
  const [low, high] = [parameter.minimum ?? 0, parameter.maximum ?? 1];
  const whole = parameter.type === "INTEGER";
  if (parameter.scale === "LOG") return logAxis(key, parameter.name, low, high);
  if (parameter.scale === "REVERSE_LOG") return reverseAxis(logAxis(key, parameter.name, low, high), low + high);
  return linearAxis(key, parameter.name, low, high, { whole });
}

/**
 * A linear axis over values. A few that are far outside do not press the others together: they are at its end.
 * @param {string} key @param {string} title @param {ArrayLike<number>} values
 * @returns {Axis}
 */
export function valueAxis(key, title, values) {
  const [low, high] = usualRange(values);
  const nice = niceScale(low, high, 5);
  return linearAxis(key, title, nice.low, nice.high);
}

/**
 * The range of the values, without those that are far outside.
 * @param {ArrayLike<number>} values
 * @returns {[number, number]}
 */
export function usualRange(values) {
  const known = Array.from(values)
    .filter((value) => Number.isFinite(value))
    .sort((a, b) => a - b);
  if (known.length === 0) return [0, 1];
  const [low, high] = [known[0], known[known.length - 1]];
  const [q1, q2] = [0.02, 0.98].map((share) => known[Math.round(share * (known.length - 1))]);
  const room = (q2 - q1) * FAR;
  return room === 0 ? [low, high] : [Math.max(low, q1 - room), Math.min(high, q2 + room)];
}

/**
 * @param {string} key
 * @param {string} title
 * @param {number} low
 * @param {number} high
 * @param {{whole?: boolean}} [options]
 * @returns {Axis}
 */
export function linearAxis(key, title, low, high, { whole = false } = {}) {
  const unit = (/** @type {number} */ value) => (high === low ? 0.5 : clamp((value - low) / (high - low), value));
  return {
    key,
    title,
    log: false,
    list: null,
    number: numeric,
    unit,
    text: number,
    at: (where) => low + where * (high - low),
    ticks: (wanted) =>
      innerTicks(low, high, wanted)
        .filter((tick) => !whole || Number.isInteger(tick))
        .map((tick) => ({ unit: unit(tick), text: shortNumber(tick) })),
  };
}

/** @param {string} key @param {string} title @param {number} low above 0 @param {number} high @returns {Axis} */
function logAxis(key, title, low, high) {
  const span = Math.log(high / low);
  const unit = (/** @type {number} */ value) => (span === 0 ? 0.5 : clamp(Math.log(value / low) / span, value));
  return {
    key,
    title,
    log: true,
    list: null,
    number: numeric,
    unit,
    text: number,
    at: (where) => low * Math.exp(where * span),
    ticks: (wanted) => logTicks(low, high, wanted).map((tick) => ({ unit: unit(tick), text: shortNumber(tick) })),
  };
}

/**
 * Fine near the top: a logarithmic axis seen from the other end.
 * @param {Axis} axis
 * @param {number} sum low and high
 * @returns {Axis}
 */
function reverseAxis(axis, sum) {
  return {
    ...axis,
    unit: (value) => 1 - axis.unit(sum - value),
    at: (where) => sum - axis.at(1 - where),
    ticks: (wanted) =>
      axis.ticks(wanted).map((tick) => ({ unit: 1 - tick.unit, text: shortNumber(sum - axis.at(tick.unit)) })),
  };
}

/** @param {string} key @param {string} title @param {string[]} values @param {boolean} numbers @returns {Axis} */
function listAxis(key, title, values, numbers) {
  /** @type {Map<Api.SearchValue, number>} */
  const places = new Map(values.map((value, at) => [numbers ? Number(value) : value, at]));
  const unit = (/** @type {number} */ value) => (values.length === 1 ? 0.5 : value / (values.length - 1));
  return {
    key,
    title,
    log: false,
    list: values,
    number: (value) => places.get(value) ?? NaN,
    unit,
    text: (value) => values[value] ?? "–",
    at: (where) => Math.round(where * (values.length - 1)),
    ticks: (wanted) => {
      const every = Math.ceil(values.length / Math.max(2, wanted));
      return values.flatMap((text, at) => (at % every === 0 ? [{ unit: unit(at), text }] : []));
    },
  };
}

/**
 * Powers of ten, with 2 and 5 between them where there is room.
 * @param {number} low
 * @param {number} high
 * @param {number} wanted
 */
function logTicks(low, high, wanted) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const powers = Array.from({ length: last - first + 1 }, (_, at) => first + at);
  const every = Math.max(1, Math.ceil(powers.length / wanted));
  const steps = powers.length * 3 <= wanted * 1.5 ? [1, 2, 5] : [1];
  const ticks = powers
    .filter((_, at) => at % every === 0)
    .flatMap((power) => steps.map((step) => Number((step * 10 ** power).toPrecision(12))))
    .filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
  return ticks.length >= 2 ? ticks : [low, high];
}

/** @param {Api.SearchValue} value */
function numeric(value) {
  return typeof value === "number" ? value : NaN;
}

/** @param {number} unit @param {number} value */
function clamp(unit, value) {
  return Number.isNaN(value) ? NaN : Math.min(1, Math.max(0, unit));
}
