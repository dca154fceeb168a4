// @ts-check
// The current settings of the server, with their sources.

import { get } from "../api.js";
import { h, replace } from "../dom.js";
import { live } from "../live.js";
import { loading } from "../parts.js";
import { table } from "../table.js";

const NETWORKS = {
  own: "It has a network of its own",
  proxied: "It has a network of its own, from which a proxy alone leads to other machines",
  machine: "It has the machine's network",
};

/** @param {import("../routes.js").Context} ctx @returns {HTMLElement} */
export default function page(ctx) {
  const body = h("div", null, loading());
  const search = h("input", {
    class: "input search-settings",
    type: "search",
    placeholder: "Search settings",
    "aria-label": "Search settings",
    dataset: { testid: "search-settings" },
    on: { input: () => show() },
  });
  const changed = h("input", { type: "checkbox", dataset: { testid: "only-changed" }, on: { change: () => show() } });
  const count = h("span", { class: "muted", role: "status" });
  const sandbox = h("p", { class: "muted", dataset: { testid: "sandbox" } });
  const node = h(
    "div",
    { class: "page settings" },
    h("div", { class: "page-head" }, h("h1", null, "Settings")),
    h(
      "p",
      { class: "muted" },
      `As they are in force in this server, version ${ctx.session.version}. They are set when it starts: `,
      "by a file, the environment, or the command line.",
    ),
    sandbox,
    h("div", { class: "toolbar" }, search, h("label", { class: "check" }, changed, " Only those that were set"), count),
    body,
  );
  /** @type {Api.Setting[]} */
  let settings = [];
  /** @type {ReturnType<typeof settingsTable> | null} */
  let grid = null;

  function show() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = settings.filter((each) => {
      const text = `${each.name} ${each.description} ${shown(each.value)} ${each.source}`.toLowerCase();
      return words.every((word) => text.includes(word)) && (!changed.checked || each.source !== "default");
    });
    count.textContent = `${rows.length} of ${settings.length}`;
    if (grid) grid.update(rows);
    else replace(body, (grid = settingsTable(rows)));
  }
  live(
    node,
    30,
    () => get("/trainshed/v1/settings"),
    (/** @type {Api.Settings} */ answer) => {
      settings = answer.settings;
      show();
    },
  );
  live(
    node,
    30,
    () => get("/trainshed/v1/server"),
    (/** @type {Api.Server} */ server) => {
      const reason = server.sandboxReason ? `: ${server.sandboxReason}` : "";
      const because = server.networkReason ? ` (${server.networkReason})` : "";
      const why = server.limitsReason ? `: ${server.limitsReason}` : "";
      sandbox.textContent =
        `The sandbox around user code has the level ${server.sandbox}${reason}. ` +
        `${NETWORKS[server.network]}${because}. ` +
        `Its limits have the level ${server.limits}${why}.`;
    },
  );
  return node;
}

/** @param {Api.Setting[]} rows */
function settingsTable(rows) {
  return table({
    testid: "settings",
    columns: [
      {
        title: "Setting",
        sort: (row) => row.name,
        cell: (row) => [h("code", null, row.name), h("div", { class: "muted small setting-text" }, row.description)],
      },
      { title: "Value", cell: (row) => valueCell(row) },
      {
        title: "From",
        sort: (row) => row.source,
        cell: (row) => h("span", { class: row.source === "default" ? "muted" : "tag" }, row.source),
      },
    ],
    key: (row) => row.name,
    rows,
    empty: "No setting matches.",
  });
}

/** @param {Api.Setting} row */
function valueCell(row) {
  const value = shown(row.value);
  const standard =
    row.source !== "default" && shown(row.default) !== value
      ? h("div", { class: "muted small" }, `default: ${shown(row.default)}`)
      : null;
  return [h("code", { class: "setting-value" }, value), standard];
}

/** @param {Api.Json} value */
function shown(value) {
  if (value === null || value === "") return "not set";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
