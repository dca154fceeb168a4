// @ts-check
// Windows in which people steer a search that runs: other bounds, a point of their own, its end.

import { post } from "../../api.js";
import { confirm, dialog, toast } from "../../dialogs.js";
import { h } from "../../dom.js";
import { button, field } from "../../parts.js";

/** @typedef {import("../search/search.js").Search} Search */
/** @typedef {{path: string, refresh: () => Promise<void>}} Steered the job's path in Trainshed's own API */

/** The buttons of a search that runs. @param {() => Search} search as it is now @param {Steered} steered */
export function steeringButtons(search, steered) {
  return [
    button("Change…", { onClick: () => change(search(), steered), testid: "search-change" }),
    button("Try values…", { onClick: () => tryValues(search(), steered), testid: "search-try" }),
    button("Finish…", { onClick: () => finish(steered), testid: "search-finish" }),
  ];
}

/** How many trials, in all and at a time. @param {Search} search @param {Steered} steered */
function change({ table }, { path, refresh }) {
  const own = table.trials.filter((trial) => trial.job === table.name).length;
  const trials = whole(table.maxTrials, Math.max(1, own), "change-trials");
  const parallel = whole(table.maxParallelTrials ?? 1, 1, "change-parallel");
  dialog({
    title: "Change the search",
    body: [
      field({ label: "Trials", input: trials, hint: "In all, with those that have ended." }),
      field({ label: "Trials at a time", input: parallel, hint: "What runs beyond a smaller number goes on." }),
    ],
    actions: [
      { text: "Cancel" },
      {
        text: "Change",
        kind: "primary",
        testid: "change-go",
        run: async () => {
          if (![trials, parallel].every((input) => input.reportValidity())) return false;
          const body = { maxTrials: trials.valueAsNumber, maxParallelTrials: parallel.valueAsNumber };
          await post(`${path}:changeSearch`, body);
          toast("The search was changed.");
          await refresh();
          return true;
        },
      },
    ],
  });
}

/** A point of the user's own, which begins as the best one. @param {Search} search @param {Steered} steered */
function tryValues(search, { path, refresh }) {
  const best = search.trials[search.best];
  const inputs = search.table.parameters.map((parameter, at) => ({
    parameter,
    input: entry(parameter, best?.values[at]),
  }));
  dialog({
    title: "Try values of your own",
    body: inputs.map(({ parameter, input }) =>
      field({ label: parameter.name, input, hint: input instanceof HTMLSelectElement ? undefined : range(parameter) }),
    ),
    actions: [
      { text: "Cancel" },
      {
        text: "Try them next",
        kind: "primary",
        testid: "try-go",
        run: async () => {
          if (!inputs.every(({ input }) => input.reportValidity())) return false;
          const values = inputs.map(({ parameter, input }) => [parameter.name, read(parameter, input.value)]);
          await post(`${path}:tryPoint`, { hyperparameters: Object.fromEntries(values) });
          toast("These values are the next trial.");
          await refresh();
          return true;
        },
      },
    ],
  });
}

/** @param {Steered} steered */
async function finish({ path, refresh }) {
  const agreed = await confirm({
    title: "Finish the search?",
    text: "All trials that run are stopped, and none starts. What they have reported stays, and the job has succeeded.",
    action: "Finish the search",
  });
  if (!agreed) return;
  await post(`${path}:finishSearch`);
  toast("The search comes to its end.");
  await refresh();
}

/** @param {number} value @param {number} least @param {string} testid */
function whole(value, least, testid) {
  const input = h("input", { type: "number", required: true, min: String(least), step: "1", dataset: { testid } });
  input.value = String(value);
  return input;
}

/** @param {Api.SearchParameter} parameter @param {Api.SearchValue | undefined} value */
function entry(parameter, value) {
  if (parameter.values.length > 0) {
    const options = parameter.values.map((text) => h("option", { value: text }, text));
    const select = h("select", null, options);
    if (value !== undefined && value !== null) select.value = String(value);
    return select;
  }
  const input = h("input", {
    type: "number",
    required: true,
    step: parameter.type === "INTEGER" ? "1" : "any",
    min: String(parameter.minimum),
    max: String(parameter.maximum),
  });
  input.value = String(value ?? parameter.minimum);
  return input;
}

/** @param {Api.SearchParameter} parameter */
function range({ minimum, maximum }) {
  return `From ${minimum} to ${maximum}.`;
}

/** @param {Api.SearchParameter} parameter @param {string} text */
function read({ type }, text) {
  return type === "CATEGORICAL" ? text : Number(text);
}
