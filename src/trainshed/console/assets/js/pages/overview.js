// @ts-check
// The overview of a project and of the machine.

import { get } from "../api.js";
import { lineChart } from "../charts.js";
import { h, replace } from "../dom.js";
import { bytes, count, duration, number, percent } from "../format.js";
import { icon } from "../icons.js";
import { live } from "../live.js";
import { button, elapsed, emptyState, link, loading, progressBar, sentences, stateBadge, timeAgo } from "../parts.js";
import { table } from "../table.js";
import { showSubmitHelp } from "../submit.js";

const SECONDS = 2;

/** @type {[keyof Api.Overview["jobs"], string, string, string][]} key of the count, title, state to filter by, look */
const FIGURES = [
  ["running", "Running", "PREPARING,RUNNING,CANCELLING", "busy"],
  ["queued", "Queued", "QUEUED", "waiting"],
  ["succeeded24h", "Succeeded, last 24 h", "SUCCEEDED", "good"],
  ["failed24h", "Failed, last 24 h", "FAILED", "bad"],
];

/** @param {import("../routes.js").Context} ctx @returns {Node} */
export default function page(ctx) {
  const path = `/trainshed/v1/projects/${encodeURIComponent(ctx.project)}/overview`;
  const body = h("div", { class: "overview" }, loading());
  const node = h(
    "div",
    { class: "page", dataset: { testid: "overview" } },
    h(
      "div",
      { class: "page-head" },
      h("h1", null, "Overview"),
      button("Submit a job", { onClick: () => showSubmitHelp(ctx.project), testid: "submit-help" }),
    ),
    body,
  );
  /** @type {View | null} */
  let view = null;
  live(
    node,
    SECONDS,
    () => get(path),
    (/** @type {Api.Overview} */ value) => {
      if (view === null) {
        view = new View(ctx);
        replace(body, view.parts());
      }
      view.update(value);
    },
  );
  return node;
}

class View {
  /** @param {import("../routes.js").Context} ctx */
  constructor(ctx) {
    this.ctx = ctx;
    this.figures = new Map(FIGURES.map(([key, title, state, look]) => [key, this.figure(title, state, look)]));
    this.alerts = h("section", {
      class: "alerts",
      "aria-label": "Needs attention",
      dataset: { testid: "alerts" },
    });
    this.running = new RunningList(ctx);
    this.queued = this.queue();
    this.queuedCard = card("Queued", this.queued);
    this.models = this.modelTable();
    this.machine = new MachineCard();
    this.told = ""; // what needs attention, as it is shown
  }

  parts() {
    return [
      this.alerts,
      h(
        "div",
        { class: "overview-figures" },
        [...this.figures.values()].map(({ element }) => element),
      ),
      h(
        "div",
        { class: "overview-columns" },
        h(
          "div",
          { class: "overview-column" },
          card("Running", this.running.element, link(this.ctx.href("/jobs"), "All jobs")),
          this.queuedCard,
          card("Models", this.models, link(this.ctx.href("/models"), "All models")),
        ),
        h("div", { class: "overview-column" }, this.machine.element),
      ),
    ];
  }

  /** @param {string} title @param {string} state @param {string} look */
  figure(title, state, look) {
    const value = h("span", { class: "figure-value" }, "0");
    const href = this.ctx.href("/jobs", { state });
    const element = h(
      "a",
      { class: `figure figure-${look}`, href },
      value,
      h("span", { class: "figure-title" }, title),
    );
    return { element, value };
  }

  queue() {
    /** @type {Api.QueuedJob[]} */
    const rows = [];
    return table({
      columns: [
        { title: "Job", cell: (row) => link(this.ctx.href(`/jobs/${row.jobId}`), row.jobId), class: "col-job" },
        { title: "Why it waits", cell: (row) => row.waiting },
        { title: "Since", cell: (row) => timeAgo(row.createTime), class: "nowrap" },
      ],
      key: (row) => row.jobId,
      rows,
      onOpen: (row) => this.ctx.go(`/jobs/${row.jobId}`),
      caption: "Queued jobs",
    });
  }

  modelTable() {
    const command = "trainshed versions create v1 --model MODEL --origin gs://BUCKET/EXPORT --runtime-version 2.21";
    /** @type {Api.ModelRow[]} */
    const rows = [];
    return table({
      columns: [
        { title: "Model", cell: (row) => link(this.ctx.href(`/models/${row.name}`), row.name), class: "col-job" },
        { title: "Default", cell: (row) => row.defaultVersion || h("span", { class: "muted" }, "none") },
        { title: "Requests, 1 h", cell: (row) => number(row.requests1h), class: "cell-number" },
        { title: "Errors", cell: (row) => errors(row), class: "cell-number" },
        { title: "p50", cell: (row) => milliseconds(row.p50Ms), class: "cell-number" },
        { title: "p99", cell: (row) => milliseconds(row.p99Ms), class: "cell-number" },
      ],
      key: (row) => row.name,
      rows,
      onOpen: (row) => this.ctx.go(`/models/${row.name}`),
      caption: "Models",
      empty: emptyState({
        title: "No models yet",
        text: "A job's export becomes a model that answers requests, from the job's page in two clicks, or with:",
        command,
      }),
    });
  }

  /** @param {Api.Overview} value */
  update(value) {
    for (const [key, { value: shown }] of this.figures) shown.textContent = number(value.jobs[key]);
    this.showAlerts(value.alerts);
    this.running.update(value.running);
    this.queued.update(value.queued);
    this.queuedCard.hidden = value.queued.length === 0;
    this.models.update(value.models);
    this.machine.update(value.machine);
  }

  /** @param {Api.Alert[]} items */
  showAlerts(items) {
    const sign = JSON.stringify(items);
    if (sign === this.told) return;
    this.told = sign;
    this.alerts.hidden = items.length === 0;
    replace(
      this.alerts,
      items.map((item) =>
        h(
          "div",
          { class: `notice notice-${item.severity}` },
          icon("warning"),
          h("div", { class: "notice-text" }, h("b", null, item.message), h("p", null, sentences(item.remedy))),
          item.link.startsWith("#/") ? link(item.link, "Look", "notice-link") : null,
        ),
      ),
    );
  }
}

/** The running jobs, each with a progress bar. */
class RunningList {
  /** @param {import("../routes.js").Context} ctx */
  constructor(ctx) {
    this.ctx = ctx;
    this.items = /** @type {Map<string, ReturnType<RunningList["item"]>>} */ (new Map());
    this.list = h("ul", { class: "running", dataset: { testid: "running" } });
    this.nothing = emptyState({
      title: "Nothing runs",
      text: "Jobs that run are here, with their progress.",
      action: button("Submit a job", { kind: "primary", onClick: () => showSubmitHelp(ctx.project) }),
    });
    this.element = h("div", null, this.list, this.nothing);
  }

  /** @param {Api.RunningJob[]} rows */
  update(rows) {
    const keys = new Set(rows.map((row) => row.jobId));
    for (const [key, item] of this.items) {
      if (keys.has(key)) continue;
      item.element.remove();
      this.items.delete(key);
    }
    rows.forEach((row, index) => {
      const item = this.items.get(row.jobId) ?? this.item(row);
      this.items.set(row.jobId, item);
      if (this.list.children[index] !== item.element)
        this.list.insertBefore(item.element, this.list.children[index] ?? null);
      item.update(row);
    });
    this.nothing.hidden = rows.length > 0;
  }

  /** @param {Api.RunningJob} row */
  item(row) {
    const bar = progressBar({ fraction: null });
    const state = h("span");
    const facts = h("span", { class: "running-facts" });
    const element = h(
      "li",
      { class: "running-item", dataset: { key: row.jobId } },
      h(
        "div",
        { class: "running-head" },
        link(this.ctx.href(`/jobs/${row.jobId}`), row.jobId, "link running-name"),
        state,
        facts,
      ),
      bar,
    );
    const update = (/** @type {Api.RunningJob} */ now) => {
      if (state.dataset.state !== now.state) {
        state.dataset.state = now.state;
        replace(state, stateBadge(now.state));
      }
      const label = [progressWords(now.progress), measures(now.progress), now.gang].filter(Boolean).join(" · ");
      bar.update({ fraction: now.progress?.fraction ?? null, label });
      const left = now.progress?.leftSeconds;
      if (typeof left === "number") replace(facts, h("b", null, duration(left)), " left");
      else replace(facts, "for ", elapsed(now.startTime ?? now.createTime));
    };
    return { element, update };
  }
}

/** The progress of a job. @param {Api.ProgressSummary | null} progress @returns {string} */
function progressWords(progress) {
  if (!progress) return "";
  const words = [];
  if (progress.step !== null) {
    words.push(`step ${number(progress.step)}${progress.totalSteps ? ` of ${number(progress.totalSteps)}` : ""}`);
  } else if (progress.epoch) {
    words.push(`epoch ${number(progress.epoch)}${progress.totalEpochs ? ` of ${number(progress.totalEpochs)}` : ""}`);
  }
  if (typeof progress.globalStepsPerSecond === "number") words.push(`${number(progress.globalStepsPerSecond)} steps/s`);
  return words.join(" · ");
}

/** @param {Api.ProgressSummary | null} progress */
function measures(progress) {
  if (!progress) return "";
  const loss = progress.loss === null ? "" : `loss ${number(progress.loss)}`;
  const accuracy = typeof progress.accuracy === "number" ? `accuracy ${percent(progress.accuracy)}` : "";
  return [loss, accuracy].filter(Boolean).join(" · ");
}

/** CPU over the last minutes, memory and disk. */
class MachineCard {
  constructor() {
    this.cpus = h("span", { class: "muted" });
    this.cpu = meter("CPU", { alarm: false });
    this.memory = meter("Memory");
    this.disk = meter("Disk");
    this.chart = lineChart({
      label: "CPU and memory",
      series: [],
      height: 150,
      x: "time",
      yFormat: percent,
      zero: true,
    });
    this.element = card(
      "Machine",
      h("div", { class: "machine" }, this.cpu.element, this.memory.element, this.disk.element, this.chart),
      this.cpus,
    );
    this.element.dataset.testid = "machine";
  }

  /** @param {Api.Machine} machine */
  update(machine) {
    const { cpus, cpu, memoryBytes: memory, memoryUsedBytes: used, diskBytes: disk, diskFreeBytes: free } = machine;
    this.cpus.textContent = count(cpus, "core");
    this.cpu.update(cpu, percent(cpu));
    this.memory.update(used / memory, `${bytes(used)} of ${bytes(memory)}`);
    this.disk.update((disk - free) / disk, `${bytes(free)} free of ${bytes(disk)}`);
    this.chart.update([
      { name: "CPU", points: machine.history.map((at) => [at.time, at.cpu]) },
      {
        name: "Memory",
        points: machine.history.map((at) => [at.time, at.memoryUsedBytes / memory]),
      },
    ]);
  }
}

/**
 * A gauge. With `alarm`, a nearly full one is highlighted: a busy CPU is no problem.
 * @param {string} title
 * @param {{alarm?: boolean}} [options]
 */
function meter(title, { alarm = true } = {}) {
  const value = h("span", { class: "meter-value" });
  const bar = progressBar({ fraction: 0 });
  const element = h("div", { class: "meter" }, h("span", { class: "meter-title" }, title), value, bar);
  return {
    element,
    update: (/** @type {number} */ share, /** @type {string} */ text) => {
      value.textContent = text;
      bar.update({ fraction: Number.isFinite(share) ? share : 0 });
      bar.firstElementChild?.setAttribute("aria-label", `${title}: ${text}`);
      element.classList.toggle("meter-high", alarm && share > 0.9);
    },
  };
}

/** @param {string} title @param {Node} content @param {Node} [aside] */
function card(title, content, aside) {
  return h(
    "section",
    { class: "card" },
    h("div", { class: "card-head" }, h("h2", null, title), aside ?? null),
    content,
  );
}

/** @param {Api.ModelRow} row */
function errors(row) {
  return row.errors1h > 0 ? h("span", { class: "text-bad" }, number(row.errors1h)) : number(row.errors1h);
}

/** @param {number | null} value */
function milliseconds(value) {
  return value === null ? "–" : `${number(value)} ms`;
}
