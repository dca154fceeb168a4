// @ts-check
// The trials of a tuning job: its search, and what can be done with a trial.

import { post } from "../../api.js";
import { confirm, toast } from "../../dialogs.js";
import { h } from "../../dom.js";
import { button, link } from "../../parts.js";
import { path } from "../../paths.js";
import { commandBox } from "../search/headline.js";
import { SearchView } from "../search/view.js";
import { cloneDialog } from "./clone.js";
import { deployDialog } from "./deploy.js";
import { hasEnded, placeOf } from "./jobinfo.js";
import { steeringButtons } from "./steering.js";

/** @typedef {import("../search/search.js").Search} Search */

const RUNNING = new Set(["QUEUED", "PREPARING", "RUNNING"]);
const MORE = 20; // trials that a continued search proposes

/**
 * A normal job with the values of a trial.
 * @param {Api.Job} job @param {Search} search @param {Api.SearchTrial} trial
 * @returns {Api.Job}
 */
function jobOfTrial(job, search, trial) {
  const copy = structuredClone(job);
  const input = copy.trainingInput ?? {};
  delete input.hyperparameters;
  const values = search.table.parameters.flatMap(({ name }, at) => {
    const value = trial.values[at];
    return value === null ? [] : [`--${name}`, String(value)];
  });
  input.args = [...(input.args ?? []), ...values];
  const folder = input.jobDir?.replace(/\/+$/, "") ?? "";
  if (folder && !folder.split("/").includes(job.jobId)) input.jobDir = `${folder}/${job.jobId}`; // the copy's, in time
  return { ...copy, trainingInput: input };
}

/** A tuning job that goes on with the search of another one. @param {Api.Job} job @returns {Api.Job} */
function continued(job) {
  const copy = structuredClone(job);
  const input = copy.trainingInput ?? {};
  const { maxTrials, maxParallelTrials, ...rest } = input.hyperparameters ?? {};
  input.hyperparameters = {
    ...rest,
    maxTrials: maxTrials ?? MORE,
    maxParallelTrials: maxParallelTrials ?? 1,
    resumePreviousJobId: job.jobId,
  };
  return { ...copy, trainingInput: input };
}

class Trials {
  /** @param {{ctx: import("../../routes.js").Context, place: import("./place.js").Place, job: () => Api.Job}} page */
  constructor({ ctx, place, job }) {
    this.ctx = ctx;
    this.place = place;
    this.job = job;
    this.view = new SearchView({
      path: path`/trainshed/v1/projects/${ctx.project}/jobs/${place.name}/search`,
      place,
      actions: (trial, search) => this.#actions(trial, search),
      buttons: (search) => steeringButtons(search, this.#steered()),
      follow: (search) => this.#follow(search),
      commands: (search) => this.#commands(search),
      empty: {
        title: "No trial has started yet",
        text: "Trials wait in the queue as jobs of their own. They appear here as soon as their values are chosen.",
      },
    });
  }

  /** @returns {import("./steering.js").Steered} */
  #steered() {
    const job = path`/trainshed/v1/projects/${this.ctx.project}/jobs/${this.place.name}`;
    return { path: job, refresh: () => this.view.refresh() };
  }

  /** @param {Api.SearchTrial} trial @param {Search} search */
  #actions(trial, search) {
    const { ctx } = this;
    const job = encodeURIComponent(trial.job);
    const log = link(ctx.href(`/jobs/${job}`, { tab: "logs", trial: trial.trial }), "Log", "button button-plain");
    const own = trial.job === this.place.name;
    const folder = this.job().trainingInput?.jobDir;
    const found = [log];
    if (own && folder && trial.startTime)
      found.push(link(this.#folder(folder, trial.trial), "Files", "button button-plain"));
    if (own && RUNNING.has(trial.state))
      return [...found, button("Stop", { onClick: () => this.#stop(trial), testid: `stop-${trial.trial}` })];
    if (trial.metrics[0] === null || !hasEnded(/** @type {Api.JobState} */ (trial.state))) return found;
    const promote = button("Promote…", { onClick: () => this.#promote(trial), testid: `promote-${trial.trial}` });
    const train = button("Run as a job…", { onClick: () => this.#train(search, trial) });
    return own ? [...found, train, promote] : [...found, promote];
  }

  /**
   * What follows a search: its best trial as a job and as a version, and more trials.
   * @param {() => Search} search as it is now
   * @returns {import("../search/headline.js").FollowUp[]}
   */
  #follow(search) {
    const best = () => search().trials[search().best];
    const own = (/** @type {Search} */ { trials, best }) => trials[best]?.job === this.place.name;
    return [
      {
        node: button("Promote…", { kind: "primary", onClick: () => this.#promote(best()), testid: "search-promote" }),
        when: (now) => now.best >= 0,
      },
      {
        node: button("Run as a job…", { onClick: () => this.#train(search(), best()), testid: "search-train" }),
        when: own,
      },
      {
        node: button("Go on…", { onClick: () => this.#continue(), testid: "search-continue" }),
        when: (now) => now.table.ended,
      },
    ];
  }

  /** @param {Api.SearchTrial} trial */
  #promote(trial) {
    return deployDialog(this.ctx.project, trial.job, trial.trial);
  }

  /** @param {Search} search @param {Api.SearchTrial} trial */
  #train(search, trial) {
    return cloneDialog(this.ctx, jobOfTrial(this.job(), search, trial));
  }

  #continue() {
    return cloneDialog(this.ctx, continued(this.job()));
  }

  /** @param {string} folder of the job @param {number} trial */
  #folder(folder, trial) {
    const { bucket, prefix } = placeOf(folder.endsWith("/") ? folder : `${folder}/`);
    const parts = [bucket, ...prefix.split("/").filter(Boolean), String(trial)].map(encodeURIComponent);
    return this.ctx.href(`/buckets/${parts.join("/")}/`);
  }

  /** @param {Api.SearchTrial} trial */
  async #stop(trial) {
    const agreed = await confirm({
      title: `Stop trial ${trial.trial}?`,
      text: "It gets SIGTERM. Its last value becomes its final one, and the search goes on without it.",
      action: "Stop the trial",
    });
    if (!agreed) return;
    await post(path`/trainshed/v1/projects/${this.ctx.project}/jobs/${this.place.name}/trials/${trial.trial}:stop`);
    toast(`Trial ${trial.trial} was told to end.`);
    await this.view.refresh();
  }

  /** @param {Search} search */
  #commands(search) {
    const { name } = this.place;
    return h(
      "section",
      { class: "card search-section", "aria-label": "The same by command" },
      h("h2", { class: "search-head" }, "The same by command"),
      commandBox("All trials, best first", `trainshed tuning trials ${name}`),
      ...this.#moreCommands(search),
    );
  }

  /** @param {Search} search */
  #moreCommands(search) {
    const { name } = this.place;
    const { ended } = search.table;
    const best = search.trials[search.best];
    return [
      best && commandBox("The log of the best trial", `trainshed jobs stream-logs ${name} --trial ${best.trial}`),
      best && commandBox("A normal job with its values", `trainshed tuning train ${name}`),
      best &&
        commandBox("A version of a model from what it exported", `trainshed tuning promote ${name} --model MODEL`),
      ended && commandBox("Go on with the search", `trainshed tuning continue ${name} --max-trials ${MORE}`),
      ended || commandBox("More trials", `trainshed tuning update ${name} --add-trials 10`),
    ].filter((box) => box instanceof Node);
  }
}

/**
 * @param {{ctx: import("../../routes.js").Context, place: import("./place.js").Place, job: () => Api.Job}} page
 * @returns {HTMLElement}
 */
export function trialsTab(page) {
  return new Trials(page).view.node;
}
