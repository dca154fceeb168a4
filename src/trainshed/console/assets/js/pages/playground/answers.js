// @ts-check
// The parts of a prediction, and the one to chart.

import { barChart, lineChart } from "../../charts.js";
import { h } from "../../dom.js";
import { number, percent } from "../../format.js";

const PREFERRED = ["probabilities", "probability", "softmax", "scores", "predictions", "logits"];
const MOST_BARS = 40;
const SHOWN = 6; // values of a long vector in a table

/** @typedef {Api.Json | undefined} Value of a prediction */

/** @param {Value} value @returns {value is number[]} */
function isVector(value) {
  return Array.isArray(value) && value.length > 1 && value.every((each) => typeof each === "number");
}

/**
 * The vector in a prediction: the prediction itself, or the output that most likely is one. null if there is none.
 * @param {Value} prediction
 * @param {number} [length] that it must have
 * @returns {{name: string, values: number[]} | null}
 */
export function vectorOf(prediction, length) {
  const found = isNamed(prediction)
    ? Object.entries(prediction)
    : /** @type {[string, Value][]} */ ([["", prediction]]);
  const vectors = found.flatMap(([name, values]) =>
    isVector(values) && (length === undefined || values.length === length) ? [{ name, values }] : [],
  );
  const preferred = PREFERRED.flatMap((name) => vectors.filter((each) => each.name === name));
  return preferred.at(0) ?? vectors.at(0) ?? null;
}

/** Whether a prediction has its outputs by name. @param {Value} value @returns {value is Record<string, Api.Json>} */
function isNamed(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Values as probabilities: unchanged if they are probabilities, else by softmax.
 * @param {number[]} values
 * @returns {{values: number[], softmax: boolean}}
 */
export function probabilities(values) {
  const sum = values.reduce((total, each) => total + each, 0);
  if (values.every((each) => each >= 0 && each <= 1.0001) && Math.abs(sum - 1) < 0.02)
    return { values, softmax: false };
  const most = Math.max(...values);
  const raised = values.map((each) => Math.exp(each - most));
  const total = raised.reduce((all, each) => all + each, 0);
  return { values: raised.map((each) => each / total), softmax: true };
}

/**
 * The digit that a prediction names without a vector: a number, a text, or an output that is one.
 * @param {Value} prediction
 */
export function digitOf(prediction) {
  const plain = (/** @type {Value} */ value) => (/^[0-9](\.0)?$/.test(String(value)) ? Number(value) : null);
  if (prediction === undefined || prediction === null || typeof prediction !== "object") return plain(prediction);
  return (
    Object.values(prediction)
      .map(plain)
      .find((each) => each !== null) ?? null
  );
}

/** @param {number[]} values */
export function largest(values) {
  return values.reduce((best, each, at) => (each > values[best] ? at : best), 0);
}

/**
 * Predictions as a table: a row for each instance, a column for each output.
 * @param {Api.Json[]} predictions
 */
export function predictionTable(predictions) {
  /** @type {Record<string, Value>[]} */
  const outputs = predictions.every(isNamed) ? predictions : predictions.map((prediction) => ({ prediction }));
  const columns = [...new Set(outputs.flatMap((each) => Object.keys(each)))].sort();
  const head = h(
    "tr",
    null,
    h("th", { scope: "col" }, "#"),
    columns.map((name) => h("th", { scope: "col" }, name)),
  );
  const rows = outputs.map((each, at) =>
    h(
      "tr",
      null,
      h("th", { scope: "row" }, at),
      columns.map((name) => h("td", null, short(each[name]))),
    ),
  );
  return h(
    "div",
    { class: "table-wrap" },
    h(
      "table",
      { class: "table answer-table", dataset: { testid: "answer-table" } },
      h("thead", null, head),
      h("tbody", null, rows),
    ),
  );
}

/** @param {Value} value @returns {string} */
function short(value) {
  if (typeof value === "number") return number(value);
  if (!Array.isArray(value)) return typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  const shown = value.slice(0, SHOWN).map(short).join(", ");
  return value.length > SHOWN ? `[${shown}, … ${value.length} in all]` : `[${shown}]`;
}

/**
 * A chart of the vectors in predictions, one chart for each of the first few; null if there is none.
 * @param {Api.Json[]} predictions
 */
export function predictionCharts(predictions) {
  const found = predictions.slice(0, 4).map((each) => vectorOf(each));
  if (!found.some((each) => each !== null)) return null;
  return h(
    "div",
    { class: "answer-charts", dataset: { testid: "answer-chart" } },
    found.map(
      (vector, at) =>
        vector &&
        h(
          "figure",
          { class: "answer-chart" },
          h("figcaption", null, `${vector.name || "prediction"} of instance ${at}`),
          chartOf(vector.values),
        ),
    ),
  );
}

/** @param {number[]} values */
function chartOf(values) {
  if (values.length > MOST_BARS) {
    return lineChart({
      series: [{ name: "value", points: values.map((value, at) => [at, value]) }],
      x: "number",
      yFormat: number,
      height: 200,
    });
  }
  const shares = values.every((each) => each >= 0 && each <= 1);
  return barChart({
    labels: values.map((_, at) => String(at)),
    values,
    format: shares ? percent : number,
    highlight: largest(values),
  });
}
