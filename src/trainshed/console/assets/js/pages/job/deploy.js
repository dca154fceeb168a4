// @ts-check
// Deploys a job's export as a version: one click opens the window, the next one deploys.

import { ApiError, get, post } from "../../api.js";
import { dialog } from "../../dialogs.js";
import { h, replace } from "../../dom.js";
import { live } from "../../live.js";
import { emptyState, field, link, loading, progressBar, timeAgo } from "../../parts.js";
import { lastPart } from "../../paths.js";
import { trialJob } from "./jobinfo.js";

const EVERY_S = 0.7;

/** @param {string} project @param {string} path */
function ml(project, path) {
  return `/v1/projects/${encodeURIComponent(project)}/${path}`;
}

/** The model with a name like the job's, or a name for a new one. @param {string} job @param {string[]} models */
function proposedModel(job, models) {
  const stem = job.replace(/[_\d]+$/, "") || job;
  const wanted = stem.toLowerCase();
  return models.find((name) => name.toLowerCase() === wanted) ?? (models.length === 1 ? models[0] : stem);
}

/** @param {string[]} versions @returns {string} v1, or the one after the last of that kind */
function proposedVersion(versions) {
  const numbers = versions.map((name) => Number(/^v(\d{1,9})$/.exec(name)?.[1] ?? 0));
  return `v${Math.max(0, ...numbers) + 1}`;
}

/** @param {string} project @param {string} model @returns {Promise<string[] | null>} null: there is no such model */
async function versionsOf(project, model) {
  try {
    /** @type {Api.Versions} */
    const found = await get(ml(project, `models/${encodeURIComponent(model)}/versions`), { pageSize: 100 });
    return (found.versions ?? []).map((version) => lastPart(version.name));
  } catch (error) {
    if (error instanceof ApiError && (error.status === 404 || error.status === 400)) return null;
    throw error;
  }
}

class Deploy {
  /** @param {string} project @param {string} job @param {number | null} trial of a tuning job, whose export it is */
  constructor(project, job, trial) {
    this.project = project;
    this.job = job;
    this.trial = trial;
    this.asked = 0;
    this.chosen = /** @type {Api.Export | undefined} */ (undefined);
    this.isNew = false;
    this.window = /** @type {import("../../dialogs.js").Window | undefined} */ (undefined);
    this.go = /** @type {HTMLButtonElement | null} */ (null);
    this.model = h("input", {
      type: "text",
      list: "deploy-models",
      autocomplete: "off",
      spellcheck: false,
      dataset: { testid: "deploy-model" },
    });
    this.models = h("datalist", { id: "deploy-models" });
    this.version = h("input", {
      type: "text",
      autocomplete: "off",
      spellcheck: false,
      dataset: { testid: "deploy-version" },
    });
    this.hint = h("p", { class: "field-hint" });
    this.body = h("div", { class: "deploy" }, loading("Looking for exports…"));
    this.model.addEventListener("input", () => void this.#propose());
  }

  async open() {
    const shown = dialog({
      title: this.trial === null ? `Deploy ${this.job}` : `Deploy trial ${this.trial} of ${this.job}`,
      body: this.body,
      actions: [{ text: "Close" }, { text: "Deploy", kind: "primary", run: () => this.#deploy(), testid: "deploy-go" }],
    });
    /** @type {HTMLButtonElement | null} */
    const go = shown.element.querySelector("[data-testid=deploy-go]");
    if (go) go.hidden = true;
    this.go = go;
    this.window = shown;
    const owner = this.trial === null ? this.job : trialJob(this.job, this.trial);
    /** @type {[Api.Exports, Api.Models]} */
    const [{ exports }, { models = [] }] = await Promise.all([
      get(`/trainshed${ml(this.project, `jobs/${encodeURIComponent(owner)}/exports`)}`),
      get(ml(this.project, "models"), { pageSize: 100 }),
    ]);
    if (exports.length === 0) replace(this.body, noExports(this.trial));
    else
      await this.#show(
        exports,
        models.map((model) => lastPart(model.name)),
      );
  }

  /** @param {Api.Export[]} exports newest first @param {string[]} models */
  async #show(exports, models) {
    const choices = exports.map((each, index) => this.#choice(each, index === 0));
    this.chosen = exports[0];
    replace(
      this.models,
      models.map((name) => h("option", { value: name })),
    );
    this.model.value = proposedModel(this.job, models);
    await this.#propose();
    replace(
      this.body,
      h("fieldset", { class: "deploy-exports" }, h("legend", null, "Export"), choices),
      h(
        "div",
        { class: "clone-pair" },
        field({ label: "Model", input: this.model }),
        field({ label: "Version", input: this.version }),
      ),
      this.hint,
      this.models,
    );
    if (this.go) {
      this.go.hidden = false;
      this.go.focus();
    }
  }

  /** @param {Api.Export} each @param {boolean} checked */
  #choice(each, checked) {
    const facts = [each.framework, each.runtime && `runtime ${each.runtime}`].filter(Boolean).join(" · ");
    const pick = () => (this.chosen = each);
    return h(
      "label",
      { class: "deploy-export" },
      h("input", { type: "radio", name: "export", checked, on: { change: pick } }),
      h(
        "span",
        null,
        h("span", { class: "deploy-uri" }, each.uri),
        h("span", { class: "muted" }, timeAgo(each.time), facts ? ` · ${facts}` : ""),
      ),
    );
  }

  /** A name for the new version that the model does not have. */
  async #propose() {
    const asked = ++this.asked;
    const name = this.model.value.trim();
    const versions = name === "" ? null : await versionsOf(this.project, name);
    if (asked !== this.asked) return;
    this.isNew = versions === null;
    this.version.value = this.#proposedVersion(versions ?? []);
    this.hint.textContent = this.isNew
      ? `There is no model ${name} yet; it is made. Its first version becomes the default.`
      : `${name} has ${versions?.length ? `the versions ${versions.join(", ")}` : "no versions yet"}.`;
  }

  /** @param {string[]} versions of the model */
  #proposedVersion(versions) {
    const own = `${this.job}_trial_${this.trial}`;
    return this.trial === null || versions.includes(own) ? proposedVersion(versions) : own;
  }

  async #deploy() {
    const model = this.model.value.trim();
    const version = this.version.value.trim();
    const source = this.chosen;
    if (!source) return false; // the button is hidden until there is one
    if (this.isNew) await this.#makeModel(model);
    /** @type {Api.Operation} */
    const operation = await post(ml(this.project, `models/${encodeURIComponent(model)}/versions`), {
      name: version,
      deploymentUri: source.uri,
      ...(source.runtime ? { runtimeVersion: source.runtime } : {}),
      ...(source.framework ? { framework: source.framework } : {}),
    });
    this.isNew = false;
    await this.#follow(operation, model, version);
    this.#done(model, version);
    return false;
  }

  /** @param {string} model */
  async #makeModel(model) {
    try {
      await post(ml(this.project, "models"), { name: model, regions: ["us-central1"] });
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 409)) throw error; // someone else made it meanwhile
    }
  }

  /**
   * Show progress until the version is ready. Never resolves if the window is closed before.
   * @param {Api.Operation} operation @param {string} model @param {string} version
   * @returns {Promise<void>}
   */
  #follow(operation, model, version) {
    const bar = progressBar({ fraction: null, label: "Creating the version…" });
    const before = [...this.body.childNodes];
    replace(
      this.body,
      bar,
      h("p", { class: "muted" }, "This goes on without you: closing the window does not stop it."),
    );
    const path = `models/${encodeURIComponent(model)}/versions/${encodeURIComponent(version)}`;
    const details = `/trainshed${ml(this.project, path)}`;
    /** @returns {Promise<[Api.Operation, Api.VersionDetails]>} */
    const look = () => Promise.all([get(`/v1/${operation.name}`), get(details)]);
    return new Promise((resolve, reject) => {
      const poll = live(bar, EVERY_S, look, ([now, news]) => {
        bar.update({ fraction: null, label: news.progress || "Creating the version…" });
        if (!now.done) return;
        poll.stop();
        if (!now.error) {
          resolve();
          return;
        }
        replace(this.body, before);
        reject(new Error(now.error.message));
      });
    });
  }

  /** @param {string} model @param {string} version */
  #done(model, version) {
    const base = `#/p/${encodeURIComponent(this.project)}`;
    const play = new URLSearchParams({ model, version });
    const close = () => this.window?.close();
    const links = [
      link(`${base}/models/${encodeURIComponent(model)}`, `Open the model ${model}`, "button button-plain"),
      link(`${base}/playground?${play}`, "Try it in the playground", "button button-primary"),
    ];
    for (const each of links) each.addEventListener("click", close);
    replace(
      this.body,
      h(
        "p",
        { class: "deploy-done", role: "status", dataset: { testid: "deploy-done" } },
        `Version ${version} of ${model} is ready to predict.`,
      ),
      h("div", { class: "deploy-links" }, links),
    );
    if (this.go) this.go.hidden = true;
    links[1].focus();
  }
}

/** @param {number | null} trial */
function noExports(trial) {
  const whose = trial === null ? "this job" : `trial ${trial}`;
  const remedy = trial === null ? "" : " “Run as a job…” trains once more with its values.";
  return emptyState({
    title: "There is nothing to deploy yet",
    text:
      `No folder of ${whose} holds a model: a SavedModel, a model.joblib, model.pkl or model.bst. A trainer exports ` +
      `one at its end, mostly below its --job-dir.${remedy}`,
  });
}

/** @param {string} project @param {string} job @param {number | null} [trial] of a tuning job */
export function deployDialog(project, job, trial = null) {
  return new Deploy(project, job, trial).open();
}
