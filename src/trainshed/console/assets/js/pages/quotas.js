// @ts-check
// Quotas: the limits that apply in the project, and what is in use of each. And the network of its code.

import { get } from "../api.js";
import { h, replace } from "../dom.js";
import { live } from "../live.js";
import { loading } from "../parts.js";
import { path } from "../paths.js";
import { table } from "../table.js";

const NETWORKS = {
  none: "its own gang alone",
  "google-storage": "its own gang, this server, and Google's storage",
  all: "its own gang, this server, and other machines",
  machine: "all that this machine reaches",
};

/** @param {import("../routes.js").Context} ctx @returns {HTMLElement} */
export default function page(ctx) {
  const body = h("div", { class: "stack" }, loading());
  const network = h("p", { dataset: { testid: "network" } });
  const node = h(
    "div",
    { class: "page quotas" },
    h("div", { class: "page-head" }, h("h1", null, "Quotas")),
    h(
      "p",
      { class: "muted" },
      "Beyond a limit, new work is refused, or waits until other work ends. Owners set limits with ",
      h("code", null, "trainshed quotas set"),
      ".",
    ),
    body,
    h("h2", null, "Network"),
    network,
  );
  /** @type {ReturnType<typeof quotaTable> | null} */
  let shown = null;
  live(
    node,
    10,
    () => get(path`/trainshed/v1/projects/${ctx.project}/quotas`),
    (/** @type {Api.QuotaUses} */ { quotas }) => {
      if (shown) shown.update(quotas);
      else replace(body, (shown = quotaTable(quotas)));
    },
  );
  live(
    node,
    10,
    () => get(path`/trainshed/v1/projects/${ctx.project}/network`),
    (/** @type {Api.Network} */ answer) => {
      replace(
        network,
        "Code of this project's jobs and versions reaches ",
        h("b", null, NETWORKS[answer.network]),
        answer.default ? ", as the server's setting says. " : ", as an owner has set. ",
        "Owners change it with ",
        h("code", null, "trainshed network set"),
        ".",
      );
    },
  );
  return node;
}

/** @param {Api.QuotaUse[]} rows */
function quotaTable(rows) {
  return table({
    testid: "quotas",
    columns: [
      { title: "Limit", class: "nowrap", cell: (row) => h("code", null, row.name), sort: (row) => row.name },
      { title: "Of", class: "nowrap", cell: (row) => subjectOf(row), sort: (row) => row.user },
      { title: "In use", cell: (row) => usedOf(row) },
      { title: "At most", cell: (row) => row.value.toLocaleString() },
      { title: "Set", class: "nowrap", cell: (row) => (row.default ? "as a default" : "for it") },
    ],
    key: (row) => `${row.user}/${row.name}`,
    rows,
    empty: "No limit applies in this project.",
  });
}

/** @param {Api.QuotaUse} row */
function subjectOf(row) {
  if (!row.user) return h("span", { class: "muted" }, "the project");
  return row.user === "*" ? h("span", { class: "muted" }, "each user") : h("b", null, row.user);
}

/** @param {Api.QuotaUse} row */
function usedOf(row) {
  if (row.used === null) return "";
  return h("span", { class: row.used >= row.value ? "bad" : "" }, row.used.toLocaleString());
}
