// @ts-check
// The versions of a model as a table, and what is known of one of them.

import { get } from "../../api.js";
import { dialog } from "../../dialogs.js";
import { h } from "../../dom.js";
import { bytes, duration, number } from "../../format.js";
import {
  button,
  codeBlock,
  copyButton,
  emptyState,
  errorBox,
  labelTags,
  link,
  progressBar,
  stateBadge,
  timeAgo,
} from "../../parts.js";
import { path } from "../../paths.js";
import { facts, table } from "../../table.js";
import { deleteVersion, setDefault } from "./changes.js";

/** @typedef {import("../model.js").Here} Here */

/**
 * @param {Here} here
 * @returns {HTMLElement & {update: (found: any) => void}}
 */
export function versionsTable(here) {
  const grid = table({
    testid: "versions",
    caption: "Versions",
    columns: [
      { title: "Version", cell: (row) => nameCell(here, row), sort: (row) => row.id },
      { title: "State", cell: stateCell },
      { title: "Requests", cell: shareCell, class: "nowrap" },
      { title: "Served by", cell: servedCell },
      { title: "As TensorFlow", cell: parityCell, class: "wide-only" },
      { title: "Size", cell: (row) => bytes(row.size), class: "cell-number wide-only" },
      { title: "Hosts", cell: hostsCell, class: "wide-only" },
      { title: "Created", cell: (row) => timeAgo(row.version.createTime), sort: (row) => row.version.createTime },
      { title: "", label: "Actions", class: "cell-actions", cell: (row) => actions(here, row) },
    ],
    key: (row) => row.id,
    rows: [],
    empty: emptyState({
      title: "No versions yet",
      text: "A version is what a training exported, deployed. Create one here, or with:",
      command: `trainshed versions create v1 --model ${here.model} --origin gs://BUCKET/JOB/export/Servo/TIMESTAMP`,
    }),
  });
  const more = h(
    "p",
    { class: "muted small", hidden: true },
    "The newest 30 are shown. All of them are listed by: ",
    h("code", null, `trainshed versions list --model ${here.model}`),
  );
  const element = h("section", { class: "card card-flush", "aria-label": "Versions" }, grid, more);
  element.update = (/** @type {any} */ found) => {
    grid.update(
      found.versions.map((/** @type {any} */ each) => ({
        ...each,
        log: undefined,
        hosts: steady(each.hosts),
        share: found.split[each.id],
        split: Object.keys(found.split).length > 0,
        traffic: found.traffic[each.id],
      })),
    );
    more.hidden = !found.more;
  };
  return element;
}

/** Hosts without what changes all the time: rows are drawn again only if there is news. @param {any[]} [hosts] */
function steady(hosts = []) {
  return hosts.map(({ instance, pid, state, memoryBytes }) => ({
    instance,
    pid,
    state,
    memoryBytes: Math.round(memoryBytes / 1e6) * 1e6,
  }));
}

/** @param {Here} here @param {any} row */
function nameCell(here, row) {
  const open = () => showVersion(here, row);
  return [
    h(
      "button",
      { class: "link-button", type: "button", on: { click: open }, dataset: { testid: "version-name" } },
      row.id,
    ),
    " ",
    row.version.isDefault ? h("span", { class: "tag tag-default", dataset: { testid: "default" } }, "default") : null,
    row.version.description ? h("div", { class: "muted small clip" }, row.version.description) : null,
  ];
}

/** @param {any} row */
function stateCell(row) {
  const text = row.version.errorMessage || row.progress;
  const busy = ["CREATING", "UPDATING", "DELETING"].includes(row.version.state);
  return [
    stateBadge(row.version.state),
    busy ? progressBar({ fraction: null, label: row.progress || "" }) : null,
    text && !busy
      ? h(
          "div",
          {
            class: row.version.errorMessage ? "bad small version-error" : "muted small",
            dataset: { testid: "version-error" },
          },
          text,
        )
      : null,
  ];
}

/** @param {any} row */
function shareCell(row) {
  const got = row.traffic ? `${number(row.traffic.count)} in the last hour` : "none in the last hour";
  const share = row.split ? (row.share ? `${row.share} %` : "0 %") : row.version.isDefault ? "100 %" : "0 %";
  return [h("span", null, share), h("div", { class: "muted small" }, got)];
}

/** @param {any} row */
function servedCell(row) {
  return row.detail
    ? [h("span", null, row.detail), h("div", { class: "muted small" }, `runtime ${row.runtime}`)]
    : h("span", { class: "muted" }, `runtime ${row.runtime}`);
}

/** @param {any} row */
function parityCell(row) {
  const parity = row.parity;
  if (!parity)
    return h("span", { class: "muted", title: "Its framework itself serves it: there is nothing to compare." }, "–");
  if (!parity.within) return h("span", { class: "warn", title: parity.text }, "differs: TensorFlow serves it");
  return h("span", { class: "good", title: parity.text }, `within ${number(parity.difference)}`);
}

/** @param {any} row */
function hostsCell(row) {
  if (!row.hosts.length) return h("span", { class: "muted" }, row.version.state === "READY" ? "asleep" : "–");
  const memory = row.hosts.reduce(
    (/** @type {number} */ sum, /** @type {any} */ host) => sum + (host.memoryBytes ?? 0),
    0,
  );
  return [
    h("span", null, String(row.hosts.length)),
    memory ? h("div", { class: "muted small nowrap" }, bytes(memory)) : null,
  ];
}

/** @param {Here} here @param {any} row */
function actions(here, row) {
  const ready = ["READY", "UPDATING"].includes(row.version.state);
  return h(
    "span",
    { class: "button-row" },
    ready && !row.version.isDefault
      ? button("Make default", { onClick: () => setDefault(here, row.id), testid: "make-default" })
      : null,
    ready ? link(playgroundOf(here, row.id), "Try", "button button-plain") : null,
    row.version.state === "DELETING"
      ? null
      : button("Delete…", { onClick: () => deleteVersion(here, row.id), testid: "delete-version" }),
  );
}

/** @param {Here} here @param {string} version */
function playgroundOf(here, version) {
  return `${path`#/p/${here.project}/playground`}?${new URLSearchParams({ model: here.model, version })}`;
}

/** All that is known of one version. @param {Here} here @param {any} row */
async function showVersion(here, row) {
  const found = await get(path`/trainshed/v1/projects/${here.project}/models/${here.model}/versions/${row.id}`);
  const { version } = found;
  const address = h(
    "span",
    { class: "gs-address" },
    h("code", null, version.deploymentUri),
    copyButton(version.deploymentUri, "Copy the address"),
  );
  dialog({
    title: `${here.model} ${row.id}`,
    wide: true,
    body: [
      version.errorMessage ? errorBox(new Error(version.errorMessage)) : null,
      facts([
        ["State", stateBadge(version.state)],
        ["Now", found.progress],
        ["Origin", address],
        ["Served by", found.detail ? `${found.detail} in runtime ${found.runtime}` : `runtime ${found.runtime}`],
        ["Compared", found.parity?.text],
        ["Size", found.size === undefined ? null : bytes(found.size)],
        ["Created", timeAgo(version.createTime)],
        ["Last asked", version.lastUseTime ? timeAgo(version.lastUseTime) : null],
        ["Hosts", found.hosts.length ? found.hosts.map(hostWords).join("; ") : null],
        ["Labels", Object.keys(version.labels ?? {}).length ? labelTags(version.labels) : null],
        ["Inputs", signature(found, "inputs")],
        ["Outputs", signature(found, "outputs")],
      ]),
      (found.notes ?? []).map((/** @type {string} */ note) => h("p", { class: "muted" }, note)),
      found.log
        ? h(
            "details",
            { open: version.state === "FAILED" },
            h("summary", null, "The end of its log"),
            codeBlock(found.log),
          )
        : null,
    ].flat(),
  });
}

/** @param {any} host */
function hostWords(host) {
  const memory = host.memoryBytes ? `, ${bytes(host.memoryBytes)}` : "";
  const state = `${host.state.toLowerCase()} for ${duration(host.ageSeconds)}`;
  return `${host.instance} is ${state}: process ${host.pid}${memory}`;
}

/** @param {any} found @param {"inputs" | "outputs"} side */
function signature(found, side) {
  const chosen = found.signatures?.serving_default ?? Object.values(found.signatures ?? {})[0];
  if (!chosen) return null;
  return Object.entries(chosen[side])
    .map(([name, tensor]) => `${name}: ${tensorWords(tensor)}`)
    .join("; ");
}

/** @param {{dtype: string, shape: number[] | null}} tensor */
function tensorWords({ dtype, shape }) {
  return shape ? `${dtype} [${shape.map((size) => (size < 0 ? "any" : size)).join(", ")}]` : dtype;
}
