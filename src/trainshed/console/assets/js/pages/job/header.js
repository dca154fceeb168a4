// @ts-check
// The top of a job's page: name, state, progress, failure and actions.

import { post } from "../../api.js";
import { confirm, toast } from "../../dialogs.js";
import { h, replace } from "../../dom.js";
import { between, duration, number, percent } from "../../format.js";
import { button, labelTags, link, progressBar, stateBadge, timeAgo } from "../../parts.js";
import { cloneDialog } from "./clone.js";
import { deployDialog } from "./deploy.js";
import { failureBox } from "./failure.js";
import { hangBoxes } from "./hangs.js";
import { gang, hasEnded, isPrediction, isTuning } from "./jobinfo.js";

/** @type {["loss" | "accuracy", string][]} */
const MEASURES = [
  ["loss", "Loss"],
  ["accuracy", "Accuracy"],
];

/** @typedef {import("./place.js").Place} Place */
/** @typedef {{ctx: import("../../routes.js").Context, place: Place, refresh: () => Promise<void>}} Page */

/** @param {Api.Progress} progress @returns {string} step 1,204 of 5,000 · 24 % · about 2 min left */
function progressWords(progress) {
  const parts = [];
  const { step, totalSteps: steps, epoch, totalEpochs: epochs } = progress;
  if (step !== null) parts.push(`step ${number(step)}${steps ? ` of ${number(steps)}` : ""}`);
  if (epoch !== null) parts.push(`epoch ${number(epoch)}${epochs ? ` of ${number(epochs)}` : ""}`);
  if (progress.fraction !== null) parts.push(`${Math.floor(progress.fraction * 100)} %`);
  if (typeof progress.leftSeconds === "number" && progress.leftSeconds > 0)
    parts.push(`about ${duration(progress.leftSeconds)} left`);
  return parts.join(" · ");
}

/** @param {string} title @param {Node | string} value @param {string} [rest] what else there is to say of it */
function fact(title, value, rest = "") {
  return h(
    "div",
    { class: "job-fact" },
    h("dt", null, title),
    h("dd", null, value),
    rest ? h("dd", { class: "job-fact-rest" }, rest) : null,
  );
}

/** @param {Api.JobDetails} details */
function facts({ job, runtime, attempt, restarts }) {
  const ran = between(job.startTime, job.endTime);
  const found = [fact("Created", timeAgo(job.createTime))];
  if (job.startTime) found.push(fact("Started", timeAgo(job.startTime)));
  if (job.endTime) found.push(fact("Ended", timeAgo(job.endTime)));
  if (ran !== null)
    found.push(
      fact(
        hasEnded(job.state) ? "Ran for" : "Running for",
        h("span", { dataset: { testid: "job-ran" } }, duration(ran)),
      ),
    );
  found.push(fact(isTuning(job) ? "Replicas of a trial" : "Replicas", gang(job)));
  if (runtime) found.push(fact("Runtime", runtime));
  if (attempt > 1) found.push(fact("Attempt", String(attempt)));
  if (restarts.length) found.push(fact("Restarts", String(restarts.length)));
  if (Object.keys(job.labels ?? {}).length) found.push(fact("Labels", labelTags(job.labels)));
  return found;
}

/** @param {Api.Progress} progress @param {boolean} ended */
function measures(progress, ended) {
  const found = ended && progress.step !== null ? [fact("Steps", number(progress.step), ofAll(progress))] : [];
  for (const [key, title] of MEASURES) {
    const [trained, tested] = [progress[key], progress.evaluation?.[key] ?? null];
    if (trained !== null)
      found.push(fact(title, number(trained), tested === null ? "" : `${number(tested)} in evaluation`));
    else if (tested !== null) found.push(fact(title, number(tested), "in evaluation"));
  }
  if (progress.globalStepsPerSecond !== null) found.push(fact("Steps/s", number(progress.globalStepsPerSecond)));
  return found;
}

/** @param {Api.Progress} progress of a job that ended before its last step: how far it came */
function ofAll({ fraction, totalSteps: steps }) {
  if (fraction === null || fraction >= 1) return "";
  return steps === null ? percent(fraction) : `${percent(fraction)} of ${number(steps)}`;
}

/** @param {Api.Job} job @param {Page} page the counts of a batch prediction */
function predicted(job, page) {
  const { predictionCount = 0, errorCount = 0, outputPath = "" } = job.predictionOutput ?? {};
  return [
    fact("Rows predicted", h("span", { dataset: { testid: "rows-predicted" } }, number(predictionCount))),
    fact("Rows with errors", h("span", { class: Number(errorCount) ? "job-bad" : "" }, number(errorCount))),
    fact("Results", link(page.place.link({ tab: "files" }), outputPath)),
  ];
}

/** @param {Page} page */
async function cancel({ ctx, place, refresh }) {
  const agreed = await confirm({
    title: `Cancel ${place.name}?`,
    text:
      "Its processes are told to end. What it has written to its folder stays. A cancelled job can't be resumed; " +
      "clone it to run it again.",
    action: "Cancel the job",
    danger: true,
  });
  if (!agreed) return;
  await post(`/v1/projects/${encodeURIComponent(ctx.project)}/jobs/${encodeURIComponent(place.name)}:cancel`);
  toast(`${place.name} was told to end.`);
  await refresh();
}

export class Header {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.details = /** @type {Api.JobDetails | null} */ (null);
    this.badge = h("span", { class: "job-state", dataset: { testid: "job-state" }, role: "status" });
    this.trouble = h("div");
    this.shownFailure = "";
    this.waiting = h("p", { class: "job-waiting", dataset: { testid: "job-waiting" } });
    this.bar = progressBar({ fraction: null, label: "" });
    this.bar.dataset.testid = "job-progress";
    this.measures = h("dl", { class: "job-facts job-measures", dataset: { testid: "job-measures" } });
    this.facts = h("dl", { class: "job-facts" });
    this.actions = this.#actions();
    this.buttons = h("div", { class: "job-actions", hidden: true }, Object.values(this.actions));
    this.strip = h(
      "div",
      { class: "card job-strip", hidden: true },
      this.waiting,
      this.bar,
      h("div", { class: "job-strip-row" }, this.measures, this.facts),
    );
    const jobs = `#/p/${encodeURIComponent(page.ctx.project)}/jobs`;
    this.node = h(
      "header",
      { class: "job-head" },
      h("nav", { class: "crumbs", "aria-label": "Where this is" }, link(jobs, "Jobs")),
      h(
        "div",
        { class: "job-title" },
        h("h1", { dataset: { testid: "job-name" } }, page.place.name),
        this.badge,
        this.buttons,
      ),
      this.trouble,
      this.strip,
    );
    this.bar.hidden = true;
    const ticking = setInterval(() => (this.node.isConnected ? this.#tick() : clearInterval(ticking)), 1000);
  }

  #actions() {
    const page = this.page;
    const compare = `#/p/${encodeURIComponent(page.ctx.project)}/compare?jobs=${encodeURIComponent(page.place.name)}`;
    return {
      deploy: button("Deploy…", {
        kind: "primary",
        onClick: () => deployDialog(page.ctx.project, page.place.name),
        testid: "job-deploy",
      }),
      cancel: button("Cancel job", { onClick: () => cancel(page), testid: "job-cancel" }),
      clone: button("Clone…", {
        icon: "copy",
        onClick: () => this.details && cloneDialog(page.ctx, this.details.job),
        testid: "job-clone",
      }),
      compare: link(compare, "Compare…", "button button-plain"),
    };
  }

  /** @param {Api.JobDetails} details */
  update(details) {
    this.buttons.hidden = false;
    this.strip.hidden = false;
    this.details = details;
    const { job, progress } = details;
    const ended = hasEnded(job.state);
    if (this.badge.dataset.state !== job.state) {
      this.badge.dataset.state = job.state;
      replace(this.badge, stateBadge(job.state));
    }
    this.actions.cancel.hidden = ended || job.state === "CANCELLING";
    const exportsNothing = isPrediction(job) || isTuning(job); // trials do, and are promoted where they are listed
    this.actions.deploy.hidden = exportsNothing || !["RUNNING", "SUCCEEDED"].includes(job.state);
    this.actions.deploy.className = `button button-${job.state === "SUCCEEDED" ? "primary" : "plain"}`;
    this.actions.compare.hidden = isPrediction(job) || isTuning(job);
    this.#showFailure(details);
    this.waiting.textContent = details.waiting;
    this.waiting.hidden = !details.waiting;
    this.#showProgress(job, progress, ended);
    replace(this.facts, facts(details));
  }

  /** @param {Api.JobDetails} details */
  #showFailure(details) {
    const { job, failure } = details;
    const key = JSON.stringify([job.state, failure, job.errorMessage, details.hangs]);
    if (key === this.shownFailure) return; // an open selection in its lines stays
    this.shownFailure = key;
    replace(this.trouble, failureBox(details, this.page.place), hangBoxes(details.hangs));
  }

  /** @param {Api.Job} job @param {Api.Progress | null} progress @param {boolean} ended */
  #showProgress(job, progress, ended) {
    this.bar.hidden = ended || job.state === "QUEUED" || isTuning(job) || (progress === null && isPrediction(job));
    if (!this.bar.hidden) {
      const words = progress
        ? progressWords(progress)
        : job.state === "RUNNING"
          ? "It has not told how far it is."
          : "";
      this.bar.update({ fraction: progress?.fraction ?? null, label: words });
    }
    if (isPrediction(job)) replace(this.measures, predicted(job, this.page));
    else replace(this.measures, progress ? measures(progress, ended) : []);
  }

  #tick() {
    const job = this.details?.job;
    if (!job?.startTime || job.endTime) return;
    const shown = this.facts.querySelector("[data-testid=job-ran]");
    if (shown) shown.textContent = duration(Math.floor(between(job.startTime) ?? 0));
  }
}
