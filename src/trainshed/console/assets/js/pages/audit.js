// @ts-check
// The audit record: who changed what, and who was refused.

import { get } from "../api.js";
import { h, replace } from "../dom.js";
import { live } from "../live.js";
import { errorBox, field, loading, timeAgo } from "../parts.js";
import { path } from "../paths.js";
import { Pager } from "../pager.js";
import { table } from "../table.js";

/** @param {import("../routes.js").Context} ctx @returns {HTMLElement} */
export default function page(ctx) {
  const body = h("div", { class: "stack" }, loading());
  const node = h("div", { class: "page audit" }, h("div", { class: "page-head" }, h("h1", null, "Audit")), body);
  if (ctx.session.role !== "owner") {
    replace(body, errorBox(new Error("Only an owner may see the audit record. Ask one for a token with that role.")));
    return node;
  }
  const user = h("input", {
    class: "input",
    type: "search",
    value: ctx.query.get("user") ?? "",
    dataset: { testid: "audit-user" },
    on: { change: () => choose() },
  });
  const outcome = h(
    "select",
    { class: "select", dataset: { testid: "audit-outcome" }, on: { change: () => choose() } },
    [
      ["", "all"],
      ["OK", "changes"],
      ["refused", "refused tries"],
    ].map(([value, text]) => h("option", { value, selected: value === (ctx.query.get("outcome") ?? "") }, text)),
  );
  /** @type {ReturnType<typeof entryTable> | null} */
  let shown = null;
  const pager = new Pager(() => poll.now());
  const choose = () => {
    ctx.setQuery({ user: user.value.trim(), outcome: outcome.value });
    pager.tokens = [""];
    void poll.now();
  };
  const poll = live(
    node,
    10,
    () => {
      const query = new URLSearchParams({ user: user.value.trim(), outcome: outcome.value, pageToken: pager.token });
      return get(`${path`/trainshed/v1/projects/${ctx.project}/audit`}?${query}`);
    },
    (/** @type {Api.AuditPage} */ found) => {
      if (shown) shown.update(found.entries);
      else
        replace(
          body,
          h(
            "div",
            { class: "toolbar" },
            field({ label: "User", input: user }),
            field({ label: "Show", input: outcome }),
          ),
          (shown = entryTable(found.entries)),
          pager.node,
        );
      pager.show(found.nextPageToken);
    },
  );
  return node;
}

/** @param {Api.AuditEntry[]} rows */
function entryTable(rows) {
  return table({
    testid: "audit",
    columns: [
      { title: "When", cell: (row) => timeAgo(row.time) },
      { title: "User", cell: (row) => (row.user ? h("b", null, row.user) : h("span", { class: "muted" }, "unknown")) },
      { title: "From", cell: (row) => row.address },
      { title: "Method", cell: (row) => h("code", null, row.method) },
      { title: "Resource", cell: (row) => row.resource, class: "clip" },
      {
        title: "Outcome",
        cell: (row) =>
          h(
            "span",
            { class: row.outcome === "OK" ? "" : "bad" },
            row.times > 1 ? `${row.outcome}, ${row.times} times` : row.outcome,
          ),
      },
    ],
    key: (row) => row.id,
    rows,
    empty: "Nothing was changed or refused yet, or nothing matches.",
  });
}
