// @ts-check
// A job: its state at the top, and tabs for logs, charts, replicas, files, TensorBoard and details.

import { ApiError, getNew } from "../api.js";
import { h, replace } from "../dom.js";
import { live } from "../live.js";
import { emptyState, link, loading, stateName, tabs } from "../parts.js";
import { chartsTab } from "./job/charts.js";
import { detailsTab } from "./job/details.js";
import { filesTab } from "./job/files.js";
import { Header } from "./job/header.js";
import { hasEnded, isPrediction, isTuning } from "./job/jobinfo.js";
import { logsTab } from "./job/logs.js";
import { Place } from "./job/place.js";
import { replicasTab } from "./job/replicas.js";
import { tensorboardTab } from "./job/tensorboard.js";
import { trialsTab } from "./job/trials.js";

const EVERY_S = 1;
const ENDED_EVERY_S = 15; // labels and notes may still change

/** @typedef {HTMLElement & {update?: (details: Api.JobDetails) => void, leave?: () => void}} Panel */

class JobPage {
  /** @param {import("../routes.js").Context} ctx */
  constructor(ctx) {
    this.ctx = ctx;
    this.name = ctx.params[0];
    this.api = `/trainshed/v1/projects/${encodeURIComponent(ctx.project)}/jobs/${encodeURIComponent(this.name)}`;
    this.place = new Place(ctx, this.name);
    /** @type {Api.JobDetails | null} */
    this.details = null;
    this.tag = ""; // of these details
    this.loadedAt = 0;
    /** @type {Panel | null} */
    this.panel = null;
    this.header = new Header({ ctx, place: this.place, refresh: () => this.#refresh() });
    this.body = h("div", { class: "job-body" }, loading(`Reading ${this.name}…`));
    this.node = h("div", { class: "page job-page", dataset: { testid: "job-page" } }, this.header.node, this.body);
    this.poll = live(
      this.node,
      EVERY_S,
      () => this.#load(),
      (details) => this.#show(details),
    );
    addEventListener("hashchange", () => this.panel?.leave?.(), { once: true });
  }

  /**
   * Jobs that have ended are polled less often.
   * @returns {Promise<Api.JobDetails | null>}
   */
  async #load() {
    const calm = this.details && hasEnded(this.details.job.state);
    if (calm && Date.now() - this.loadedAt < ENDED_EVERY_S * 1000) return this.details;
    try {
      /** @type {{tag: string, answer: Api.JobDetails} | null} */
      const found = await getNew(this.api, this.tag);
      this.loadedAt = Date.now();
      if (found === null) return this.details;
      this.tag = found.tag;
      return found.answer;
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return null;
      throw error;
    }
  }

  #refresh() {
    this.loadedAt = 0;
    return this.poll.now();
  }

  /** @param {Api.JobDetails | null} details null: there is no such job */
  #show(details) {
    if (details === null) {
      this.#showAbsent();
      return;
    }
    const first = this.details === null;
    const changed = details !== this.details;
    this.details = details;
    if (!changed) return;
    this.header.update(details);
    if (first) replace(this.body, this.#tabs(details));
    else this.panel?.update?.(details);
    this.ctx.setTitle(`${this.name} · ${stateName(details.job.state)}`);
  }

  #showAbsent() {
    this.poll.stop();
    const jobs = link(this.ctx.href("/jobs"), "All jobs", "button button-plain");
    const text = `Project ${this.ctx.project} has no job of this name.`;
    replace(this.node, h("h1", null, this.name), emptyState({ title: "There is no such job", text, action: jobs }));
  }

  /** @param {Api.JobDetails} first a tab is made with what is known when it is opened */
  #tabs(first) {
    const now = () => this.details ?? first;
    const [training, tuning] = [!isPrediction(first.job), isTuning(first.job)];
    const page = { ctx: this.ctx, place: this.place, job: () => now().job };
    const own = [
      { id: "charts", title: "Charts", make: () => chartsTab(this.api) },
      { id: "replicas", title: "Replicas", make: () => replicasTab(this.api, this.place) },
    ];
    const list = [
      ...(tuning ? [{ id: "trials", title: "Trials", make: () => trialsTab(page) }] : []),
      { id: "logs", title: "Logs", make: () => logsTab(this.api, this.place) },
      ...(tuning ? [] : own), // a tuning job has no replicas but those of its trials
      { id: "files", title: "Files", make: () => filesTab(now().job, this.place) },
      ...(training
        ? [{ id: "tensorboard", title: "TensorBoard", make: () => tensorboardTab(this.api, now().job) }]
        : []),
      { id: "details", title: "Details", make: () => detailsTab(now()) },
    ].map(({ id, title, make }) => ({ id, title, show: () => this.#shown(make) }));
    return tabs(list, this.place.get("tab") || list[0].id, (id) => this.place.reset({ tab: id }));
  }

  /** @param {() => Panel} make */
  #shown(make) {
    this.panel?.leave?.();
    this.panel = make();
    return this.panel;
  }
}

/** @param {import("../routes.js").Context} ctx @returns {Node} */
export default function page(ctx) {
  return new JobPage(ctx).node;
}
