// @ts-check
// What a search has come to: the best trial with its values, and how far it is.

import { h, replace } from "../../dom.js";
import { count, number } from "../../format.js";
import { button, codeBlock, copyButton, progressBar } from "../../parts.js";
import { valueText } from "./tip.js";

/** @typedef {import("./search.js").Search} Search */
/** @typedef {{node: HTMLElement, when: (search: Search) => boolean}} FollowUp a button, and when it is shown */

export class Headline {
  /** @param {import("./selection.js").Selection} selection */
  constructor(selection) {
    this.selection = selection;
    this.buttons = h("div", { class: "button-row" });
    this.followUps = /** @type {FollowUp[]} */ ([]);
    this.after = h("div", { class: "button-row" });
    this.best = h("div", { class: "search-best", dataset: { testid: "search-best" } });
    this.values = h("dl", { class: "search-values" });
    this.bar = progressBar({ fraction: null });
    this.counts = h("p", { class: "search-counts", dataset: { testid: "search-counts" } });
    this.node = h(
      "section",
      { class: "card search-headline", "aria-label": "Result so far" },
      h(
        "div",
        { class: "search-result" },
        this.best,
        this.values,
        h("div", { class: "search-buttons" }, this.after, this.buttons),
      ),
      h("div", { class: "search-progress" }, this.bar, this.counts),
    );
    this.shown = "";
  }

  /** Buttons of what can follow the search. @param {FollowUp[]} followUps */
  follow(followUps) {
    this.followUps = followUps;
    this.after.append(...followUps.map(({ node }) => node));
  }

  /** @param {Search} search */
  update(search) {
    this.#progress(search);
    this.buttons.hidden = search.table.ended;
    for (const { node, when } of this.followUps) node.hidden = !when(search);
    const sign = JSON.stringify([search.table.optimal, search.best, search.trials[search.best]]);
    if (sign === this.shown) return;
    this.shown = sign;
    if (search.metrics.length > 1) this.#front(search);
    else this.#best(search);
  }

  /** @param {Search} search */
  #best(search) {
    const [{ name, goal }] = search.table.metrics;
    const title = goal === "MINIMIZE" ? `Least ${name}` : `Greatest ${name}`;
    this.values.hidden = search.best < 0;
    if (search.best < 0) {
      replace(this.best, term(title), h("div", { class: "search-none" }, "No trial has a value yet"));
      return;
    }
    const trial = search.trials[search.best];
    const open = button(`Trial ${trial.trial}`, {
      onClick: () => this.selection.open(trial.trial),
      testid: "search-best-trial",
    });
    const copy = copyButton(() => flags(search, search.best), "Copy the values as arguments");
    const value = h("span", { class: "search-best-value" }, number(search.metrics[0].values[search.best]));
    replace(this.best, term(title), h("div", { class: "search-best-row" }, value, open, copy));
    replace(
      this.values,
      search.parameters.map(({ axis }, at) =>
        h(
          "div",
          { class: "search-value" },
          h("dt", null, axis.title),
          h("dd", null, valueText(search, search.best, at)),
        ),
      ),
    );
  }

  /** @param {Search} search of several metrics: no single trial is the best */
  #front(search) {
    const goals = search.table.metrics.map(({ name, goal }) => `${goal === "MINIMIZE" ? "least" : "greatest"} ${name}`);
    const found = search.table.optimal;
    this.values.hidden = true;
    replace(
      this.best,
      term(goals.join(", ")),
      h("div", { class: "search-best-value" }, found.length === 0 ? "–" : count(found.length, "trial")),
      h("p", { class: "muted small" }, "No other trial is better than these in all metrics: the Pareto front."),
      h(
        "div",
        { class: "button-row" },
        found.slice(0, 12).map((each) => button(`Trial ${each}`, { onClick: () => this.selection.open(each) })),
      ),
    );
  }

  /** @param {Search} search */
  #progress(search) {
    const { table } = search;
    const own = search.trials.filter((trial) => trial.job === "" || trial.job === table.name).length;
    const left = search.count("running", "waiting");
    const done = own - left;
    this.bar.hidden = table.ended || table.jobs.length === 0; // a study has no number of trials to reach
    this.bar.update({
      fraction: done / table.maxTrials,
      label: `${number(done)} of ${number(table.maxTrials)} trials`,
    });
    const running = search.count("running");
    const parts = [
      table.ended ? count(own, "trial") : "",
      running ? `${running} running${table.maxParallelTrials ? ` of ${table.maxParallelTrials} at a time` : ""}` : "",
      search.count("waiting") ? `${search.count("waiting")} waiting` : "",
      search.count("stopped") ? `${search.count("stopped")} stopped early` : "",
      search.count("lost") ? `${search.count("lost")} without a value` : "",
      table.jobs.length > 1 ? `${search.size - own} of earlier jobs: ${table.jobs.slice(0, -1).join(", ")}` : "",
    ];
    this.counts.textContent = parts.filter(Boolean).join(" · ");
  }
}

/** @param {string} text */
function term(text) {
  return h("div", { class: "search-term" }, text);
}

/** The values of a trial as a trainer gets them. @param {Search} search @param {number} index */
export function flags(search, index) {
  const { values } = search.trials[index];
  return search.table.parameters
    .flatMap(({ name }, at) => (values[at] === null ? [] : [`--${name} ${quoted(String(values[at]))}`]))
    .join(" ");
}

/** @param {string} text as a word of a shell */
function quoted(text) {
  return /^[\w.,:/+-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** A command with what it does above it. @param {string} text @param {string} command */
export function commandBox(text, command) {
  return h("div", { class: "search-command" }, h("p", { class: "small muted" }, text), codeBlock(command));
}
