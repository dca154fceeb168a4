// @ts-check
// A row for each replica of a job, with a button that kills one to test recovery.

import { get, post } from "../../api.js";
import { spark } from "../../charts.js";
import { confirm, toast } from "../../dialogs.js";
import { h, replace } from "../../dom.js";
import { bytes, number } from "../../format.js";
import { button, emptyState, link, loading } from "../../parts.js";
import { table } from "../../table.js";
import { cpuText, watch } from "./charts.js";

const POINTS = 60; // of a small curve

/** @typedef {import("./place.js").Place} Place */
/**
 * @typedef {Api.ReplicaProgress & {all: string[], use: Api.ReplicaStats | undefined, killable: boolean}} Row
 *   `all`: the names of the job's replicas
 */

/**
 * What the job restarts when it loses a replica; docs/training.md has the whole table.
 * @param {string} replica
 * @param {string[]} all the names of its replicas
 */
function outcome(replica, all) {
  const served = all.some((name) => name.startsWith("ps-"));
  if (replica.startsWith("evaluator-") || (served && replica.startsWith("worker-"))) {
    return "It alone is started again; the others go on meanwhile.";
  }
  if (replica.startsWith("ps-"))
    return "It alone is started again, and TensorFlow restores the last checkpoint into it.";
  if (all.length === 1) return "It is started again. A trainer that writes checkpoints goes on from the last one.";
  return "The whole gang is started again. Trainers that write checkpoints go on from the last one.";
}

/** @param {string} path @param {string} replica @param {string[]} all */
async function kill(path, replica, all) {
  const agreed = await confirm({
    title: `Kill ${replica}?`,
    text: `It gets SIGKILL, as if its machine had failed. ${outcome(replica, all)} The log tells of it.`,
    action: "Kill it",
    danger: true,
  });
  if (!agreed) return;
  /** @type {Api.Killed} */
  const done = await post(`${path}:chaos`, { kill: replica });
  toast(`${done.signal} was sent to ${done.replica}. The log tells what comes of it.`);
}

/**
 * Current or maximum use of a replica, with a sparkline.
 * @param {number | null} now
 * @param {Api.Series | undefined} series
 * @param {(value: number) => string} format
 */
function use(now, series, format) {
  const most = series?.max ?? null;
  const text = now !== null ? format(now) : most === null ? "–" : `max ${format(Number(most))}`;
  const values = (series?.value ?? []).map(Number);
  return h("span", { class: "replica-use" }, values.length > 1 ? spark(values) : null, h("span", null, text));
}

/** @type {Record<Api.ReplicaState, string>} */
const LOOKS = { waiting: "off", running: "busy", done: "good", exited: "bad", killed: "bad", stopped: "off" };

/** @param {Row} row */
function stateCell(row) {
  return h("span", { class: `badge badge-${LOOKS[row.state]}` }, row.status);
}

/** @param {string} path @param {Place} place @returns {import("../../table.js").Column<Row>[]} */
function columns(path, place) {
  return [
    {
      title: "Replica",
      cell: (row) => link(place.link({ tab: "logs", replica: row.name }), row.name),
      sort: (row) => row.name,
      class: "nowrap",
    },
    {
      title: "State",
      cell: stateCell,
      sort: (row) => row.status,
    },
    {
      title: "Step",
      cell: (row) => number(row.step),
      sort: (row) => row.step ?? -1,
      class: "cell-number",
    },
    { title: "Loss", cell: (row) => number(row.loss), class: "cell-number" },
    { title: "Steps/s", cell: (row) => number(row.localStepsPerSecond), class: "cell-number" },
    {
      title: "CPU",
      cell: (row) => use(row.cpu, row.use?.cpu, cpuText),
      sort: (row) => row.cpu ?? -1,
      class: "cell-number",
    },
    {
      title: "Memory",
      cell: (row) => use(row.memoryBytes, row.use?.memoryBytes, bytes),
      sort: (row) => row.memoryBytes ?? -1,
      class: "cell-number",
    },
    {
      title: "Restarts",
      cell: (row) => String(row.restarts),
      sort: (row) => row.restarts,
      class: "cell-number",
    },
    {
      title: "",
      cell: (row) =>
        row.killable
          ? button("Kill…", {
              onClick: () => kill(path, row.name, row.all),
              title: "See how the job gets over the loss of it",
              testid: `kill-${row.name}`,
            })
          : "",
      class: "cell-actions",
    },
  ];
}

/**
 * @param {string} path of the job in Trainshed's own API
 * @param {Place} place
 * @returns {HTMLElement}
 */
export function replicasTab(path, place) {
  const node = h("section", { class: "job-replicas", "aria-label": "Replicas" }, loading("Reading the replicas…"));
  /** @type {import("../../table.js").TableElement<Row> | null} */
  let shown = null;
  const load = async () => {
    /** @type {[Api.JobProgress, Api.JobStats]} */
    const [found, stats] = await Promise.all([get(`${path}/progress`), get(`${path}/stats`, { points: POINTS })]);
    return {
      ...found,
      complete: stats.complete,
      use: new Map(stats.replicas.map((each) => [each.name, each])),
    };
  };
  watch(node, load, (found) => {
    const all = found.replicas.map((each) => each.name);
    const rows = found.replicas.map((replica) => ({
      ...replica,
      all,
      use: found.use.get(replica.name),
      killable: found.state === "RUNNING" && replica.state === "running",
    }));
    if (shown) shown.update(rows);
    else {
      const empty = emptyState({ title: "No replicas yet", text: "They are here once the job is prepared." });
      const testid = "replica-table";
      shown = table({ testid, columns: columns(path, place), key: (row) => row.name, rows, empty });
      replace(
        node,
        shown,
        h(
          "p",
          { class: "muted" },
          "CPU: 100 % is one core. Memory is that of a replica with every process that it started. The curves are in ",
          link(place.link({ tab: "charts" }), "Charts"),
          ".",
        ),
      );
    }
  });
  return node;
}
