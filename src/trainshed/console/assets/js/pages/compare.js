// @ts-check
// Two jobs or more, side by side: curves, results and parameters.

import { ApiError, get } from "../api.js";
import { lineChart } from "../charts.js";
import { jobColumns, measured, parameters } from "../comparing.js";
import { h, keepFocus, replace } from "../dom.js";
import { number } from "../format.js";
import { icon } from "../icons.js";
import { live } from "../live.js";
import { emptyState, errorBox, link, loading, stateBadge } from "../parts.js";

/** @typedef {import("../comparing.js").Compared} Compared */
/** @typedef {{name: string, error: unknown}} Absent a job that is not there */

const SECONDS = 4;
const MOST = 12;
const TYPING_MS = 200;

/** @type {[string, string, boolean][]} name of a metric, title, whether its axis begins at 0 */
const CHARTS = [
  ["loss", "Loss", false],
  ["accuracy", "Accuracy", false],
  ["steps_per_s", "Steps per second", true],
];

/** @param {import("../routes.js").Context} ctx @returns {Node} */
export default function page(ctx) {
  return new ComparePage(ctx).node;
}

class ComparePage {
  /** @param {import("../routes.js").Context} ctx */
  constructor(ctx) {
    this.ctx = ctx;
    this.names = [...new Set((ctx.query.get("jobs") ?? "").split(",").filter(Boolean))].slice(0, MOST);
    this.x = /** @type {"time" | "step"} */ (ctx.query.get("x") === "time" ? "time" : "step");
    this.onlyDifferent = true;
    this.path = `/trainshed/v1/projects/${encodeURIComponent(ctx.project)}/jobs`;
    this.charts = /** @type {Map<string, import("../charts.js").ChartElement>} */ (new Map());
    this.jobs = /** @type {Compared[]} */ ([]); // those that were found
    this.drawn = /** @type {Record<string, string>} */ ({});
    this.head = h("div", { class: "compare-jobs", dataset: { testid: "compare-jobs" } });
    this.content = h("div", { class: "compare-body" }, loading());
    this.chartsHead = this.axisSwitch();
    this.charted = h("div", { class: "compare-charts" });
    this.results = h("div", { class: "card card-flush" });
    this.params = h("div", { class: "card card-flush" });
    this.node = h(
      "div",
      { class: "page", dataset: { testid: "compare" } },
      h("div", { class: "page-head" }, h("h1", null, "Compare jobs"), this.addBox()),
      this.head,
      this.content,
    );
    if (this.names.length > 0) {
      live(
        this.node,
        SECONDS,
        () => this.load(),
        (jobs) => this.show(jobs),
      );
    } else replace(this.content, this.nothing());
  }

  nothing() {
    return emptyState({
      title: "Nothing to compare yet",
      text: "Add jobs by name above, or tick two or more in the table of jobs and press Compare.",
      action: link(this.ctx.href("/jobs"), "To the jobs", "button"),
    });
  }

  /** A field that searches jobs by name. */
  addBox() {
    const options = h("datalist", { id: "compare-found" });
    let typing = 0;
    const input = h("input", {
      class: "input compare-add",
      type: "search",
      list: "compare-found",
      placeholder: "Add a job",
      "aria-label": "Add a job by name",
      autocomplete: "off",
      spellcheck: false,
      dataset: { testid: "compare-add" },
    });
    const suggest = async () => {
      /** @type {Api.JobTable} */
      const found = await get(this.path, { search: input.value.trim(), pageSize: 10 });
      replace(
        options,
        found.jobs.map((row) => h("option", { value: row.jobId })),
      );
    };
    input.addEventListener("input", (event) => {
      clearTimeout(typing);
      const typed = event instanceof InputEvent && event.inputType !== "insertReplacementText";
      if (!typed) this.add(input.value);
      else typing = window.setTimeout(() => void suggest(), TYPING_MS);
    });
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.add(input.value);
    });
    return h("div", null, input, options);
  }

  /** @param {string} name */
  add(name) {
    const wanted = name.trim();
    if (wanted !== "" && !this.names.includes(wanted)) this.open([...this.names, wanted]);
  }

  /** @param {string[]} names */
  open(names) {
    this.ctx.go("/compare", { jobs: names.join(","), x: this.x === "time" ? "time" : "" });
  }

  /** Each job with its details and series, or with an error. */
  load() {
    return Promise.all(this.names.map((name) => this.read(name)));
  }

  /** @param {string} name @returns {Promise<Compared | Absent>} */
  async read(name) {
    const path = `${this.path}/${encodeURIComponent(name)}`;
    try {
      /** @type {[Api.JobDetails, Api.JobStats]} */
      const [details, stats] = await Promise.all([get(path), get(`${path}/stats`, { points: 300 })]);
      return { name, details, stats };
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 404)) throw error;
      return { name, error };
    }
  }

  /** @param {(Compared | Absent)[]} jobs */
  show(jobs) {
    this.jobs = jobs.filter((job) => "details" in job);
    replace(
      this.head,
      jobs.map((job, index) => this.chip(job, index)),
    );
    if (this.charted.parentNode === null) replace(this.content, this.charted, this.results, this.params);
    this.showCharts(this.jobs);
    this.showResults(this.jobs);
    this.showParameters(this.jobs);
  }

  /** @param {Compared | Absent} job @param {number} index */
  chip(job, index) {
    const drop = () => this.open(this.names.filter((name) => name !== job.name));
    const remove = h(
      "button",
      { class: "icon-button", type: "button", "aria-label": `Take ${job.name} out`, on: { click: drop } },
      icon("close"),
    );
    const state = "error" in job ? errorBox(job.error) : stateBadge(job.details.job.state);
    const name = link(this.ctx.href(`/jobs/${encodeURIComponent(job.name)}`), job.name, "link compare-name");
    return h("div", { class: "compare-chip" }, mark(index), name, state, remove);
  }

  /** @param {Compared[]} jobs */
  showCharts(jobs) {
    const wanted = [];
    for (const [metric, title, zero] of CHARTS) {
      for (const evaluation of [false, true]) {
        const series = jobs.flatMap((job) => {
          const points = measured(job, metric, evaluation, this.x);
          return points.length > 0 ? [{ name: job.name, points, colour: this.names.indexOf(job.name) }] : [];
        });
        if (series.length === 0) continue;
        const name = evaluation ? `${title}, evaluation` : title;
        const unit = this.x === "time" ? "second" : "step";
        const chart = this.charts.get(name) ?? lineChart({ series, title: name, height: 220, xTitle: unit, zero });
        this.charts.set(name, chart);
        chart.update(series);
        wanted.push(chart);
      }
    }
    const cards = wanted.map((chart) => chart.closest(".card") ?? h("section", { class: "card" }, chart));
    const none = h(
      "section",
      { class: "card" },
      emptyState({
        title: "No curves yet",
        text: "Loss, accuracy and steps per second are read from the trainers' log lines and event files.",
      }),
    );
    const children = [this.chartsHead, ...(cards.length > 0 ? cards : [none])];
    if (children.length !== this.charted.childElementCount || cards.some((card) => !card.isConnected)) {
      replace(this.charted, children);
    }
  }

  /** Over steps, or over the time since the start. */
  axisSwitch() {
    const choices = /** @type {["step" | "time", string][]} */ ([
      ["step", "By step"],
      ["time", "By time since the start"],
    ]);
    const buttons = choices.map(([x, text]) => {
      const pick = () => {
        this.x = x;
        this.charts.clear();
        this.ctx.setQuery({ jobs: this.names.join(","), x: x === "time" ? x : "" });
        for (const each of buttons) each.setAttribute("aria-pressed", String(each === button));
        this.showCharts(this.jobs);
      };
      const pressed = String(this.x === x);
      const button = h("button", { class: "chip", type: "button", "aria-pressed": pressed, on: { click: pick } }, text);
      return button;
    });
    return h("div", { class: "compare-switch chips", role: "group", "aria-label": "Horizontal axis" }, buttons);
  }

  /** @param {Compared[]} jobs */
  showResults(jobs) {
    this.redraw(this.results, "results", jobColumns(jobs), () => [
      h("div", { class: "card-head card-head-flush" }, h("h2", null, "Results")),
      this.grid("Results", jobs, jobColumns(jobs)),
    ]);
  }

  /** @param {Compared[]} jobs */
  showParameters(jobs) {
    const all = parameters(jobs);
    const rows = this.onlyDifferent ? all.filter((row) => row.different) : all;
    const toggle = h("input", { type: "checkbox", checked: this.onlyDifferent, dataset: { testid: "only-different" } });
    toggle.addEventListener("change", () => {
      this.onlyDifferent = toggle.checked;
      this.showParameters(jobs);
    });
    const same = jobs.length > 1 ? "They were asked for the same." : "Add another job to see in what they differ.";
    this.redraw(this.params, "parameters", [rows, this.onlyDifferent], () => [
      h(
        "div",
        { class: "card-head card-head-flush" },
        h("h2", null, "Parameters"),
        h("label", { class: "check" }, toggle, "Only what differs"),
      ),
      rows.length === 0 ? h("p", { class: "table-empty" }, same) : this.grid("Parameters", jobs, rows),
    ]);
  }

  /**
   * Redraw a table only if it has changed.
   * @param {Element} node
   * @param {string} name
   * @param {unknown} value
   * @param {() => Dom.Child} make
   */
  redraw(node, name, value, make) {
    const sign = JSON.stringify(value);
    if (this.drawn[name] === sign) return;
    this.drawn[name] = sign;
    keepFocus(node, () => replace(node, make()));
  }

  /** @param {string} caption @param {Compared[]} jobs @param {import("../comparing.js").Line[]} rows */
  grid(caption, jobs, rows) {
    const heads = jobs.map((job) => h("th", { scope: "col" }, mark(this.names.indexOf(job.name)), job.name));
    const body = rows.map((row) =>
      h(
        "tr",
        { class: row.different ? "row-different" : null },
        h("th", { scope: "row" }, row.name, row.different ? h("span", { class: "sr-only" }, " (differs)") : null),
        row.values.map((value, index) => h("td", { class: index === row.best ? "cell-best" : null }, shown(value))),
      ),
    );
    const head = h("thead", null, h("tr", null, h("th", null, h("span", { class: "sr-only" }, "Name")), heads));
    const grid = h(
      "table",
      {
        class: "table compare-table",
        dataset: { testid: `compare-${caption.toLowerCase()}` },
        style: { "min-width": `${190 + jobs.length * 150}px` },
      },
      h("caption", { class: "sr-only" }, caption),
      head,
      h("tbody", null, body),
    );
    return h("div", { class: "table-scroll", tabIndex: 0, role: "region", "aria-label": caption }, grid);
  }
}

/** The colour of a job in the charts. @param {number} index */
function mark(index) {
  return h("span", { class: `compare-mark series-${(index % 6) + 1}`, "aria-hidden": "true" });
}

/** @param {string | number | null | undefined} value */
function shown(value) {
  if (value === null || value === undefined || value === "") return h("span", { class: "muted" }, "–");
  return typeof value === "number" ? number(value) : value;
}
