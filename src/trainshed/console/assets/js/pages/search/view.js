// @ts-check
// A search with all of its plots, for the page of a tuning job and for that of a study.

import { barChart } from "../../bars.js";
import { getNew } from "../../api.js";
import { h, replace } from "../../dom.js";
import { count, percent } from "../../format.js";
import { live } from "../../live.js";
import { button, emptyState, loading } from "../../parts.js";
import { contour } from "./contour.js";
import { Curves } from "./curves.js";
import { Headline } from "./headline.js";
import { History } from "./history.js";
import { LEAST, importance } from "./importance.js";
import { Parallel } from "./parallel.js";
import { Pareto } from "./pareto.js";
import { Search } from "./search.js";
import { BEST, Selection } from "./selection.js";
import { slices } from "./slices.js";
import { Timeline } from "./timeline.js";
import { TrialCard } from "./trialcard.js";
import { TrialTable } from "./trialtable.js";

const EVERY_S = 2;
const MANY_EVERY_S = 5;
const MANY = 300; // trials

/**
 * @typedef {object} Source where a search comes from and what can be done with it
 * @property {string} path of the answer with the trials
 * @property {{get: (key: string) => string, set: (values: Record<string, string>) => void}} place
 * @property {import("./trialcard.js").Actions} actions of a trial
 * @property {(search: () => Search) => Node[]} buttons of a search that has not ended, made once
 * @property {(search: () => Search) => import("./headline.js").FollowUp[]} [follow] what can follow it, made once
 * @property {(search: Search) => Node | null} commands of the search
 * @property {{title: string, text: string}} empty what to say before the first trial
 */

export class SearchView {
  /** @param {Source} source */
  constructor(source) {
    this.source = source;
    this.selection = new Selection(source.place);
    const selection = this.selection;
    this.search = /** @type {Search | null} */ (null);
    this.tag = ""; // of the answer that is shown
    this.commanded = ""; // what the commands were made for
    this.headline = new Headline(selection);
    const now = () => /** @type {Search} */ (this.search);
    this.headline.buttons.append(...source.buttons(now));
    this.headline.follow(source.follow?.(now) ?? []);
    this.card = new TrialCard(selection, source.actions);
    this.parallel = new Parallel(selection);
    this.plots = { history: new History(selection), curves: new Curves(selection), timeline: new Timeline(selection) };
    this.pareto = new Pareto(selection);
    this.contour = contour(selection);
    this.slices = slices(selection);
    this.table = new TrialTable(selection, source.actions);
    this.weights = h("div", { class: "plot-importance", dataset: { testid: "plot-importance" } });
    this.commands = h("div", { class: "search-commands" });
    this.bar = this.#bar();
    this.content = h("div", { class: "search-content" }, loading("Reading the trials…"));
    this.node = h(
      "section",
      { class: "search-view", "aria-label": "Trials", dataset: { testid: "search" } },
      this.content,
    );
    this.sections = this.#sections();
    selection.listeners.add(() => this.#showBar());
    this.poll = live(
      this.node,
      EVERY_S,
      () => this.#load(),
      (found) => this.#show(found),
    );
  }

  /**
   * A search that has ended is read once, and one with many trials less often.
   * @returns {Promise<{tag: string, answer: Api.SearchTable} | null>} null: nothing has changed
   */
  async #load() {
    /** @type {{tag: string, answer: Api.SearchTable} | null} */
    const found = await getNew(this.source.path, this.tag);
    if (found) this.poll.every(found.answer.trials.length > MANY ? MANY_EVERY_S : EVERY_S);
    return found;
  }

  /** Read it again now. */
  refresh() {
    return this.poll.now();
  }

  /** @param {{tag: string, answer: Api.SearchTable} | null} found */
  #show(found) {
    if (found === null || (found.tag !== "" && found.tag === this.tag)) return;
    this.tag = found.tag;
    const table = found.answer;
    const search = new Search(table);
    const first = this.search === null || this.search.size === 0;
    this.search = search;
    const sign = JSON.stringify([table.state, table.ended, search.best]);
    if (sign !== this.commanded) replace(this.commands, this.source.commands(search));
    this.commanded = sign;
    if (search.size === 0) {
      replace(this.content, this.headline.node, emptyState(this.source.empty), this.commands);
    } else if (first) replace(this.content, this.#layout(search));
    this.headline.update(search);
    if (search.size > 0) this.#update(search);
    if (table.ended && search.count("running", "waiting") === 0 && table.jobs.length > 0) this.poll.stop();
  }

  /** @param {Search} search */
  #update(search) {
    const shares = importance(search);
    this.#showWeights(shares);
    for (const plot of [...Object.values(this.plots), this.parallel, this.pareto, this.slices]) plot.update(search);
    this.sections.curves.hidden = search.best >= 0 && search.table.curves.length === 0;
    this.contour.update(search, shares?.map(({ name }) => name) ?? []);
    this.card.update(search);
    this.table.update(search);
    this.#showBar();
  }

  #sections() {
    const { history, curves, timeline } = this.plots;
    return {
      history: section("History", "The line is the best value so far", history.node),
      importance: section("Importance", "How much each parameter decides", this.weights),
      parallel: section("All parameters", "Drag along an axis to choose", this.parallel.frame),
      curves: section("Learning curves", "Grey ones were stopped early", curves.node),
      timeline: section("Timeline", "A row for each trial at a time", timeline.node),
      pareto: section("Pareto front", "What no other trial beats in both", this.pareto.node),
      slices: section("Slices", "Each parameter against the metric", this.slices.node),
      contour: section("Two parameters", "Colour: how good trials nearby were", this.contour.node),
    };
  }

  /** @param {Search} search */
  #layout(search) {
    const { sections } = this;
    const several = search.metrics.length > 1;
    sections.contour.hidden = search.parameters.length < 2;
    return [
      this.headline.node,
      this.bar.node,
      this.card.node,
      h(
        "div",
        { class: "search-grid search-grid-wide" },
        sections.history,
        several ? sections.pareto : sections.importance,
      ),
      sections.parallel,
      h("div", { class: "search-grid" }, sections.curves, sections.contour),
      several ? h("div", { class: "search-grid" }, sections.timeline, sections.importance) : sections.timeline,
      sections.slices,
      h("h2", { class: "search-title" }, "Trials"),
      this.table.node,
      this.commands,
    ];
  }

  /** @param {ReturnType<typeof importance>} shares */
  #showWeights(shares) {
    const none = h("p", { class: "muted" }, `Importance is known from ${LEAST} measured trials on.`);
    if (shares === null) return replace(this.weights, none);
    const labels = shares.map(({ name }) => name);
    const values = shares.map(({ share }) => share);
    replace(this.weights, barChart({ labels, values, format: percent, highlight: 0, title: "Importance" }));
  }

  #bar() {
    const best = h(
      "button",
      { class: "chip", type: "button", dataset: { testid: "best-share" }, "aria-pressed": "false" },
      `Best ${BEST} %`,
    );
    best.addEventListener("click", () => this.selection.setBest(this.selection.best ? 0 : BEST));
    const clear = button("Clear", { onClick: () => this.selection.clear(), testid: "clear-choice" });
    const words = h("span", { class: "search-chosen", role: "status", dataset: { testid: "chosen" } });
    const legend = h(
      "span",
      { class: "search-legend" },
      h("span", null, "worst"),
      h("span", { class: "search-ramp", "aria-hidden": "true" }),
      h("span", null, "best"),
    );
    return { node: h("div", { class: "search-bar" }, best, clear, words, legend), best, clear, words };
  }

  #showBar() {
    const { search, selection, bar } = this;
    if (search === null) return;
    bar.best.setAttribute("aria-pressed", String(selection.best > 0));
    bar.clear.hidden = !selection.active;
    const chosen = selection.mask(search).reduce((sum, each) => sum + each, 0);
    const text = selection.active
      ? `${chosen} of ${count(search.size, "trial")} chosen, in all plots`
      : `${count(search.size, "trial")}`;
    if (bar.words.textContent !== text) bar.words.textContent = text;
  }
}

/** @param {string} title @param {string} hint @param {Node} content */
function section(title, hint, content) {
  return h(
    "section",
    { class: "card search-section", "aria-label": title },
    h("h2", { class: "search-head" }, title, h("small", null, hint)),
    content,
  );
}
