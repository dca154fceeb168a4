// @ts-check
// A job like this one, with changes: as a form, or as JSON. Both are views of the same body.

import { get, post } from "../../api.js";
import { dialog, toast } from "../../dialogs.js";
import { h, replace } from "../../dom.js";
import { errorBox, field, tabs } from "../../parts.js";
import { nextName, renamed, withName } from "./jobinfo.js";

const TIERS = ["BASIC", "STANDARD_1", "PREMIUM_1", "CUSTOM"];
const GANG = [
  ["masterType", "Machine type of the master"],
  ["workerCount", "Workers"],
  ["workerType", "Machine type of workers"],
  ["parameterServerCount", "Parameter servers"],
  ["parameterServerType", "Machine type of parameter servers"],
];
// How the server's sentences name a field -> the input that holds it.
const INPUTS = {
  job_id: "name",
  args: "args",
  scale_tier: "tier",
  runtime_version: "runtime",
  labels: "labels",
  job_dir: "folder",
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

/** @param {any} target @param {string} key @param {any} value an empty one takes the field out */
function put(target, key, value) {
  const empty =
    value === "" ||
    (Array.isArray(value) && value.length === 0) ||
    (typeof value === "object" && Object.keys(value).length === 0);
  if (empty) delete target[key];
  else target[key] = value;
}

class CloneForm {
  /** @param {any} job @param {any[]} runtimes */
  constructor(job, runtimes) {
    this.first = job;
    this.training = Boolean(job.trainingInput);
    this.body = renamed(job, nextName(job.jobId));
    this.name = h("input", {
      type: "text",
      required: true,
      spellcheck: false,
      autocomplete: "off",
      dataset: { testid: "clone-name" },
    });
    this.args = h("textarea", { rows: 8, spellcheck: false, class: "mono", dataset: { testid: "clone-args" } });
    this.folder = h("input", { type: "text", spellcheck: false, dataset: { testid: "clone-folder" } });
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
    this.gang = Object.fromEntries(GANG.map(([key]) => [key, h("input", { type: "text" })]));
    this.raw = h("textarea", {
      rows: 22,
      spellcheck: false,
      class: "mono clone-raw",
      "aria-label": "The job as JSON",
      dataset: { testid: "clone-raw" },
    });
    this.rawProblem = h("div");
    this.gangBox = h(
      "fieldset",
      { class: "clone-gang" },
      h("legend", null, "The gang"),
      GANG.map(([key, label]) => field({ label, input: this.gang[key] })),
    );
    this.view = "form";
    this.name.addEventListener("input", () => this.#renamed());
    this.tier.addEventListener("change", () => this.#showGang());
    this.fields = this.#fields();
    this.node = this.#tabs();
    this.fill();
  }

  get input() {
    return this.training ? this.body.trainingInput : this.body.predictionInput;
  }

  #fields() {
    const made = {
      name: field({
        label: "Name",
        input: this.name,
        hint: "Letters, digits and underscores. A name is taken for ever.",
      }),
      args: field({ label: "Arguments", input: this.args, hint: "One a line." }),
      folder: field({
        label: this.training ? "Folder of the job" : "Output path",
        input: this.folder,
        hint: "gs://BUCKET/FOLDER",
      }),
      tier: field({ label: "Scale tier", input: this.tier }),
      runtime: field({ label: "Runtime version", input: this.runtime }),
      labels: field({ label: "Labels", input: this.labels, hint: "key=value, one a line." }),
    };
    for (const each of Object.values(made))
      each.append(h("p", { class: "field-problem", role: "alert", hidden: true }));
    return made;
  }

  #tabs() {
    const { name, args, folder, tier, runtime, labels } = this.fields;
    const parts = this.training
      ? [name, args, folder, h("div", { class: "clone-pair" }, tier, runtime), this.gangBox, labels]
      : [name, folder, runtime, labels];
    const form = h(
      "form",
      { class: "clone-form", on: { submit: (/** @type {Event} */ event) => event.preventDefault() } },
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

  /** What the body says, in both views. */
  fill() {
    const input = this.input;
    this.name.value = this.body.jobId ?? "";
    this.args.value = (input.args ?? []).join("\n");
    this.folder.value = (this.training ? input.jobDir : input.outputPath) ?? "";
    this.tier.value = input.scaleTier ?? "BASIC";
    this.runtime.value = input.runtimeVersion ?? "";
    this.labels.value = Object.entries(this.body.labels ?? {})
      .map(([key, value]) => `${key}=${value}`)
      .join("\n");
    for (const [key] of GANG) this.gang[key].value = input[key] ?? "";
    this.lastName = this.body.jobId;
    this.#showGang();
    this.raw.value = JSON.stringify(this.body, null, 2);
  }

  #showGang() {
    this.gangBox.hidden = this.tier.value !== "CUSTOM";
  }

  /** Folders that carry the name follow it. */
  #renamed() {
    const name = this.name.value;
    this.folder.value = withName(this.folder.value, this.lastName, name);
    this.args.value = argsFrom(this.args.value)
      .map((arg) => (arg.includes("gs://") ? withName(arg, this.lastName, name) : arg))
      .join("\n");
    this.lastName = name;
  }

  /** Take what the form says into the body. */
  #takeForm() {
    const input = this.input;
    this.body.jobId = this.name.value.trim();
    put(this.body, "labels", labelsFrom(this.labels.value));
    put(input, this.training ? "jobDir" : "outputPath", this.folder.value.trim());
    put(input, "runtimeVersion", this.runtime.value.trim());
    if (!this.training) return;
    put(input, "args", argsFrom(this.args.value));
    put(input, "scaleTier", this.tier.value);
    for (const [key] of GANG) put(input, key, this.tier.value === "CUSTOM" ? this.gang[key].value.trim() : "");
  }

  /** Take the JSON as the body. Throws a sentence if it is none. */
  #takeRaw() {
    let found;
    try {
      found = JSON.parse(this.raw.value);
    } catch (error) {
      throw new Error(`This is not JSON: ${/** @type {Error} */ (error).message}`);
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
      this.view = view;
      this.fill();
    } catch (error) {
      this.node.select("json");
      replace(this.rawProblem, errorBox(error));
    }
  }

  /** The job as it is to be sent. */
  taken() {
    if (this.view === "form") this.#takeForm();
    else this.#takeRaw();
    return this.body;
  }

  /** Put the server's sentence beside its field. @param {any} error @returns {boolean} whether there is such a field */
  blame(error) {
    for (const each of Object.values(this.fields)) /** @type {HTMLElement} */ (each.lastElementChild).hidden = true;
    const [, path, sentence] = /^Field: (\S+) Error: ([^]*)$/.exec(error.message) ?? [];
    const last = path?.split(".").find((part) => part in INPUTS);
    const known = error.status === 409 ? "name" : last ? INPUTS[/** @type {keyof typeof INPUTS} */ (last)] : undefined;
    const place =
      known && this.view === "form" ? this.fields[/** @type {keyof typeof this.fields} */ (known)] : undefined;
    if (!place?.isConnected) return false;
    const problem = /** @type {HTMLElement} */ (place.lastElementChild);
    problem.textContent = sentence ?? error.message;
    problem.hidden = false;
    /** @type {HTMLElement} */ (place.querySelector("input, textarea, select")).focus();
    return true;
  }
}

/**
 * @param {import("../../routes.js").Context} ctx
 * @param {any} job
 */
export async function cloneDialog(ctx, job) {
  const { runtimes } = await get("/trainshed/v1/runtimes");
  const form = new CloneForm(job, runtimes);
  const send = async () => {
    const body = form.taken();
    try {
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
