// @ts-check
// All jobs of a project: searched, filtered, and live.

import { get } from "../api.js";
import { h, keepFocus, replace } from "../dom.js";
import { count, number } from "../format.js";
import { icon } from "../icons.js";
import { JobRows } from "../jobrows.js";
import { live } from "../live.js";
import { button, elapsed, emptyState, errorBox, labelTags, link, loading, stateBadge, timeAgo } from "../parts.js";
import { showSubmitHelp, submitCommand } from "../submit.js";
import { table } from "../table.js";

const SECONDS = 3;
const TYPING_MS = 60; // keys that come together are one question
const AHEAD_PX = 1200; // so far below the screen rows are read already

/** @type {[string, string, ("ALL" | Api.JobState)[]][]} name of the filter, what is asked for, what is counted */
const STATES = [
  ["All", "", ["ALL"]],
  ["Running", "PREPARING,RUNNING,CANCELLING", ["PREPARING", "RUNNING", "CANCELLING"]],
  ["Queued", "QUEUED", ["QUEUED"]],
  ["Succeeded", "SUCCEEDED", ["SUCCEEDED"]],
  ["Failed", "FAILED", ["FAILED"]],
  ["Cancelled", "CANCELLED", ["CANCELLED"]],
];

/** @param {import("../routes.js").Context} ctx @returns {Node} */
export default function page(ctx) {
  return new JobsPage(ctx).node;
}

class JobsPage {
  /** @param {import("../routes.js").Context} ctx */
  constructor(ctx) {
    this.ctx = ctx;
    this.filter = {
      search: ctx.query.get("search") ?? "",
      state: ctx.query.get("state") ?? "",
      kind: ctx.query.get("kind") ?? "",
      label: (ctx.query.get("label") ?? "").split(",").filter(Boolean),
    };
    const path = `/trainshed/v1/projects/${encodeURIComponent(ctx.project)}/jobs`;
    this.rows = new JobRows((params, signal) => get(path, { ...params, ...this.filter }, { signal }));
    this.typing = 0;
    this.compare = button("Compare", {
      icon: "compare",
      onClick: () => this.openCompare(),
      testid: "compare",
      disabled: true,
    });
    this.table = this.makeTable();
    this.chips = h("div", { class: "chips", role: "group", "aria-label": "State" });
    this.tags = h("div", { class: "filter-tags" });
    this.empty = this.nothing();
    this.content = h("div", null, loading());
    this.foot = h("div", { class: "table-foot", role: "status" });
    this.node = this.build();
    this.showFilters();
    this.live = live(
      this.node,
      SECONDS,
      () => this.rows.refresh(this.table.range()),
      () => this.show(),
    );
    new IntersectionObserver(() => this.fill(), { rootMargin: `${AHEAD_PX}px` }).observe(this.foot);
  }

  build() {
    return h(
      "div",
      { class: "page jobs-page", dataset: { testid: "jobs" } },
      h(
        "div",
        { class: "page-head" },
        h("h1", null, "Jobs"),
        this.compare,
        button("Submit a job", { onClick: () => showSubmitHelp(this.ctx.project), testid: "submit-help" }),
      ),
      h("div", { class: "filters" }, this.searchBox(), this.kindSelect(), this.chips, this.tags),
      this.content,
      this.foot,
    );
  }

  searchBox() {
    const input = h("input", {
      class: "input",
      type: "search",
      placeholder: "Name or label",
      "aria-label": "Search by name or label",
      value: this.filter.search,
      autocomplete: "off",
      spellcheck: false,
      dataset: { testid: "job-search" },
    });
    input.addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = window.setTimeout(() => this.set({ search: input.value.trim() }), TYPING_MS);
    });
    return h("div", { class: "filter-search" }, icon("search"), input);
  }

  kindSelect() {
    const kinds = [
      ["", "Every kind"],
      ["training", "Training"],
      ["prediction", "Batch prediction"],
    ];
    const select = h(
      "select",
      {
        class: "select",
        "aria-label": "Kind",
        value: this.filter.kind,
        dataset: { testid: "kind" },
        on: { change: () => this.set({ kind: select.value }) },
      },
      kinds.map(([value, text]) => h("option", { value }, text)),
    );
    return select;
  }

  makeTable() {
    const pick = (/** @type {string} */ key, /** @type {string} */ value) =>
      this.addLabel(value === "" ? key : `${key}=${value}`);
    /** @type {Api.JobRow[]} */
    const rows = [];
    return table({
      columns: [
        { title: "Job", cell: (row) => nameCell(this.ctx, row), class: "col-job" },
        { title: "State", cell: (row) => stateBadge(row.state), class: "col-state" },
        { title: "Replicas", cell: (row) => kindCell(row), class: "col-gang" },
        { title: "Created", cell: (row) => timeAgo(row.createTime), class: "col-created" },
        { title: "Ran for", cell: (row) => ran(row), class: "col-ran" },
        { title: "Labels", cell: (row) => labelTags(row.labels, pick), class: "col-labels" },
      ],
      key: (row) => row.jobId,
      rows,
      select: true,
      onSelect: (rows) => this.selected(rows),
      onOpen: (row) => this.ctx.go(`/jobs/${row.jobId}`),
      caption: "Jobs, newest first",
      empty: h("p", null, "No job matches."),
      testid: "job-table",
      windowed: true,
    });
  }

  /** Change the filter. The rows stay until the response. @param {Partial<typeof this.filter>} change */
  set(change) {
    Object.assign(this.filter, change);
    this.ctx.setQuery({ ...this.filter, label: this.filter.label.join(",") });
    this.rows.restart();
    this.showFilters();
    return this.live.now();
  }

  /** @param {string} label */
  addLabel(label) {
    if (!this.filter.label.includes(label)) void this.set({ label: [...this.filter.label, label] });
  }

  showFilters() {
    const { counts } = this.rows;
    replace(
      this.chips,
      STATES.map(([title, state, counted]) => {
        const total = counts === null ? null : counted.reduce((sum, each) => sum + counts[each], 0);
        return h(
          "button",
          {
            class: "chip",
            type: "button",
            "aria-pressed": String(this.filter.state === state),
            dataset: { testid: `state-${title}` },
            on: { click: () => void this.set({ state }) },
          },
          title,
          total === null ? null : h("span", { class: "chip-count" }, number(total)),
        );
      }),
    );
    replace(
      this.tags,
      this.filter.label.map((label) => this.labelFilter(label)),
    );
  }

  /** @param {string} label */
  labelFilter(label) {
    const drop = () => void this.set({ label: this.filter.label.filter((each) => each !== label) });
    return h(
      "button",
      { class: "tag tag-filter", type: "button", "aria-label": `Do not filter by ${label}`, on: { click: drop } },
      label,
      icon("close"),
    );
  }

  show() {
    keepFocus(this.chips, () => this.showFilters());
    const { rows, counts } = this.rows;
    const none = counts !== null && rows.length === 0 && !this.filtered();
    const wanted = none ? this.empty : this.table;
    if (this.content.firstChild !== wanted) replace(this.content, wanted);
    this.table.update(rows);
    this.showFoot();
    this.fill();
  }

  nothing() {
    return emptyState({
      title: "No jobs yet",
      text: "A job trains your code, or predicts many rows. Submit the first one from a terminal:",
      command: submitCommand(this.ctx.project),
      action: h("p", { class: "muted" }, "This page shows it as soon as it is there."),
    });
  }

  filtered() {
    const { search, state, kind, label } = this.filter;
    return search !== "" || state !== "" || kind !== "" || label.length > 0;
  }

  showFoot() {
    const { rows, next } = this.rows;
    if (next !== "") replace(this.foot, button("Load more", { onClick: () => this.more(), testid: "load-more" }));
    else replace(this.foot, rows.length > 0 ? `${count(rows.length, "job")}, and no more.` : "");
  }

  async more() {
    if (await this.rows.more()) this.show();
  }

  /** Load more while the end of the table is near the screen. */
  fill() {
    if (this.rows.next === "" || this.foot.getBoundingClientRect().top > window.innerHeight + AHEAD_PX) return;
    this.more().catch((/** @type {unknown} */ error) => {
      if (!(error instanceof DOMException && error.name === "AbortError")) replace(this.foot, errorBox(error));
    });
  }

  /** @param {Api.JobRow[]} rows */
  selected(rows) {
    this.compare.disabled = rows.length < 2;
    replace(this.compare, icon("compare"), rows.length < 2 ? "Compare" : `Compare ${number(rows.length)}`);
    this.compare.title = rows.length < 2 ? "Tick two jobs or more" : "";
  }

  openCompare() {
    this.ctx.go("/compare", {
      jobs: this.table
        .selected()
        .map((row) => row.jobId)
        .join(","),
    });
  }
}

/** @param {import("../routes.js").Context} ctx @param {Api.JobRow} row */
function nameCell(ctx, row) {
  const message = row.message ? h("div", { class: "row-message", title: row.message }, row.message) : null;
  return h("div", { class: "row-name" }, link(ctx.href(`/jobs/${row.jobId}`), row.jobId), message);
}

/** @param {Api.JobRow} row */
function kindCell(row) {
  const text = row.kind === "prediction" ? "batch prediction" : row.gang;
  return h("span", { title: text }, text);
}

/** @param {Api.JobRow} row */
function ran(row) {
  return row.startTime ? elapsed(row.startTime, row.endTime) : h("span", { class: "muted" }, "–");
}
