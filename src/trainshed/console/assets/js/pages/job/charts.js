// @ts-check
// The curves of a job: what the training measured, and what each replica used, side by side.

import { get } from "../../api.js";
import { lineChart } from "../../charts.js";
import { h, replace } from "../../dom.js";
import { bytes, number } from "../../format.js";
import { live } from "../../live.js";
import { emptyState, loading } from "../../parts.js";
import { hasEnded } from "./jobinfo.js";

const EVERY_S = 2;
const POINTS = 400;
const TITLES = { loss: "Loss", accuracy: "Accuracy", steps_per_s: "Steps per second" };

/** @param {number} cores @returns {string} as `top` has it: 100 % is one core */
export function cpuText(cores) {
  return Number.isFinite(cores) ? `${Math.round(cores * 100)} %` : "–";
}

/** @param {any[]} xs @param {any[]} ys @returns {[number, number][]} */
export function points(xs, ys) {
  return xs.map((x, index) => [x, Number(ys[index] ?? NaN)]);
}

/** @param {string[]} times */
function moments(times) {
  return times.map((time) => Date.parse(time));
}

/**
 * A card with one chart, kept and moved on by `update`.
 * @param {string} title
 * @param {any} options of the chart
 */
function card(title, options) {
  const chart = lineChart({ height: 180, label: title, ...options });
  const heading = h("h3", null, title);
  const node = h("article", { class: "card job-chart" }, heading, chart);
  return { node, update: chart.update };
}

/** Charts by key: made when they are first needed, then updated. */
class Cards {
  constructor() {
    this.made = new Map();
  }

  /** @param {string} key @param {string} title @param {any} options */
  show(key, title, options) {
    const found = this.made.get(key);
    if (found) found.update(options.series, options.reach);
    else this.made.set(key, card(title, options));
    return this.made.get(key).node;
  }
}

/** @param {any[]} metrics @returns {[string, any[]][]} loss, accuracy and steps/s first, each with all its curves */
function grouped(metrics) {
  const groups = new Map(Object.keys(TITLES).map((name) => [name, /** @type {any[]} */ ([])]));
  for (const metric of metrics) groups.set(metric.name, [...(groups.get(metric.name) ?? []), metric]);
  return [...groups].filter(([, list]) => list.length > 0);
}

/** @param {any} metric */
function curve(metric) {
  return { name: metric.evaluation ? "evaluation" : "training", points: points(metric.step, metric.value) };
}

/**
 * @param {HTMLElement} place
 * @param {any[]} cards
 */
function keep(place, cards) {
  const same = cards.length === place.children.length && cards.every((node, index) => place.children[index] === node);
  if (!same) replace(place, cards);
}

/**
 * A chart for each replica, all of them to the same scale.
 * @param {Cards} cards @param {any[]} replicas
 * @param {"cpu" | "memory_bytes"} key @param {string} title @param {(y: number) => string} format
 */
function useCards(cards, replicas, key, title, format) {
  const sampled = replicas.filter((replica) => replica[key].value.length > 0);
  const reach = Math.max(0, ...sampled.map((replica) => replica[key].max));
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
  const node = h("section", { class: "job-charts", "aria-label": "Charts" }, words, sections);
  const show = (/** @type {any} */ stats) => {
    const curves = grouped(stats.metrics).map(([name, list]) => {
      const unit = list[0].unit === "epoch" ? " by epoch" : "";
      const title = `${TITLES[/** @type {keyof typeof TITLES} */ (name)] ?? name}${unit}`;
      return cards.show(`metric ${name}`, title, {
        series: list.map(curve),
        x: "number",
        yFormat: number,
        zero: name !== "accuracy",
      });
    });
    keep(training, curves);
    keep(cpu, useCards(cards, stats.replicas, "cpu", "CPU", cpuText));
    keep(memory, useCards(cards, stats.replicas, "memory_bytes", "Memory", bytes));
    for (const each of sections) each.hidden = each.lastElementChild.children.length === 0;
    replace(words, sections.every((each) => each.hidden) ? nothing(stats.state) : null);
  };
  sections.forEach((each) => (each.hidden = true));
  watch(node, () => get(`${path}/stats`, { points: POINTS }), show);
  return node;
}

/** @param {string} title @param {string} hint @param {HTMLElement} grid */
function section(title, hint, grid) {
  return h("section", { class: "job-charts-section" }, h("h2", null, title, h("small", null, hint)), grid);
}

/** @param {string} state */
function nothing(state) {
  const text = hasEnded(state)
    ? "It printed no loss, accuracy or steps, and ended before its CPU and memory were sampled."
    : "Curves appear when the job runs: CPU and memory every second, loss and accuracy as the trainer prints them.";
  return emptyState({ title: "Nothing to draw yet", text });
}

/**
 * As `live`, but what will never change is read only once.
 * @param {HTMLElement} node
 * @param {() => Promise<any>} load whose answer has the job's `state` and may have `complete`
 * @param {(value: any) => void} show
 */
export function watch(node, load, show) {
  const poll = live(node, EVERY_S, load, (value) => {
    show(value);
    if (hasEnded(value.state) && value.complete !== false) poll.stop();
  });
}
