// @ts-check
// A copy of a job with changes: as a form, or as JSON. Both are views of the same body.

import { ApiError, get, post } from "../../api.js";
import { dialog, toast } from "../../dialogs.js";
import { h, replace } from "../../dom.js";
import { messageOf } from "../../format.js";
import { isKey } from "../../lookup.js";
import { errorBox, field, tabs } from "../../parts.js";
import { nextName, renamed, withName } from "./jobinfo.js";

/** @typedef {"masterType" | "workerCount" | "workerType" | "parameterServerCount" | "parameterServerType"} Gang */

const MAX_NAMES = 20; // that are tried before one is proposed
const TIERS = ["BASIC", "STANDARD_1", "PREMIUM_1", "CUSTOM"];
/** @type {[Gang, string][]} */
const GANG = [
  ["masterType", "Machine type of the master"],
  ["workerCount", "Workers"],
  ["workerType", "Machine type of workers"],
  ["parameterServerCount", "Parameter servers"],
  ["parameterServerType", "Machine type of parameter servers"],
];
// field names in errors -> inputs of the form
/** @type {Record<string, keyof CloneForm["fields"]>} */
const INPUTS = {
  job_id: "name",
  args: "args",
  scale_tier: "tier",
  runtime_version: "runtime",
  labels: "labels",
  job_dir: "folder",
  max_trials: "trials",
  max_parallel_trials: "parallel",
  output_path: "folder",
};

/** @param {string} text @returns {Record<string, string>} */
function labelsFrom(text) {
  const pairs = text
    .split(/[\n,]/)
    .map((line) => line.trim())
    .filter(Boolean);
  return Object.fromEntries(
    pairs.map((pair) => {
      const at = pair.indexOf("=");
      return at < 0 ? [pair, ""] : [pair.slice(0, at).trim(), pair.slice(at + 1).trim()];
    }),
  );
}

/** @param {string} text one argument a line; blank lines between them are none */
function argsFrom(text) {
  return text
    .split("\n")
    .map((line) => line.replace(/\r$/, ""))
    .filter((line) => line.trim() !== "");
}

/**
 * @template {object} Target
 * @template {keyof Target} Key
 * @param {Target} target
 * @param {Key} key
 * @param {Target[Key] & (string | object)} value an empty one takes the field out
 */
function put(target, key, value) {
  if (Object.keys(value).length === 0) delete target[key];
  else target[key] = value;
}

/**
 * A field with its error message below.
 * @param {string} label
 * @param {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} input
 * @param {string} [hint]
 */
function blamable(label, input, hint) {
  const problem = h("p", { class: "field-problem", role: "alert", hidden: true });
  const node = field({ label, input, hint });
  node.append(problem);
  return { node, input, problem };
}

class CloneForm {
  /** @param {Api.Job} job @param {string} name @param {Api.Runtime[]} runtimes */
  constructor(job, name, runtimes) {
    this.training = Boolean(job.trainingInput);
    this.body = renamed(job, name);
    this.name = h("input", {
      type: "text",
      required: true,
      spellcheck: false,
      autocomplete: "off",
      dataset: { testid: "clone-name" },
    });
    this.args = h("textarea", { rows: 8, spellcheck: false, class: "mono", dataset: { testid: "clone-args" } });
    this.folder = h("input", { type: "text", spellcheck: false, dataset: { testid: "clone-folder" } });
    this.trials = h("input", { type: "number", min: "1", step: "1", dataset: { testid: "clone-trials" } });
    this.parallel = h("input", { type: "number", min: "1", step: "1", dataset: { testid: "clone-parallel" } });
    this.tier = h(
      "select",
      { dataset: { testid: "clone-tier" } },
      TIERS.map((tier) => h("option", { value: tier }, tier)),
    );
    this.runtime = h("input", {
      type: "text",
      list: "clone-runtimes",
      autocomplete: "off",
      dataset: { testid: "clone-runtime" },
    });
    this.runtimes = h(
      "datalist",
      { id: "clone-runtimes" },
      runtimes.map((each) => h("option", { value: each.name }, each.summary)),
    );
    this.labels = h("textarea", { rows: 2, spellcheck: false, class: "mono", dataset: { testid: "clone-labels" } });
    this.gang = new Map(GANG.map(([key]) => [key, h("input", { type: "text" })]));
    this.raw = h("textarea", {
      rows: 22,
      spellcheck: false,
      class: "mono clone-raw",
      "aria-label": "The job as JSON",
      dataset: { testid: "clone-raw" },
    });
    this.rawProblem = h("div");
    this.search = h("div", { class: "clone-pair" });
    this.gangBox = h(
      "fieldset",
      { class: "clone-gang" },
      h("legend", null, "The gang"),
      GANG.map(([key, label]) => field({ label, input: /** @type {HTMLInputElement} */ (this.gang.get(key)) })),
    );
    this.view = "form";
    this.lastName = "";
    this.name.addEventListener("input", () => this.#renamed());
    this.tier.addEventListener("change", () => this.#showGang());
    this.fields = this.#fields();
    this.node = this.#tabs();
    this.fill();
  }

  #fields() {
    const folder = this.training ? "Folder of the job" : "Output path";
    return {
      name: blamable("Name", this.name, "Letters, digits and underscores. A name is taken for ever."),
      args: blamable("Arguments", this.args, "One a line."),
      folder: blamable(folder, this.folder, "gs://BUCKET/FOLDER"),
      trials: blamable(
        "Trials",
        this.trials,
        "Of this job. Those of a search that it goes on with are not among them.",
      ),
      parallel: blamable("Trials at a time", this.parallel),
      tier: blamable("Scale tier", this.tier),
      runtime: blamable("Runtime version", this.runtime),
      labels: blamable("Labels", this.labels, "key=value, one a line."),
    };
  }

  #tabs() {
    const { name, args, folder, trials, parallel, tier, runtime, labels } = this.fields;
    const pair = h("div", { class: "clone-pair" }, tier.node, runtime.node);
    this.search.append(trials.node, parallel.node);
    const parts = this.training
      ? [name.node, args.node, folder.node, this.search, pair, this.gangBox, labels.node]
      : [name.node, folder.node, runtime.node, labels.node];
    const form = h(
      "form",
      { class: "clone-form", on: { submit: (event) => event.preventDefault() } },
      parts,
      this.runtimes,
    );
    const raw = h("div", { class: "clone-form" }, this.rawProblem, this.raw);
    return tabs(
      [
        { id: "form", title: "Form", show: () => form },
        { id: "json", title: "JSON", show: () => raw },
      ],
      "form",
      (id) => this.#turn(id),
    );
  }

  /** Show the body in both views. */
  fill() {
    const { trainingInput: training, predictionInput: prediction } = this.body;
    this.name.value = this.body.jobId ?? "";
    this.args.value = (training?.args ?? []).join("\n");
    this.folder.value = training?.jobDir ?? prediction?.outputPath ?? "";
    const { hyperparameters } = training ?? {};
    this.search.hidden = !hyperparameters;
    this.trials.value = String(hyperparameters?.maxTrials ?? 1);
    this.parallel.value = String(hyperparameters?.maxParallelTrials ?? 1);
    this.tier.value = training?.scaleTier ?? "BASIC";
    this.runtime.value = (training ?? prediction)?.runtimeVersion ?? "";
    this.labels.value = Object.entries(this.body.labels ?? {})
      .map(([key, value]) => `${key}=${value}`)
      .join("\n");
    for (const [key, input] of this.gang) input.value = training?.[key] ?? "";
    this.lastName = this.name.value;
    this.#showGang();
    this.raw.value = JSON.stringify(this.body, null, 2);
  }

  #showGang() {
    this.gangBox.hidden = this.tier.value !== "CUSTOM";
  }

  /** Rename folders with the old name. */
  #renamed() {
    const name = this.name.value;
    if (name === "") return; // the field is between two names
    this.folder.value = withName(this.folder.value, this.lastName, name);
    this.args.value = argsFrom(this.args.value)
      .map((arg) => (arg.includes("gs://") ? withName(arg, this.lastName, name) : arg))
      .join("\n");
    this.lastName = name;
  }

  /** Update the body from the form. */
  #takeForm() {
    const { trainingInput: training, predictionInput: prediction } = this.body;
    this.body.jobId = this.name.value.trim();
    put(this.body, "labels", labelsFrom(this.labels.value));
    if (prediction) {
      put(prediction, "outputPath", this.folder.value.trim());
      put(prediction, "runtimeVersion", this.runtime.value.trim());
    }
    if (!training) return;
    put(training, "jobDir", this.folder.value.trim());
    put(training, "runtimeVersion", this.runtime.value.trim());
    put(training, "args", argsFrom(this.args.value));
    put(training, "scaleTier", this.tier.value);
    const { hyperparameters } = training;
    if (hyperparameters && this.trials.value) hyperparameters.maxTrials = this.trials.valueAsNumber;
    if (hyperparameters && this.parallel.value) hyperparameters.maxParallelTrials = this.parallel.valueAsNumber;
    for (const [key, input] of this.gang) put(training, key, this.tier.value === "CUSTOM" ? input.value.trim() : "");
  }

  /** Update the body from the JSON. Throws an error if it is invalid. */
  #takeRaw() {
    /** @type {Api.JobRequest} */
    let found;
    try {
      found = JSON.parse(this.raw.value);
    } catch (error) {
      throw new Error(`This is not JSON: ${messageOf(error)}`);
    }
    const key = this.training ? "trainingInput" : "predictionInput";
    if (typeof found?.[key] !== "object" || found[key] === null) throw new Error(`A job like this one needs a ${key}.`);
    this.body = found;
  }

  /** @param {string} view */
  #turn(view) {
    if (view === this.view) return;
    replace(this.rawProblem);
    try {
      if (this.view === "form") this.#takeForm();
      else this.#takeRaw();
      this.fill();
      this.view = view;
    } catch (error) {
      this.node.select("json");
      replace(this.rawProblem, errorBox(error));
    }
  }

  /** The job to send. */
  taken() {
    if (this.view === "form") this.#takeForm();
    else this.#takeRaw();
    return this.body;
  }

  /**
   * Show an error of the server beside its field.
   * @param {unknown} error
   * @returns {boolean} whether there is such a field
   */
  blame(error) {
    for (const each of Object.values(this.fields)) each.problem.hidden = true;
    const refused = error instanceof ApiError ? error.violation : undefined;
    const taken = error instanceof ApiError && error.status === 409;
    const last = refused?.field.split(".").find((part) => isKey(INPUTS, part));
    const known = taken ? "name" : last === undefined ? undefined : INPUTS[last];
    const place = known === undefined || this.view !== "form" ? undefined : this.fields[known];
    if (!place?.node.isConnected) return false;
    place.problem.textContent = refused?.description ?? messageOf(error);
    place.problem.hidden = false;
    place.input.focus();
    return true;
  }
}

/**
 * The first of the names after this one that no job has.
 * @param {string} project
 * @param {string} name
 * @returns {Promise<string>}
 */
async function freeName(project, name) {
  let free = nextName(name);
  for (let tries = 0; tries < MAX_NAMES; tries += 1) {
    try {
      /** @type {Api.Job} */
      const taken = await get(`/v1/projects/${encodeURIComponent(project)}/jobs/${encodeURIComponent(free)}`);
      free = nextName(taken.jobId);
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return free;
      throw error;
    }
  }
  return free;
}

/**
 * @param {import("../../routes.js").Context} ctx
 * @param {Api.Job} job
 */
export async function cloneDialog(ctx, job) {
  /** @type {Api.Runtimes} */
  const { runtimes } = await get("/trainshed/v1/runtimes");
  const form = new CloneForm(job, await freeName(ctx.project, job.jobId), runtimes);
  const send = async () => {
    const body = form.taken();
    try {
      /** @type {Api.Job} */
      const made = await post(`/v1/projects/${encodeURIComponent(ctx.project)}/jobs`, body);
      toast(`${made.jobId} is queued.`, "good");
      ctx.go(`/jobs/${encodeURIComponent(made.jobId)}`);
    } catch (error) {
      if (!form.blame(error)) throw error;
      return false;
    }
    return true;
  };
  dialog({
    title: `A job like ${job.jobId}`,
    body: form.node,
    actions: [{ text: "Cancel" }, { text: "Submit", kind: "primary", run: send, testid: "clone-submit" }],
    wide: true,
  });
}
