// @ts-check
// The charts of a job: metrics of the training, and the resources of each replica.

import { get } from "../../api.js";
import { lineChart } from "../../charts.js";
import { h, replace } from "../../dom.js";
import { bytes, number } from "../../format.js";
import { isKey } from "../../lookup.js";
import { live } from "../../live.js";
import { emptyState, loading } from "../../parts.js";
import { hasEnded } from "./jobinfo.js";

const EVERY_S = 2;
const POINTS = 400;
/** @type {Record<string, string>} those that come first */
const TITLES = { loss: "Loss", accuracy: "Accuracy", steps_per_s: "Steps per second" };

/** @param {number} cores @returns {string} as `top` has it: 100 % is one core */
export function cpuText(cores) {
  return Number.isFinite(cores) ? `${Math.round(cores * 100)} %` : "–";
}

/** @param {number[]} xs @param {Api.Measure[]} ys @returns {[number, number][]} */
function points(xs, ys) {
  return xs.map((x, index) => [x, Number(ys[index])]);
}

/** @param {string[]} times */
function moments(times) {
  return times.map((time) => Date.parse(time));
}

/** @typedef {import("../../charts.js").Options} Options */

/**
 * A card with one chart, updated by `update`.
 * @param {string} title
 * @param {Options} options of the chart
 */
function card(title, options) {
  const chart = lineChart({ height: 180, label: title, ...options });
  const heading = h("h3", null, title);
  const node = h("article", { class: "card job-chart" }, heading, chart);
  return { node, update: chart.update };
}

/** Charts by key: created on first use, then updated. */
class Cards {
  constructor() {
    this.made = /** @type {Map<string, ReturnType<typeof card>>} */ (new Map());
  }

  /** @param {string} key @param {string} title @param {Options} options */
  show(key, title, options) {
    const found = this.made.get(key) ?? card(title, options);
    if (this.made.has(key)) found.update(options.series, options.reach);
    this.made.set(key, found);
    return found.node;
  }
}

/**
 * Loss, accuracy and steps/s first, each with all its curves.
 * @param {Api.Metric[]} metrics
 * @returns {[string, Api.Metric[]][]}
 */
function grouped(metrics) {
  /** @type {Map<string, Api.Metric[]>} */
  const groups = new Map(Object.keys(TITLES).map((name) => [name, []]));
  for (const metric of metrics) groups.set(metric.name, [...(groups.get(metric.name) ?? []), metric]);
  return [...groups].filter(([, list]) => list.length > 0);
}

/** @param {Api.Metric} metric */
function curve(metric) {
  return { name: metric.evaluation ? "evaluation" : "training", points: points(metric.step, metric.value) };
}

/**
 * @param {HTMLElement} place
 * @param {HTMLElement[]} cards
 */
function keep(place, cards) {
  const same = cards.length === place.children.length && cards.every((node, index) => place.children[index] === node);
  if (!same) replace(place, cards);
}

/**
 * A chart for each replica, all with the same scale.
 * @param {Cards} cards @param {Api.ReplicaStats[]} replicas
 * @param {"cpu" | "memoryBytes"} key @param {string} title @param {(y: number) => string} format
 */
function useCards(cards, replicas, key, title, format) {
  const sampled = replicas.filter((replica) => replica[key].value.length > 0);
  const reach = Math.max(0, ...sampled.map((replica) => Number(replica[key].max)));
  return sampled.map((replica) =>
    cards.show(`${key} ${replica.name}`, replica.name, {
      label: `${title} of ${replica.name}`,
      series: [{ name: title, points: points(moments(replica[key].time), replica[key].value) }],
      x: "time",
      zero: true,
      reach,
      yFormat: format,
      height: 150,
    }),
  );
}

/**
 * @param {string} path of the job in Trainshed's own API
 * @returns {HTMLElement}
 */
export function chartsTab(path) {
  const cards = new Cards();
  const training = h("div", { class: "job-charts-grid", dataset: { testid: "charts-training" } });
  const cpu = h("div", { class: "job-charts-grid job-charts-replicas", dataset: { testid: "charts-cpu" } });
  const memory = h("div", { class: "job-charts-grid job-charts-replicas", dataset: { testid: "charts-memory" } });
  const words = h("div", null, loading("Reading the curves…"));
  const sections = [
    section("Training", "By step", training),
    section("CPU", "100 % is one core", cpu),
    section("Memory", "Of a replica with every process that it started", memory),
  ];
  const node = h(
    "section",
    { class: "job-charts", "aria-label": "Charts" },
    words,
    sections.map((each) => each.node),
  );
  const show = (/** @type {Api.JobStats} */ stats) => {
    const curves = grouped(stats.metrics).map(([name, list]) => {
      const unit = list[0].unit === "epoch" ? " by epoch" : "";
      const title = `${isKey(TITLES, name) ? TITLES[name] : name}${unit}`;
      return cards.show(`metric ${name}`, title, {
        series: list.map(curve),
        x: "number",
        yFormat: number,
        zero: name !== "accuracy",
      });
    });
    keep(training, curves);
    keep(cpu, useCards(cards, stats.replicas, "cpu", "CPU", cpuText));
    keep(memory, useCards(cards, stats.replicas, "memoryBytes", "Memory", bytes));
    for (const { node, grid } of sections) node.hidden = grid.children.length === 0;
    replace(words, sections.every((each) => each.node.hidden) ? nothing(stats.state) : null);
  };
  watch(node, () => get(`${path}/stats`, { points: POINTS }), show);
  return node;
}

/** Hidden while the grid is empty. @param {string} title @param {string} hint @param {HTMLElement} grid */
function section(title, hint, grid) {
  const head = h("h2", null, title, h("small", null, hint));
  return { grid, node: h("section", { class: "job-charts-section", hidden: true }, head, grid) };
}

/** @param {Api.JobState} state */
function nothing(state) {
  const text = hasEnded(state)
    ? "It printed no loss, accuracy or steps, and ended before its CPU and memory were sampled."
    : "Curves appear when the job runs: CPU and memory every second, loss and accuracy as the trainer prints them.";
  return emptyState({ title: "Nothing to draw yet", text });
}

/**
 * Like `live`, but immutable data is loaded only once.
 * @template {{state: Api.JobState, complete: boolean}} T
 * @param {HTMLElement} node
 * @param {() => Promise<T>} load
 * @param {(value: T) => void} show
 */
export function watch(node, load, show) {
  const poll = live(node, EVERY_S, load, (value) => {
    show(value);
    if (hasEnded(value.state) && value.complete) poll.stop();
  });
}
