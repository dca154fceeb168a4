// @ts-check
// One model: its versions, their serving state and traffic, and commands to call it.

import { ApiError, get } from "../api.js";
import { lineChart } from "../charts.js";
import { h, replace } from "../dom.js";
import { number } from "../format.js";
import { live } from "../live.js";
import { button, codeBlock, labelTags, link, loading, tabs } from "../parts.js";
import { lastPart, path } from "../paths.js";
import { calls } from "./models/calls.js";
import { createVersion, deleteModel, rollBack, splitTraffic } from "./models/changes.js";
import { rolloutsCard } from "./models/rollouts.js";
import { totals, trafficSeries } from "./models/traffic.js";
import { versionsList } from "./models/versions.js";

const PAGE = 30;

/** @typedef {import("../routes.js").Context} Context */
/** @typedef {{project: string, model: string, refresh: () => Promise<void>}} Here */
/** @typedef {Api.VersionDetails & {id: string}} VersionFound */
/** @typedef {Api.ModelDetails & {versions: VersionFound[], rollouts: Api.Rollout[], more: boolean}} Found */

/** @param {Context} ctx @returns {HTMLElement} */
export default function page(ctx) {
  const model = ctx.params[0];
  const body = h("div", { class: "stack" }, loading());
  const actions = h("div", { class: "page-actions" });
  const node = h(
    "div",
    { class: "page model", dataset: { testid: "model-page" } },
    h(
      "div",
      { class: "page-head" },
      h(
        "h1",
        { class: "breadcrumbs" },
        link(path`#/p/${ctx.project}/models`, "Models"),
        h("span", { class: "crumb-mark", "aria-hidden": "true" }, "/"),
        h("span", { "aria-current": "page" }, model),
      ),
      actions,
    ),
    body,
  );
  /** @type {ReturnType<typeof view> | null} */
  let shown = null;
  const load = () => allOf(ctx.project, model, "");
  const poll = live(node, 3, load, (found) => {
    if (shown) shown.update(found);
    else replace(body, (shown = view(ctx, here, found)).element);
    replace(actions, modelActions(here, found));
  });
  /** @type {Here} */
  const here = { project: ctx.project, model, refresh: () => poll.now() };
  return node;
}

/** @param {string} project @param {string} model @param {string} pageToken @returns {Promise<Found>} */
async function allOf(project, model, pageToken) {
  /** @type {[Api.ModelDetails, Api.Versions, Api.RolloutList]} */
  const [details, answer, { rollouts }] = await Promise.all([
    get(path`/trainshed/v1/projects/${project}/models/${model}`),
    get(path`/v1/projects/${project}/models/${model}/versions`, { pageSize: PAGE, pageToken }),
    get(path`/trainshed/v1/projects/${project}/models/${model}/rollouts`),
  ]);
  const versions = await Promise.all((answer.versions ?? []).map(detailsOf));
  const known = versions.filter((each) => each !== null);
  return { ...details, versions: known, rollouts, more: Boolean(answer.nextPageToken) };
}

/**
 * The details of a version; null if it was deleted since it was listed.
 * @param {Api.Version} version
 * @returns {Promise<VersionFound | null>}
 */
async function detailsOf(version) {
  try {
    /** @type {Api.VersionDetails} */
    const details = await get(`/trainshed/v1/${version.name}`);
    return { id: lastPart(version.name), ...details };
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}

/** @param {Here} here @param {Found} found */
function modelActions(here, found) {
  const answers = found.versions.some((each) => ["READY", "UPDATING"].includes(each.version.state));
  const canGoBack = found.previousVersion || Object.keys(found.split).length > 0;
  return [
    answers
      ? link(
          `${path`#/p/${here.project}/playground`}?${new URLSearchParams({ model: here.model })}`,
          "Playground",
          "button button-plain",
        )
      : null,
    answers ? button("Split traffic…", { onClick: () => splitTraffic(here, found), testid: "split" }) : null,
    canGoBack ? button("Roll back", { onClick: () => rollBack(here, found), testid: "rollback" }) : null,
    button("Delete…", { kind: "danger", onClick: () => deleteModel(here, found), testid: "delete-model" }),
    button("Create a version", {
      kind: "primary",
      onClick: () => createVersion(here, found),
      testid: "create-version",
    }),
  ];
}

/** @param {Context} ctx @param {Here} here @param {Found} first */
function view(ctx, here, first) {
  const about = h("div", { class: "model-about" });
  const sums = h("div", { class: "figures", dataset: { testid: "figures" } });
  const chart = (/** @type {string} */ title) =>
    lineChart({ title, series: [], x: "time", height: 170, zero: true, wholeX: true, yFormat: number });
  const charts = {
    requests: chart("Requests a minute"),
    latency: chart("Latency, ms"),
    errors: chart("Errors a minute"),
  };
  const table = versionsList(here);
  const lines = h("section", { class: "card", "aria-label": "Call it" });
  const rollouts = h("div", null);
  const element = h(
    "div",
    { class: "stack" },
    about,
    rollouts,
    table,
    h(
      "section",
      { class: "card", "aria-label": "Traffic of the last hour" },
      h("div", { class: "card-head" }, h("h2", null, "Last hour"), sums),
      h(
        "div",
        { class: "chart-grid-3", dataset: { testid: "traffic" } },
        charts.requests,
        charts.latency,
        charts.errors,
      ),
    ),
    lines,
  );

  let called = "";
  const update = (/** @type {Found} */ found) => {
    replace(
      about,
      found.model.description ? h("p", null, found.model.description) : null,
      Object.keys(found.model.labels ?? {}).length ? labelTags(found.model.labels) : null,
      found.notes.map((note) => h("p", { class: "muted" }, note)),
      splitBar(found),
    );
    replace(rollouts, rolloutsCard(here, found.rollouts));
    table.update(found);
    const series = trafficSeries(found.traffic);
    charts.requests.update(series.requests);
    charts.latency.update(series.latency);
    charts.errors.update(series.errors);
    replace(sums, figures(found.traffic));
    const chosen = found.versions.find((each) => each.version.isDefault) ?? found.versions[0];
    const key = JSON.stringify([chosen?.id, chosen?.sample]);
    if (key !== called) replace(lines, callLines(ctx, here.model, chosen));
    called = key;
  };
  update(first);
  return { element, update };
}

/** @param {Api.ModelDetails["traffic"]} traffic */
function figures(traffic) {
  const { count, errors } = totals(traffic);
  if (!count) return h("span", { class: "muted" }, "No requests since the server started, or in this hour");
  return [
    h("span", null, h("b", null, number(count)), count === 1 ? " request" : " requests"),
    h("span", { class: errors ? "bad" : "" }, h("b", null, number(errors)), errors === 1 ? " error" : " errors"),
  ];
}

/** A split as a bar of shares. @param {Found} found */
function splitBar(found) {
  const parts = Object.entries(found.split);
  if (!parts.length) return null;
  return h(
    "div",
    { class: "split", dataset: { testid: "split-bar" } },
    parts.map(([name, share], at) =>
      h("div", { class: `split-part series-${(at % 6) + 1}`, style: { "flex-grow": share } }, `${name} ${share} %`),
    ),
  );
}

/** @param {Context} ctx @param {string} model @param {VersionFound | undefined} version */
function callLines(ctx, model, version) {
  const { url } = ctx.session;
  const list = calls({ url, project: ctx.project, model, version: "", sample: version?.sample ?? null });
  return [
    h(
      "div",
      { class: "card-head" },
      h("h2", null, "Call it"),
      h("span", { class: "muted small" }, "The token is put in when the line runs."),
    ),
    h(
      "div",
      { dataset: { testid: "calls" } },
      tabs(
        list.map(({ id, title, text }) => ({ id, title, show: () => codeBlock(text) })),
        "curl",
      ),
    ),
  ];
}
