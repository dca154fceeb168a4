// @ts-check
// Models: the default version and the traffic of each.

import { ApiError, get, post } from "../api.js";
import { spark } from "../charts.js";
import { dialog } from "../dialogs.js";
import { h, replace } from "../dom.js";
import { number } from "../format.js";
import { live } from "../live.js";
import { Pager } from "../pager.js";
import { button, emptyState, field, labelTags, link, loading, stateBadge, timeAgo } from "../parts.js";
import { lastPart, path } from "../paths.js";
import { table } from "../table.js";
import { requestsByMinute, totals } from "./models/traffic.js";

const PAGE = 25;

/** @typedef {import("../routes.js").Context} Context */
/**
 * @typedef {{id: string, model: Api.Model, split: Api.ModelDetails["split"], minutes: number[],
 *   totals: ReturnType<typeof totals>}} Row
 */

/** @param {Context} ctx @returns {HTMLElement} */
export default function page(ctx) {
  const body = h("div", null, loading());
  const pager = new Pager(() => poll.now());
  const node = h(
    "div",
    { class: "page models" },
    h(
      "div",
      { class: "page-head" },
      h("h1", null, "Models"),
      h(
        "div",
        { class: "page-actions" },
        button("Create a model", { kind: "primary", onClick: () => create(ctx), testid: "create-model" }),
      ),
    ),
    body,
    pager.node,
  );
  /** @type {import("../table.js").TableElement<Row> | null} */
  let shown = null;
  const poll = live(
    node,
    10,
    () => load(ctx.project, pager.token),
    ({ rows, next }) => {
      if (!rows.length && pager.first) {
        shown = null;
        replace(body, nothing());
      } else if (shown) shown.update(rows);
      else replace(body, (shown = modelTable(ctx, rows)));
      pager.show(next);
    },
  );
  return node;
}

function nothing() {
  return emptyState({
    title: "No models in this project",
    text: "A model is a name that clients call; versions of it are what a training exported. Create one here, or with:",
    command: "trainshed models create MNIST",
  });
}

/** @param {string} project @param {string} pageToken */
async function load(project, pageToken) {
  /** @type {Api.Models} */
  const answer = await get(path`/v1/projects/${project}/models`, { pageSize: PAGE, pageToken });
  const models = answer.models ?? [];
  const details = await Promise.all(models.map((model) => detailsOf(`/trainshed/v1/${model.name}`)));
  /** @type {Row[]} */
  const rows = models.map((model, at) => ({
    id: lastPart(model.name),
    model,
    split: details[at]?.split ?? {},
    minutes: requestsByMinute(details[at]?.traffic ?? {}),
    totals: totals(details[at]?.traffic ?? {}),
  }));
  return { rows, next: answer.nextPageToken ?? "" };
}

/**
 * The details of a model; null if it was deleted since it was listed.
 * @param {string} address
 * @returns {Promise<Api.ModelDetails | null>}
 */
async function detailsOf(address) {
  try {
    return await get(address);
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}

/** @param {Context} ctx @param {Row[]} rows */
function modelTable(ctx, rows) {
  const address = (/** @type {Row} */ row) => path`#/p/${ctx.project}/models/${row.id}`;
  return table({
    testid: "models",
    columns: [
      {
        title: "Model",
        sort: (row) => row.id,
        cell: (row) => [
          link(address(row), row.id),
          row.model.description ? h("div", { class: "muted small clip" }, row.model.description) : null,
        ],
      },
      { title: "Answers", cell: (row) => answering(row) },
      {
        title: "Last hour",
        cell: (row) =>
          row.totals.count
            ? h("span", { class: "spark-cell" }, spark(row.minutes), `${number(row.totals.count)}`)
            : h("span", { class: "muted" }, "no requests"),
        sort: (row) => row.totals.count,
      },
      {
        title: "Errors",
        class: "cell-number",
        sort: (row) => row.totals.errors,
        cell: (row) => h("span", { class: row.totals.errors ? "bad" : "muted" }, number(row.totals.errors)),
      },
      {
        title: "p50 / p99",
        class: "cell-number wide-only",
        sort: (row) => row.totals.p50,
        cell: (row) => (row.totals.count ? `${number(row.totals.p50)} / ${number(row.totals.p99)} ms` : "–"),
      },
      { title: "Last asked", class: "wide-only", cell: (row) => timeAgo(row.model.defaultVersion?.lastUseTime) },
      { title: "Labels", class: "wide-only", cell: (row) => labelTags(row.model.labels) },
    ],
    key: (row) => row.id,
    rows,
    onOpen: (row) => (window.location.hash = address(row)),
  });
}

/** Which versions get the requests. @param {Row} row */
function answering(row) {
  const split = Object.entries(row.split);
  if (split.length) return h("span", null, split.map(([name, share]) => `${name} ${share} %`).join(", "));
  const version = row.model.defaultVersion;
  if (!version) return h("span", { class: "muted" }, "no version yet");
  return h("span", { class: "with-icon" }, lastPart(version.name), " ", stateBadge(version.state));
}

/** @param {Context} ctx */
function create(ctx) {
  const name = h("input", {
    class: "input",
    type: "text",
    autocomplete: "off",
    spellcheck: false,
    placeholder: "MNIST",
    dataset: { testid: "model-name" },
  });
  const description = h("input", { class: "input", type: "text", autocomplete: "off" });
  const logging = h("input", { type: "checkbox" });
  const run = async () => {
    const body = {
      name: name.value.trim(),
      ...(description.value && { description: description.value }),
      ...(logging.checked && { onlinePredictionLogging: true }),
    };
    await post(path`/v1/projects/${ctx.project}/models`, body);
    window.location.hash = path`#/p/${ctx.project}/models/${name.value.trim()}`;
  };
  dialog({
    title: "Create a model",
    body: [
      field({ label: "Name", input: name, hint: "Letters, digits and underscores, beginning with a letter." }),
      field({ label: "Description", input: description }),
      h("label", { class: "check" }, logging, " A line in the server's log for each request"),
    ],
    actions: [{ text: "Cancel" }, { text: "Create", kind: "primary", run, testid: "create-model-go" }],
  });
}
