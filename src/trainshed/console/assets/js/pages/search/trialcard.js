// @ts-check
// One trial: its values, why it ended, and where its log and files are.

import { h, replace } from "../../dom.js";
import { between, duration, number } from "../../format.js";
import { button, copyButton, elapsed, timeAgo } from "../../parts.js";
import { facts } from "../../table.js";
import { flags } from "./headline.js";
import { trialBadge } from "./states.js";
import { valueText } from "./tip.js";

/** @typedef {import("./search.js").Search} Search */
/** What else can be done with a trial. @typedef {(trial: Api.SearchTrial, search: Search) => Node[]} Actions */

export class TrialCard {
  /** @param {import("./selection.js").Selection} selection @param {Actions} actions */
  constructor(selection, actions) {
    this.selection = selection;
    this.actions = actions;
    this.search = /** @type {Search | null} */ (null);
    this.shown = "";
    this.node = h("section", {
      class: "card trial-card",
      hidden: true,
      dataset: { testid: "trial-card" },
      tabIndex: -1,
    });
    this.node.setAttribute("aria-label", "The open trial");
    selection.listeners.add((what) => {
      if (what !== "opened") return;
      this.#show();
      if (!this.node.hidden) this.node.focus({ preventScroll: true });
      this.node.scrollIntoView({ block: "nearest" });
    });
  }

  /** @param {Search} search */
  update(search) {
    this.search = search;
    this.#show();
  }

  #show() {
    const { search } = this;
    const index = search?.index.get(this.selection.opened ?? -1);
    this.node.hidden = !search || index === undefined;
    if (!search || index === undefined) {
      this.shown = "";
      return;
    }
    const trial = search.trials[index];
    const sign = JSON.stringify([trial, search.best]);
    if (sign === this.shown) return;
    this.shown = sign;
    replace(this.node, this.#head(search, index), this.#reason(trial), this.#values(search, index), this.#times(trial));
  }

  /** @param {Search} search @param {number} index */
  #head(search, index) {
    const trial = search.trials[index];
    const place = search.ranked.indexOf(index);
    return h(
      "div",
      { class: "trial-head" },
      h("h2", null, `Trial ${trial.trial}`),
      trialBadge(search, index),
      place >= 0 && search.metrics.length === 1
        ? h("span", { class: "muted" }, `place ${place + 1} of ${search.ranked.length}`)
        : null,
      h(
        "div",
        { class: "button-row trial-actions" },
        copyButton(() => flags(search, index), "Copy the values as arguments"),
        this.actions(trial, search),
        button("Close", { onClick: () => this.selection.open(null), testid: "trial-close" }),
      ),
    );
  }

  /** @param {Api.SearchTrial} trial */
  #reason(trial) {
    return trial.reason ? h("p", { class: "trial-reason", dataset: { testid: "trial-reason" } }, trial.reason) : null;
  }

  /** @param {Search} search @param {number} index */
  #values(search, index) {
    const trial = search.trials[index];
    const metrics = search.table.metrics.map(({ name }, at) => {
      const [final, last] = [trial.metrics[at], trial.lastMetrics[at]];
      const text = final !== null ? number(final) : last !== null ? `${number(last)} so far` : "–";
      return pair(name, text, "trial-metric");
    });
    return h(
      "dl",
      { class: "search-values" },
      metrics,
      search.parameters.map(({ axis }, at) => pair(axis.title, valueText(search, index, at))),
    );
  }

  /** @param {Api.SearchTrial} trial */
  #times(trial) {
    const ran = trial.startTime ? elapsed(trial.startTime, trial.endTime) : null;
    return facts([
      ["Job", trial.job],
      ["Client", trial.client],
      ["Started", trial.startTime ? timeAgo(trial.startTime) : null],
      ["Ran for", trial.endTime && trial.startTime ? duration(between(trial.startTime, trial.endTime)) : ran],
    ]);
  }
}

/** @param {string} name @param {string} value */
function pair(name, value, look = "") {
  return h("div", { class: `search-value ${look}` }, h("dt", null, name), h("dd", null, value));
}
