// @ts-check
// The cause of a job's failure, the remedy, and the log lines that show it.

import { h } from "../../dom.js";
import { icon } from "../../icons.js";
import { copyButton, link, sentences } from "../../parts.js";
import { plain } from "./logtext.js";

/** @typedef {import("./place.js").Place} Place */

/** @param {Api.LogEntry[]} lines */
function lineBlock(lines) {
  const text = lines.map((line) => plain(line.message)).join("\n");
  const shown = h(
    "pre",
    { tabIndex: 0, dataset: { testid: "failure-lines" } },
    lines.map((line) => h("span", { class: `job-failure-line log-${line.severity}` }, `${plain(line.message)}\n`)),
  );
  requestAnimationFrame(() => shown.scrollTo(0, shown.scrollHeight)); // the last line says what went wrong
  return h("div", { class: "code-block job-failure-lines" }, shown, copyButton(text, "Copy these lines"));
}

/**
 * @param {Api.JobDetails} details
 * @param {Place} place
 * @returns {HTMLElement | null} nothing for a job that did not fail
 */
export function failureBox({ job, failure }, place) {
  const message = job.state === "FAILED" ? job.errorMessage : undefined;
  if (!failure && !message) return null;
  const told = failure ?? { summary: message ?? "", remedy: "", replica: "", lines: [] };
  const errors = { tab: "logs", severity: "ERROR", ...(told.replica ? { replica: told.replica } : {}) };
  return h(
    "section",
    { class: "job-failure", "aria-label": "Why it failed", dataset: { testid: "job-failure" } },
    h(
      "div",
      { class: "job-failure-head" },
      icon("warning"),
      h("h2", null, "It failed"),
      told.replica ? h("span", { class: "tag" }, told.replica) : null,
    ),
    h("p", { class: "job-failure-summary", dataset: { testid: "failure-summary" } }, plain(told.summary)),
    told.remedy
      ? h("p", { class: "job-failure-remedy" }, h("strong", null, "What to do: "), sentences(told.remedy))
      : null,
    told.lines.length ? lineBlock(told.lines) : null,
    h("p", { class: "job-failure-more" }, link(place.link(errors), "All its errors in the log")),
  );
}
