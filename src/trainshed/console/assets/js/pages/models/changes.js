// @ts-check
// Changes of a model: versions, the default, splits, rollbacks. Errors of the server are shown unchanged.

import { del, get, post } from "../../api.js";
import { confirm, dialog, toast } from "../../dialogs.js";
import { h, replace } from "../../dom.js";
import { when } from "../../format.js";
import { errorBox, field, loading } from "../../parts.js";
import { path } from "../../paths.js";

/** @typedef {import("../model.js").Here} Here */
/** @typedef {import("../model.js").Found} Found */

/** @param {Here} here */
const ofModel = (here) => path`/v1/projects/${here.project}/models/${here.model}`;

/** @param {Here} here @param {string} version */
export async function setDefault(here, version) {
  await post(`${ofModel(here)}/versions/${encodeURIComponent(version)}:setDefault`);
  toast(`${version} answers from now on.`, "good");
  await here.refresh();
}

/** @param {Here} here @param {string} version */
export async function deleteVersion(here, version) {
  const sure = await confirm({
    title: `Delete version ${version}?`,
    text: `Its copy of the model goes; what lies in the bucket stays. Requests that name ${version} fail from then on.`,
    action: "Delete",
    danger: true,
  });
  if (!sure) return;
  await del(`${ofModel(here)}/versions/${encodeURIComponent(version)}`);
  await here.refresh();
}

/** @param {Here} here @param {Found} found */
export async function deleteModel(here, found) {
  const count = found.versions.length;
  const text = count
    ? `It has ${count} version${count === 1 ? "" : "s"}. Delete these first.`
    : "Its name is free then.";
  if (!(await confirm({ title: `Delete model ${here.model}?`, text, action: "Delete", danger: true }))) return;
  await del(ofModel(here));
  location.hash = path`#/p/${here.project}/models`;
}

/** @param {Here} here @param {Found} found */
export async function rollBack(here, found) {
  const split = Object.keys(found.split).length > 0;
  const text = split
    ? "The split ends, and the default version answers all requests again."
    : `Version ${found.previousVersion} becomes the default again.`;
  if (!(await confirm({ title: "Roll back?", text, action: "Roll back" }))) return;
  await post(`/trainshed${ofModel(here)}:rollback`);
  toast("Rolled back.", "good");
  await here.refresh();
}

/** @param {Here} here @param {Found} found */
export async function splitTraffic(here, found) {
  const ready = found.versions.filter((each) => ["READY", "UPDATING"].includes(each.version.state));
  const shares = ready.map(
    (each) => found.split[each.id] ?? (Object.keys(found.split).length === 0 && each.version.isDefault ? 100 : 0),
  );
  const sum = h("p", { class: "split-sum", role: "status", dataset: { testid: "split-sum" } });
  const changed = (/** @type {number} */ at) => {
    if (rows.length === 2) rows[1 - at].set(100 - rows[at].share()); // two versions share what there is
    tell();
  };
  const rows = ready.map((each, at) => shareRow(each.id, shares[at], () => changed(at)));
  const tell = () => {
    const total = rows.reduce((all, row) => all + row.share(), 0);
    sum.textContent = total === 100 ? "100 %: every request has a version." : `${total} %: the shares must make 100.`;
    sum.classList.toggle("bad", total !== 100);
  };
  tell();
  const send = async (/** @type {Record<string, number>} */ weights) => {
    await post(`/trainshed${ofModel(here)}:split`, { weights });
    await here.refresh();
  };
  dialog({
    title: "Split traffic",
    body: [
      h(
        "p",
        { class: "muted" },
        "Requests that name no version are spread by these shares. A request that names one always gets it.",
      ),
      h(
        "div",
        { class: "split-rows" },
        rows.map((row) => row.element),
      ),
      sum,
    ],
    actions: [
      { text: "Cancel" },
      ...(Object.keys(found.split).length ? [{ text: "End the split", run: () => send({}), testid: "split-end" }] : []),
      {
        text: "Split",
        kind: "primary",
        testid: "split-go",
        run: () => send(Object.fromEntries(rows.filter((row) => row.share() > 0).map((row) => [row.id, row.share()]))),
      },
    ],
  });
}

/** @param {string} id @param {number} share @param {() => void} onChange */
function shareRow(id, share, onChange) {
  const props = { min: "0", max: "100", step: "1", value: String(share) };
  const slider = h("input", { ...props, type: "range", "aria-label": `Share of ${id}` });
  const box = h("input", {
    ...props,
    type: "number",
    class: "input input-small",
    "aria-label": `Share of ${id} in per cent`,
    dataset: { testid: `share-${id}` },
  });
  const follow = (/** @type {HTMLInputElement} */ from, /** @type {HTMLInputElement} */ to) => () => {
    to.value = from.value;
    onChange();
  };
  slider.addEventListener("input", follow(slider, box));
  box.addEventListener("input", follow(box, slider));
  return {
    id,
    element: h("div", { class: "split-row" }, h("b", null, id), slider, box, "%"),
    share: () => Math.round(Number(box.value)) || 0,
    set: (/** @type {number} */ value) => (box.value = slider.value = String(Math.min(100, Math.max(0, value)))),
  };
}

/** @param {Here} here @param {Found} found */
export async function createVersion(here, found) {
  const taken = new Set(found.versions.map((each) => each.id));
  let next = taken.size + 1;
  while (taken.has(`v${next}`)) next += 1;
  const name = h("input", {
    class: "input",
    type: "text",
    value: `v${next}`,
    autocomplete: "off",
    spellcheck: false,
    dataset: { testid: "version-new" },
  });
  const folder = h("input", {
    class: "input",
    type: "text",
    placeholder: "gs://BUCKET/JOB/export/Servo/TIMESTAMP",
    autocomplete: "off",
    spellcheck: false,
    dataset: { testid: "version-origin" },
  });
  const runtime = h("select", { class: "select" }, h("option", { value: "" }, "the newest one"));
  const description = h("input", { class: "input", type: "text", autocomplete: "off" });
  const sleeps = h("input", { type: "checkbox" });
  const container = containerFields();
  void fillRuntimes(runtime);
  const pick = (/** @type {Api.Export} */ chosen) => {
    folder.value = chosen.uri;
    if ([...runtime.options].some((each) => each.value === chosen.runtime)) runtime.value = chosen.runtime;
  };
  const run = async () => {
    const body = {
      name: name.value.trim(),
      ...(folder.value.trim() && { deploymentUri: folder.value.trim() }),
      ...(runtime.value && { runtimeVersion: runtime.value }),
      ...container.body(),
      ...(description.value && { description: description.value }),
      ...(sleeps.checked && { autoScaling: { minNodes: 0 } }),
    };
    await post(`${ofModel(here)}/versions`, body);
    await here.refresh();
  };
  dialog({
    title: `Create a version of ${here.model}`,
    body: [
      field({ label: "Name", input: name }),
      exportsOf(here.project, pick),
      field({
        label: "Folder with the exported model",
        input: folder,
        hint: "A SavedModel, a Keras file, model.joblib, model.pkl or model.bst. It is copied.",
      }),
      field({ label: "Runtime", input: runtime, hint: "Take the one that the model was trained with." }),
      container.element,
      field({ label: "Description", input: description }),
      h(
        "label",
        { class: "check" },
        sleeps,
        " Let it sleep when nobody asks; the next request waits until it is awake",
      ),
    ],
    actions: [{ text: "Cancel" }, { text: "Create", kind: "primary", run, testid: "version-go" }],
  });
}

/** A custom container: image, port and routes. Empty fields are not sent. */
function containerFields() {
  const input = (/** @type {string} */ placeholder, /** @type {string} */ testid) =>
    h("input", {
      class: "input",
      type: "text",
      placeholder,
      autocomplete: "off",
      spellcheck: false,
      dataset: { testid },
    });
  const image = input("predictor:1.0", "version-image");
  const port = input("8080", "version-port");
  const predict = input("/v1/models/MODEL/versions/VERSION:predict", "version-predict");
  const health = input("/v1/models/MODEL/versions/VERSION", "version-health");
  return {
    element: h(
      "details",
      { dataset: { testid: "version-container" } },
      h("summary", null, "A container of your own"),
      field({ label: "Image", input: image, hint: "With an HTTP server in it. No folder and no runtime are needed." }),
      field({ label: "Port", input: port }),
      field({ label: "Path for predictions", input: predict }),
      field({ label: "Path for health checks", input: health }),
    ),
    body: () => {
      const ports = port.value.trim() && { ports: [{ containerPort: port.value.trim() }] };
      const routes = {
        ...(predict.value.trim() && { predict: predict.value.trim() }),
        ...(health.value.trim() && { health: health.value.trim() }),
      };
      return {
        ...(image.value.trim() && { container: { image: image.value.trim(), ...ports } }),
        ...(Object.keys(routes).length && { routes }),
      };
    },
  };
}

/** @param {HTMLSelectElement} select */
async function fillRuntimes(select) {
  /** @type {Api.Runtimes} */
  const { runtimes } = await get("/trainshed/v1/runtimes");
  select.append(
    ...runtimes
      .map((each) => each.name)
      .filter((each) => /^[2-9]/.test(each))
      .map((each) => h("option", { value: each }, each)),
  );
}

/**
 * Two lists: the jobs that succeeded, and the exports of the selected one.
 * @param {string} project @param {(found: Api.Export) => void} onPick
 */
function exportsOf(project, onPick) {
  const first = h("option", { value: "" }, "choose a job…");
  const jobs = h("select", { class: "select", dataset: { testid: "export-job" } }, first);
  const found = h("div", { class: "exports", dataset: { testid: "exports" } });
  void get(path`/trainshed/v1/projects/${project}/jobs`, { state: "SUCCEEDED", kind: "training", pageSize: 100 }).then(
    (/** @type {Api.JobTable} */ answer) => {
      jobs.append(...answer.jobs.map((job) => h("option", { value: job.jobId }, `${job.jobId}, ${when(job.endTime)}`)));
      if (!answer.jobs.length) first.textContent = "no job has succeeded yet";
    },
  );
  const list = async () => {
    if (!jobs.value) return replace(found);
    replace(found, loading("Looking for exports…"));
    /** @type {Api.Exports} */
    const { exports } = await get(path`/trainshed/v1/projects/${project}/jobs/${jobs.value}/exports`);
    if (!exports.length)
      return replace(found, h("p", { class: "muted" }, "This job's folder holds no model that can be served."));
    replace(
      found,
      exports.map((each, at) => {
        const pick = h("input", {
          type: "radio",
          name: "export",
          checked: at === 0,
          on: { change: () => onPick(each) },
        });
        return h(
          "label",
          { class: "check" },
          pick,
          " ",
          h("code", null, each.uri),
          h("span", { class: "muted small" }, ` ${each.framework} ${when(each.time)}`),
        );
      }),
    );
    onPick(exports[0]);
  };
  jobs.addEventListener("change", () => void list().catch((error) => replace(found, errorBox(error))));
  return [field({ label: "From a job's export", input: jobs }), found];
}
