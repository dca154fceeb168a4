// @ts-check
// Studies of all locations, newest first.

import { get } from "../api.js";
import { h, replace } from "../dom.js";
import { number } from "../format.js";
import { live } from "../live.js";
import { Pager } from "../pager.js";
import { emptyState, link, loading, stateBadge, timeAgo } from "../parts.js";
import { path } from "../paths.js";
import { table } from "../table.js";

const EVERY_S = 5;

/** @param {import("../routes.js").Context} ctx @returns {HTMLElement} */
export default function page(ctx) {
  const body = h("div", null, loading());
  const pager = new Pager(() => poll.now());
  const head = h("div", { class: "page-head" }, h("h1", null, "Studies"));
  const node = h("div", { class: "page studies" }, head, body, pager.node);
  /** @type {import("../table.js").TableElement<Api.StudyRow> | null} */
  let shown = null;
  const poll = live(
    node,
    EVERY_S,
    () => load(ctx.project, pager.token),
    ({ studies, nextPageToken }) => {
      if (studies.length === 0 && pager.first) {
        shown = null;
        replace(body, nothing());
      } else if (shown) shown.update(studies);
      else replace(body, (shown = studyTable(ctx, studies)));
      pager.show(nextPageToken ?? "");
    },
  );
  return node;
}

/** @param {string} project @param {string} pageToken @returns {Promise<Api.StudyTable>} */
function load(project, pageToken) {
  return get(path`/trainshed/v1/projects/${project}/studies`, { pageToken });
}

function nothing() {
  return emptyState({
    title: "No studies in this project",
    text:
      "A study is a search for good values that your own program drives: it asks for values, tries them, and reports " +
      "what came of them. For a search that runs a trainer, submit a job with hyperparameters. In Python:",
    command:
      "import trainshed\n\n" +
      'study = trainshed.connect().studies.create("first", {"rate": (1e-4, 1.0)}, goal="MAXIMIZE")',
  });
}

/** @param {import("../routes.js").Context} ctx @param {Api.StudyRow[]} rows */
function studyTable(ctx, rows) {
  const address = (/** @type {Api.StudyRow} */ row) => path`#/p/${ctx.project}/studies/${row.location}/${row.study}`;
  return table({
    testid: "studies",
    columns: [
      { title: "Study", sort: (row) => row.study, cell: (row) => link(address(row), row.study) },
      { title: "State", sort: (row) => row.state, cell: (row) => stateBadge(row.state) },
      { title: "Metrics", cell: (row) => row.metrics.map(metricText).join(", ") },
      { title: "Best", cell: (row) => (row.metrics.length > 1 ? "Pareto front" : number(row.best)) },
      { title: "Trials", sort: (row) => row.trials, cell: (row) => trialsText(row) },
      { title: "Parameters", sort: (row) => row.parameters, cell: (row) => number(row.parameters) },
      { title: "Location", sort: (row) => row.location, cell: (row) => row.location },
      { title: "Created", sort: (row) => row.createTime, cell: (row) => timeAgo(row.createTime) },
    ],
    key: (row) => `${row.location}/${row.study}`,
    rows,
    onOpen: (row) => ctx.go(address(row)),
    caption: "Studies",
  });
}

/** @param {Api.StudyRow} row */
function trialsText({ trials, completed }) {
  return completed === trials ? number(trials) : `${number(completed)} of ${number(trials)} completed`;
}

/** @param {Api.SearchMetric} metric */
function metricText({ name, goal }) {
  return `${goal === "MINIMIZE" ? "least" : "greatest"} ${name}`;
}
