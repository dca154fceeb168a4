// @ts-check
// The versions of a model, and the details of one.

import { get } from "../../api.js";
import { dialog } from "../../dialogs.js";
import { h, replace } from "../../dom.js";
import { bytes, count, duration, number } from "../../format.js";
import {
  busyWhile,
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
import { facts } from "../../table.js";
import { deleteVersion, setDefault } from "./changes.js";

const BUSY = new Set(["CREATING", "UPDATING", "DELETING"]);
const SERVING = new Set(["READY", "UPDATING"]);

/** @typedef {import("../model.js").Here} Here */
/** @typedef {import("../model.js").Found} Found */
/** @typedef {ReturnType<typeof rowOf>} Row */

/**
 * @param {Here} here
 * @returns {HTMLElement & {update: (found: Found) => void}}
 */
export function versionsList(here) {
  const list = h("ul", { class: "versions", dataset: { testid: "versions" } });
  const more = h("p", { class: "muted small versions-more" }, "The newest 30 are shown. To see all of them:");
  more.append(" ", h("code", null, `trainshed versions list --model ${here.model}`));
  const empty = nothing(here);
  const element = h("section", { class: "card card-flush", "aria-label": "Versions" }, list, more, empty);
  /** @type {Map<string, {sign: string, item: HTMLElement}>} */
  const shown = new Map();

  const update = (/** @type {Found} */ found) => {
    const rows = found.versions.map((each) => rowOf(each, found));
    const items = rows.map((row) => {
      const sign = JSON.stringify(row);
      const before = shown.get(row.id);
      if (before?.sign === sign) return before.item;
      const item = versionItem(here, row);
      before?.item.replaceWith(item);
      shown.set(row.id, { sign, item });
      return item;
    });
    const ids = new Set(rows.map((row) => row.id));
    for (const id of shown.keys()) if (!ids.has(id)) shown.delete(id);
    if (items.some((item, at) => list.children[at] !== item) || list.children.length > items.length)
      replace(list, items);
    more.hidden = !found.more;
    list.hidden = items.length === 0;
    empty.hidden = items.length > 0;
  };
  return Object.assign(element, { update });
}

/** @param {Here} here */
function nothing(here) {
  return emptyState({
    title: "No versions yet",
    text: "A version is what a training exported, deployed. Create one here, or with:",
    command: `trainshed versions create v1 --model ${here.model} --origin gs://BUCKET/JOB/export/Servo/TIMESTAMP`,
  });
}

/**
 * The content of a row without volatile fields: it is redrawn only if this changes.
 * @param {import("../model.js").VersionFound} each
 * @param {Found} found
 */
function rowOf(each, found) {
  const { id, version, runtime, detail, parity, batching, invariance, precision, size, progress } = each;
  const memory = each.hosts.reduce((sum, host) => sum + host.memoryBytes, 0);
  const split = Object.keys(found.split).length > 0;
  return {
    ...{ id, version: { ...version, lastUseTime: undefined }, runtime, detail, parity, size, progress },
    ...{ batching, invariance, precision },
    hosts: each.hosts.length,
    limits: each.scaling ? ` of ${each.scaling.minHosts} to ${each.scaling.maxHosts}` : "",
    memory: Math.round(memory / 1e6) * 1e6,
    share: split ? (found.split[id] ?? 0) : version.isDefault ? 100 : 0,
    count: found.traffic[id]?.count ?? 0,
    errors: found.traffic[id]?.errors ?? 0,
  };
}

/** @param {Here} here @param {Row} row */
function versionItem(here, row) {
  const { version } = row;
  const busy = BUSY.has(version.state);
  const name = h(
    "button",
    { class: "link-button version-name", type: "button", dataset: { testid: "version-name" } },
    row.id,
  );
  name.addEventListener("click", () => void busyWhile(name, () => showVersion(here, row.id)));
  return h(
    "li",
    { class: "version", dataset: { testid: `version-${row.id}` } },
    h(
      "div",
      { class: "version-head" },
      name,
      stateBadge(version.state),
      version.isDefault ? h("span", { class: "tag tag-default", dataset: { testid: "default" } }, "default") : null,
      row.share ? h("span", { class: "muted nowrap" }, `${row.share} % of requests`) : null,
      actions(here, row),
    ),
    version.description ? h("p", { class: "version-text" }, version.description) : null,
    h("div", { class: "version-facts" }, factsOf(row)),
    busy ? progressBar({ fraction: null, label: row.progress }) : null,
    !busy && row.progress ? h("p", { class: "warn" }, row.progress) : null,
    version.errorMessage ? errorBox(new Error(version.errorMessage)) : null,
  );
}

/** @param {Row} row */
function factsOf(row) {
  const asked = row.count ? `${count(row.count, "request")} in the last hour` : "no requests in the last hour";
  return [
    h("span", null, servedBy(row, ", ")),
    parityLabel(row.parity),
    batchingLabel(row),
    precisionLabel(row.precision),
    row.size === undefined ? null : h("span", null, bytes(row.size)),
    hostsWords(row),
    h("span", null, asked, row.errors ? h("span", { class: "bad" }, `, ${count(row.errors, "error")}`) : null),
    h("span", null, "created ", timeAgo(row.version.createTime)),
    Object.keys(row.version.labels ?? {}).length ? labelTags(row.version.labels) : null,
  ];
}

/**
 * The loader and the runtime of a version: containers have no runtime.
 * @param {Pick<Api.VersionDetails, "detail" | "runtime" | "version">} row
 * @param {string} between
 */
function servedBy({ detail, runtime, version }, between) {
  const what = detail || (version.container && `the container ${version.container.image}`);
  return [what, runtime && `runtime ${runtime}`].filter(Boolean).join(between);
}

/** The parity with the framework of the model. @param {Api.Parity | null | undefined} parity */
function parityLabel(parity) {
  if (!parity) return null;
  if (!parity.within) return h("span", { class: "warn", title: parity.message }, "OpenVINO answered otherwise");
  const { difference, reference } = parity;
  const words = difference === 0 ? `equal to ${reference}` : `within ${number(difference)} of ${reference}`;
  return h("span", { class: "good", title: parity.message, dataset: { testid: "parity" } }, words);
}

/** Whether requests are batched. @param {Row} row */
function batchingLabel({ batching, invariance }) {
  if (!invariance) return null;
  return h(
    "span",
    { title: invariance.message, dataset: { testid: "batching" } },
    batching ? "batches requests" : "one request at a time",
  );
}

/** The precision of a version that does not compute in f32. @param {Api.Precision | null | undefined} precision */
function precisionLabel(precision) {
  if (!precision) return null;
  const { name, difference, message } = precision;
  const words = difference === null ? name : `${name}, within ${number(difference)} of f32`;
  return h("span", { title: message, dataset: { testid: "precision" } }, words);
}

/** @param {Row} row */
function hostsWords(row) {
  if (!row.hosts) return row.version.state === "READY" ? h("span", null, "asleep") : null;
  return h("span", null, count(row.hosts, "host"), row.limits, row.memory ? `, ${bytes(row.memory)}` : "");
}

/** @param {Here} here @param {Row} row */
function actions(here, row) {
  const ready = SERVING.has(row.version.state);
  const remove = () => deleteVersion(here, row.id);
  return h(
    "span",
    { class: "button-row version-actions" },
    ready && !row.version.isDefault
      ? button("Make default", { onClick: () => setDefault(here, row.id), testid: "make-default" })
      : null,
    ready ? link(playgroundOf(here, row.id), "Try", "button button-plain") : null,
    row.version.state === "DELETING" ? null : button("Delete…", { onClick: remove, testid: "delete-version" }),
  );
}

/** @param {Here} here @param {string} version */
function playgroundOf(here, version) {
  return `${path`#/p/${here.project}/playground`}?${new URLSearchParams({ model: here.model, version })}`;
}

/** The details of one version. @param {Here} here @param {string} id */
async function showVersion(here, id) {
  /** @type {Api.VersionDetails} */
  const found = await get(path`/trainshed/v1/projects/${here.project}/models/${here.model}/versions/${id}`);
  const { version } = found;
  dialog({
    title: `${here.model} ${id}`,
    wide: true,
    body: [
      version.errorMessage ? errorBox(new Error(version.errorMessage)) : null,
      facts([
        ["State", stateBadge(version.state)],
        ["Now", found.progress],
        ["Origin", version.deploymentUri ? addressOf(version.deploymentUri) : null],
        ["Image", version.container ? h("code", null, version.container.image) : null],
        ["Served by", servedBy(found, " in ")],
        ["Compared", found.parity?.message],
        ["Batching", found.invariance?.message],
        ["Precision", found.precision?.message],
        ["Size", found.size === undefined ? null : bytes(found.size)],
        ["Created", timeAgo(version.createTime)],
        ["Last asked", version.lastUseTime ? timeAgo(version.lastUseTime) : null],
        ["Hosts", found.hosts.length ? found.hosts.map(hostWords).join("; ") : null],
        ["Scaling", found.scaling ? scalingWords(found.scaling) : null],
        ["Labels", Object.keys(version.labels ?? {}).length ? labelTags(version.labels) : null],
        ["Inputs", signature(found, "inputs")],
        ["Outputs", signature(found, "outputs")],
      ]),
      found.notes.map((note) => h("p", { class: "muted" }, note)),
      found.log
        ? h(
            "details",
            { open: version.state === "FAILED" },
            h("summary", null, "The end of its log"),
            codeBlock(found.log),
          )
        : null,
    ],
  });
}

/** @param {string} uri */
function addressOf(uri) {
  return h("span", { class: "gs-address" }, h("code", null, uri), copyButton(uri, "Copy the address"));
}

/** @param {Api.Host} host */
function hostWords(host) {
  const memory = host.memoryBytes ? `, ${bytes(host.memoryBytes)}` : "";
  const state = `${host.state.toLowerCase()} for ${duration(host.ageSeconds)}`;
  const where = host.address ? `at ${host.address}` : `process ${host.pid}`;
  return `${host.instance} is ${state}: ${where}${memory}`;
}

/** @param {Api.Scaling} scaling */
function scalingWords(scaling) {
  const held = scaling.waitsForMemory ? "; more are wanted, but don't fit into memory" : "";
  const now = `${count(scaling.hosts, "host")} for ${count(scaling.inFlight, "request")} in flight`;
  return `${scaling.minHosts} to ${scaling.maxHosts} by load, now ${now}${held}`;
}

/** @param {Api.VersionDetails} found @param {"inputs" | "outputs"} side */
function signature(found, side) {
  const chosen = found.signatures?.serving_default ?? Object.values(found.signatures ?? {})[0];
  if (!chosen) return null;
  return Object.entries(chosen[side])
    .map(([name, tensor]) => `${name}: ${tensorWords(tensor)}`)
    .join("; ");
}

/** @param {Api.Tensor} tensor */
function tensorWords({ dtype, shape }) {
  return shape ? `${dtype} [${shape.map((size) => (size < 0 ? "any" : size)).join(", ")}]` : dtype;
}
