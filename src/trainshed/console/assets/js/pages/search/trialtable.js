// @ts-check
// The table of trials: those that are chosen, the best first.

import { h } from "../../dom.js";
import { between, duration, number } from "../../format.js";
import { elapsed } from "../../parts.js";
import { table } from "../../table.js";
import { trialBadge, trialBadgeText } from "./states.js";
import { valueText } from "./tip.js";

/** @typedef {import("./search.js").Search} Search */
/** @typedef {{index: number, trial: Api.SearchTrial, best: boolean}} Row */
/** @typedef {import("../../table.js").Column<Row>} Column */

export class TrialTable {
  /** @param {import("./selection.js").Selection} selection @param {import("./trialcard.js").Actions} actions */
  constructor(selection, actions) {
    this.selection = selection;
    this.actions = actions;
    this.search = /** @type {Search | null} */ (null);
    this.made = "";
    /** @type {import("../../table.js").TableElement<Row> | null} */
    this.table = null;
    this.node = h("div", { class: "trial-table" });
    selection.listeners.add((what) => {
      if (what === "chosen") this.#fill();
    });
  }

  /** @param {Search} search */
  update(search) {
    this.search = search;
    const sign = JSON.stringify([search.table.parameters, search.table.metrics]);
    if (sign !== this.made) {
      this.made = sign;
      this.table = table({
        testid: "trials",
        caption: "Trials",
        columns: this.#columns(search),
        key: ({ trial }) => String(trial.trial),
        rows: [],
        windowed: true,
        onOpen: ({ trial }) => this.selection.open(trial.trial),
        empty: "No trial is chosen. Clear the choice above to see all.",
      });
      this.node.replaceChildren(this.table);
    }
    this.#fill();
  }

  #fill() {
    const { search } = this;
    if (search === null) return;
    const mask = this.selection.mask(search);
    const measured = new Set(search.ranked);
    const rest = [...search.trials.keys()].filter((index) => !measured.has(index)).reverse();
    const order = [
      ...rest.filter((index) => this.#live(index)),
      ...search.ranked,
      ...rest.filter((i) => !this.#live(i)),
    ];
    this.table?.update(
      order
        .filter((index) => mask[index])
        .map((index) => ({
          index,
          trial: search.trials[index],
          best: search.table.optimal.includes(search.trials[index].trial),
        })),
    );
  }

  /** Whether a trial runs or waits: these come first. @param {number} index */
  #live(index) {
    const standing = this.search?.standings[index];
    return standing === "running" || standing === "waiting";
  }

  /** @param {Search} search @returns {Column[]} */
  #columns(search) {
    const now = () => /** @type {Search} */ (this.search);
    return [
      {
        title: "Trial",
        sort: ({ trial }) => trial.trial,
        class: "cell-number",
        cell: ({ trial, best }) => [this.#name(trial), best ? h("span", { class: "tag tag-default" }, "best") : null],
      },
      { title: "State", sort: (row) => trialBadgeText(now(), row.index), cell: (row) => trialBadge(now(), row.index) },
      ...search.table.metrics.map(({ name }, at) => metricColumn(name, at)),
      {
        title: "Ran for",
        sort: ({ trial }) => between(trial.startTime ?? undefined, trial.endTime),
        cell: ({ trial }) => ran(trial),
      },
      ...search.parameters.map(({ axis }, at) => ({
        title: axis.title,
        sort: (/** @type {Row} */ row) => now().trials[row.index]?.values[at],
        cell: (/** @type {Row} */ row) => h("span", { class: "nowrap" }, valueText(now(), row.index, at)),
      })),
      {
        title: "Why it ended",
        cell: ({ trial }) =>
          trial.reason ? h("div", { class: "clip small", title: trial.reason }, trial.reason) : "–",
      },
      {
        title: h("span", { class: "sr-only" }, "What can be done"),
        label: "",
        class: "cell-actions",
        cell: ({ trial }) => h("div", { class: "button-row" }, this.actions(trial, now())),
      },
    ];
  }

  /** @param {Api.SearchTrial} trial */
  #name(trial) {
    const open = () => this.selection.open(trial.trial);
    return h(
      "button",
      { class: "link trial-name", type: "button", "aria-label": `Open trial ${trial.trial}`, on: { click: open } },
      String(trial.trial),
    );
  }
}

/** @param {string} name @param {number} at @returns {Column} */
function metricColumn(name, at) {
  const value = (/** @type {Row} */ { trial }) => trial.metrics[at] ?? trial.lastMetrics[at];
  return {
    title: name,
    sort: value,
    cell: (row) => {
      const text = number(value(row));
      return row.trial.metrics[at] === null ? h("span", { class: "muted" }, text) : h("b", { class: "nowrap" }, text);
    },
  };
}

/** @param {Api.SearchTrial} trial */
function ran({ startTime, endTime }) {
  if (!startTime) return "–";
  return endTime ? h("span", { class: "nowrap" }, duration(between(startTime, endTime))) : elapsed(startTime);
}
