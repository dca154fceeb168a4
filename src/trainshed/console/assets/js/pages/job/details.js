// @ts-check
// Details of a job: the command that submits it again, its arguments, its events and its JSON.

import { h, replace } from "../../dom.js";
import { when } from "../../format.js";
import { codeBlock, tabs } from "../../parts.js";
import { submitCommand, withoutFlag } from "./command.js";
import { nextName, renamed } from "./jobinfo.js";
import { plain, visible } from "./logtext.js";

/** @param {Api.Job} job */
function commandSection(job) {
  const name = nextName(job.jobId);
  const panel = (/** @type {"trainshed" | "gcloud"} */ tool) => ({
    id: tool,
    title: tool,
    show: () =>
      h("div", { dataset: { testid: "job-command" } }, codeBlock(submitCommand(renamed(job, name), name, tool))),
  });
  const left = withoutFlag(job);
  const words = left.length
    ? `No flag says ${left.join(", ")}: put ${left.length === 1 ? "it" : "them"} into a file for --config.`
    : "";
  return h(
    "section",
    { class: "detail-section" },
    h("h2", null, "Submit it again"),
    h("p", { class: "muted" }, `With another name, because an id is taken for ever. ${words}`),
    tabs([panel("trainshed"), panel("gcloud")], "trainshed"),
  );
}

/** @param {string[]} args */
function argsSection(args) {
  if (args.length === 0) return null;
  return h(
    "section",
    { class: "detail-section" },
    h("h2", null, "Arguments"),
    h(
      "ol",
      { class: "detail-args", dataset: { testid: "job-args" } },
      args.map((arg) => h("li", null, h("code", null, visible(arg)))),
    ),
  );
}

/** @param {unknown} value @returns {Dom.Child} */
function shownValue(value) {
  if (Array.isArray(value)) return value.map((each) => h("div", null, shownValue(each)));
  if (value !== null && typeof value === "object") return JSON.stringify(value);
  return visible(String(value));
}

/** @param {Api.Job} job @param {string} runtime */
function inputSection(job, runtime) {
  const input = job.trainingInput ?? job.predictionInput ?? {};
  const rows = Object.entries(input).filter(([key]) => key !== "args");
  const where = runtime === "container" ? "containers" : `runtime ${runtime}`;
  return h(
    "section",
    { class: "detail-section" },
    h("h2", null, "What was asked for"),
    h(
      "dl",
      { class: "detail-list" },
      rows.map(([key, value]) => h("div", null, h("dt", null, key), h("dd", null, shownValue(value)))),
      runtime ? h("div", null, h("dt", null, "Runs in"), h("dd", null, where)) : null,
    ),
  );
}

/** @param {string} title @param {string[]} list */
function sentencesSection(title, list) {
  if (list.length === 0) return null;
  return h(
    "section",
    { class: "detail-section" },
    h("h2", null, title),
    h(
      "ul",
      { class: "detail-notes" },
      list.map((text) => h("li", null, plain(text))),
    ),
  );
}

/** @param {Api.JobEvent} event */
function eventRow(event) {
  return h(
    "li",
    { class: `event log-${event.severity}` },
    h("time", { class: "event-time", dateTime: event.time }, when(event.time)),
    h("span", { class: "event-text" }, plain(event.message)),
  );
}

/**
 * @param {Api.JobDetails} details
 * @returns {HTMLElement & {update: (details: Api.JobDetails) => void}}
 */
export function detailsTab(details) {
  const events = h("ol", { class: "events", dataset: { testid: "job-events" } });
  const notes = h("div");
  const raw = h("div");
  const { job } = details;
  const node = h(
    "section",
    { class: "job-details", "aria-label": "Details" },
    h(
      "div",
      { class: "detail-columns" },
      h(
        "div",
        null,
        commandSection(job),
        argsSection(job.trainingInput?.args ?? []),
        inputSection(job, details.runtime),
      ),
      h("div", null, notes, h("section", { class: "detail-section" }, h("h2", null, "Events"), events)),
    ),
    h("details", { class: "detail-section" }, h("summary", null, "The job as JSON"), raw),
  );
  let shown = "";
  const update = (/** @type {Api.JobDetails} */ now) => {
    const key = JSON.stringify([now.events, now.notes, now.restarts, now.job]);
    if (key === shown) return;
    shown = key;
    replace(events, now.events.map(eventRow));
    replace(notes, sentencesSection("Notes", now.notes), sentencesSection("Restarts", now.restarts));
    replace(raw, codeBlock(JSON.stringify(now.job, null, 2)));
  };
  update(details);
  return Object.assign(node, { update });
}
