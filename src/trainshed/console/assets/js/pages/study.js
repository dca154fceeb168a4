// @ts-check
// One study: its search, with the same plots as a tuning job.

import { ApiError, get, post } from "../api.js";
import { confirm, toast } from "../dialogs.js";
import { h, replace } from "../dom.js";
import { codeBlock, button, emptyState, errorBox, link, loading, stateBadge, timeAgo } from "../parts.js";
import { path } from "../paths.js";
import { SearchView } from "./search/view.js";

class StudyPage {
  /** @param {import("../routes.js").Context} ctx */
  constructor(ctx) {
    this.ctx = ctx;
    const [location, name] = ctx.params;
    this.location = location;
    this.name = name ?? "";
    this.query = Object.fromEntries(ctx.query);
    this.state = h("span", { class: "job-state", dataset: { testid: "study-state" }, role: "status" });
    this.facts = h("p", { class: "muted small" });
    this.body = h("div", null, loading(`Reading ${this.name}…`));
    this.node = h(
      "div",
      { class: "page study-page" },
      h("nav", { class: "crumbs", "aria-label": "Where this is" }, link(ctx.href("/studies"), "Studies")),
      h("div", { class: "job-title" }, h("h1", null, this.name), this.state, this.facts),
      this.body,
    );
    void this.#open();
  }

  get path() {
    return path`/trainshed/v1/projects/${this.ctx.project}/locations/${this.location}/studies/${this.name}/search`;
  }

  /** Whether there is such a study at all is asked before its plots are made. */
  async #open() {
    try {
      await get(this.path, { points: 0 });
    } catch (error) {
      const absent = error instanceof ApiError && error.status === 404;
      replace(this.body, absent ? this.#absent() : errorBox(error));
      return;
    }
    this.view = new SearchView({
      path: this.path,
      place: { get: (key) => this.query[key] ?? "", set: (values) => this.#set(values) },
      actions: (trial) => this.#actions(trial),
      buttons: () => [],
      commands: (search) => this.#head(search.table),
      empty: {
        title: "No trial has been asked for yet",
        text: "Trials appear here as soon as a client asks for one, or adds one.",
      },
    });
    replace(this.body, this.view.node);
  }

  #absent() {
    return emptyState({
      title: "There is no such study",
      text: `Project ${this.ctx.project} has no study of this name in ${this.location}.`,
      action: link(this.ctx.href("/studies"), "All studies", "button button-plain"),
    });
  }

  /** @param {Record<string, string>} values */
  #set(values) {
    this.query = { ...this.query, ...values };
    this.ctx.setQuery(this.query);
  }

  /** The state above, and the commands below. @param {Api.SearchTable} table */
  #head(table) {
    replace(this.state, stateBadge(table.state));
    replace(this.facts, `${this.location} · created `, timeAgo(table.createTime));
    return h(
      "section",
      { class: "card search-section", "aria-label": "The same by command" },
      h("h2", { class: "search-head" }, "The same by command"),
      codeBlock(`trainshed studies trials ${this.name}`),
    );
  }

  /** @param {Api.SearchTrial} trial */
  #actions(trial) {
    if (trial.state !== "ACTIVE" && trial.state !== "REQUESTED") return [];
    return [button("Stop", { onClick: () => this.#stop(trial), testid: `stop-${trial.trial}` })];
  }

  /** @param {Api.SearchTrial} trial */
  async #stop(trial) {
    const agreed = await confirm({
      title: `Stop trial ${trial.trial}?`,
      text: "Its client is told to stop when it asks. It may still report what it has.",
      action: "Stop the trial",
    });
    if (!agreed) return;
    const { project } = this.ctx;
    await post(
      path`/v1/projects/${project}/locations/${this.location}/studies/${this.name}/trials/${trial.trial}:stop`,
    );
    toast(`Trial ${trial.trial} is to be stopped.`);
    await this.view?.refresh();
  }
}

/** @param {import("../routes.js").Context} ctx @returns {Node} */
export default function page(ctx) {
  return new StudyPage(ctx).node;
}
