// @ts-check
// The playground: draw a digit, bring a picture, or edit a request, and see what a version answers.

import { get } from "../api.js";
import { h, replace } from "../dom.js";
import { live } from "../live.js";
import { emptyState, field, loading, tabs } from "../parts.js";
import { path } from "../paths.js";
import { drawing } from "./playground/drawing.js";
import { editor } from "./playground/editor.js";
import { pictureInput } from "./playground/inputs.js";
import { picture } from "./playground/picture.js";
import { reading } from "./playground/reading.js";

const SERVING = new Set(["READY", "UPDATING"]);

/** @param {import("../routes.js").Context} ctx @returns {HTMLElement} */
export default function page(ctx) {
  const body = h("div", null, loading());
  const node = h(
    "div",
    { class: "page playground" },
    h("div", { class: "page-head" }, h("h1", null, "Playground")),
    body,
  );
  /** @type {{setChoices: (models: any[]) => void} | null} */
  let bench = null;
  live(
    node,
    10,
    () => get(path`/v1/projects/${ctx.project}/models`, { pageSize: 100 }),
    (answer) => {
      const models = (answer.models ?? []).filter((/** @type {any} */ model) => model.defaultVersion);
      if (!models.length) {
        bench = null;
        replace(body, nothing());
      } else if (bench) {
        bench.setChoices(models);
      } else {
        const made = workbench(ctx, models);
        bench = made;
        replace(body, made);
      }
    },
  );
  return node;
}

function nothing() {
  return emptyState({
    title: "No model answers here yet",
    text: "Deploy a version of a model, and ask it here. A folder on your machine will do:",
    command: "trainshed versions create v1 --model MNIST --origin output/export/1605475055",
  });
}

/**
 * @param {import("../routes.js").Context} ctx
 * @param {any[]} models
 */
function workbench(ctx, models) {
  const model = h("select", { class: "select", dataset: { testid: "model" } });
  const version = h("select", { class: "select", dataset: { testid: "version" } });
  const place = h("div", { class: "playground-body" }, loading());
  const element = h(
    "div",
    null,
    h(
      "div",
      { class: "playground-choice" },
      field({ label: "Model", input: model }),
      field({ label: "Version", input: version }),
    ),
    place,
  );
  const draft = { text: "", model: "" };

  const chooseModel = async (/** @type {string} */ wanted) => {
    replace(place, loading());
    const answer = await get(path`/v1/projects/${ctx.project}/models/${model.value}/versions`, { pageSize: 100 });
    const serving = (answer.versions ?? []).filter((/** @type {any} */ each) => SERVING.has(each.state));
    const standard = serving.find((/** @type {any} */ each) => each.isDefault);
    const named = serving.map((/** @type {any} */ each) => last(each.name));
    replace(
      version,
      standard ? h("option", { value: "" }, `default (${last(standard.name)})`) : null,
      named.map((/** @type {string} */ name) => h("option", { value: name }, name)),
    );
    version.value = named.includes(wanted) ? wanted : standard ? "" : (named[0] ?? "");
    version.dataset.standard = standard ? last(standard.name) : "";
    await chooseVersion();
  };

  const chooseVersion = async () => {
    if (!element.isConnected) return; // another page is shown meanwhile
    ctx.setQuery({ model: model.value, version: version.value });
    const name = version.value || version.dataset.standard;
    const details = await get(path`/trainshed/v1/projects/${ctx.project}/models/${model.value}/versions/${name}`);
    const chosen = {
      target: { project: ctx.project, model: model.value, version: version.value },
      sample: details.sample,
      signatures: details.signatures ?? {},
    };
    replace(
      place,
      ways(() => chosen, draft),
    );
  };

  element.setChoices = (/** @type {any[]} */ fresh) => {
    const names = fresh.map((each) => last(each.name));
    const before = model.value;
    if ([...model.options].map((each) => each.value).join() === names.join()) return;
    replace(
      model,
      names.map((name) => h("option", { value: name }, name)),
    );
    model.value = names.includes(before) ? before : names[0];
  };
  const guarded = (/** @type {() => Promise<void>} */ work) =>
    void work().catch((error) =>
      replace(place, emptyState({ title: "This version can't be asked", text: error.message })),
    );
  model.addEventListener("change", () => guarded(() => chooseModel("")));
  version.addEventListener("change", () => guarded(chooseVersion));
  element.setChoices(models);
  const asked = ctx.query.get("model") ?? "";
  if ([...model.options].some((/** @type {any} */ each) => each.value === asked)) model.value = asked;
  guarded(() => chooseModel(ctx.query.get("version") ?? ""));
  return element;
}

/**
 * The tabs of one version. Those about pictures come first if it takes pictures.
 * @param {() => any} chosen
 * @param {{text: string, model: string}} draft
 */
function ways(chosen, draft) {
  let refusal = "";
  try {
    pictureInput(chosen().sample, chosen().signatures);
  } catch (error) {
    refusal = /** @type {Error} */ (error).message;
  }
  const pictured = (/** @type {(reader: any) => HTMLElement} */ make) => () => {
    if (refusal) return emptyState({ title: "Not a model of pictures of digits", text: refusal });
    const reader = reading(chosen);
    return h("div", { class: "pictured" }, make(reader), reader);
  };
  return tabs(
    [
      { id: "draw", title: "Draw", show: pictured(drawing) },
      { id: "image", title: "Picture", show: pictured(picture) },
      { id: "json", title: "JSON", show: () => editor(chosen, draft) },
    ],
    refusal ? "json" : "draw",
  );
}

/** @param {string} name */
function last(name) {
  return name.slice(name.lastIndexOf("/") + 1);
}
