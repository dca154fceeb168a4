// @ts-check
// The playground: draw a digit, bring a picture, or edit a request, and see what a version answers.

import { get } from "../api.js";
import { h, replace } from "../dom.js";
import { live } from "../live.js";
import { emptyState, loading } from "../parts.js";
import { lastPart, path } from "../paths.js";
import { Workbench } from "./playground/workbench.js";

/** @param {import("../routes.js").Context} ctx @returns {HTMLElement} */
export default function page(ctx) {
  const body = h("div", null, loading());
  const head = h("div", { class: "page-head" }, h("h1", null, "Playground"));
  const node = h("div", { class: "page playground" }, head, body);
  /** @type {Workbench | null} */
  let bench = null;
  const load = () => get(path`/v1/projects/${ctx.project}/models`, { pageSize: 100 });
  live(node, 10, load, (/** @type {Api.Models} */ answer) => {
    const models = (answer.models ?? []).filter((model) => model.defaultVersion);
    const names = models.map((model) => lastPart(model.name));
    if (!names.length) {
      bench = null;
      replace(body, nothing());
    } else if (bench) {
      bench.setModels(names);
    } else {
      bench = new Workbench(ctx, names);
      replace(body, bench.element);
    }
  });
  return node;
}

function nothing() {
  return emptyState({
    title: "No model answers here yet",
    text: "Deploy a version of a model, and ask it here. A folder on your machine will do:",
    command: "trainshed versions create v1 --model MNIST --origin output/export/1605475055",
  });
}
