// @ts-check
// Rollouts of a model: the stage of the one that is running, what it has measured, and how the last ones ended.

import { post } from "../../api.js";
import { confirm, toast } from "../../dialogs.js";
import { h } from "../../dom.js";
import { number, when } from "../../format.js";
import { button } from "../../parts.js";
import { path } from "../../paths.js";

/** @typedef {import("../model.js").Here} Here */

const SHOWN = 3;
/** @type {Record<Api.Rollout["state"], string>} */
const ENDS = {
  RUNNING: "is rolled out",
  PROMOTED: "became the default",
  ROLLED_BACK: "rolled back",
  STOPPED: "stopped",
};

/**
 * The section of a model's page; null for a model that never had a rollout.
 * @param {Here} here @param {Api.Rollout[]} rollouts
 */
export function rolloutsCard(here, rollouts) {
  if (!rollouts.length) return null;
  const shown = rollouts.slice(0, SHOWN);
  return h(
    "section",
    { class: "card", "aria-label": "Rollouts", dataset: { testid: "rollouts" } },
    h("div", { class: "card-head" }, h("h2", null, "Rollouts"), shown[0].measured ? actions(here, shown[0]) : null),
    shown.map((each) => (each.measured ? running(each, each.measured) : ended(each))),
  );
}

/** @param {Here} here @param {Api.Rollout} rollout */
function actions(here, rollout) {
  const send = async (/** @type {"stop" | "promote"} */ verb) => {
    await post(`/trainshed${path`/v1/projects/${here.project}/models/${here.model}/rollouts/${rollout.id}`}:${verb}`);
    toast(verb === "stop" ? `${rollout.baseline} answers all requests.` : `${rollout.version} is the default.`, "good");
    await here.refresh();
  };
  const promote = async () => {
    const text = `The stages that are left are skipped: ${rollout.version} gets all requests from now on.`;
    if (await confirm({ title: `Make ${rollout.version} the default now?`, text, action: "Make default" }))
      await send("promote");
  };
  return h(
    "div",
    { class: "page-actions" },
    button("Make default now", { onClick: promote, testid: "rollout-promote" }),
    button("Stop", { kind: "danger", onClick: () => send("stop"), testid: "rollout-stop" }),
  );
}

/** @param {Api.Rollout} rollout @param {NonNullable<Api.Rollout["measured"]>} measured */
function running(rollout, measured) {
  const stages = rollout.stages.map((stage, at) => {
    const name = stage.kind === "SHADOW" ? `shadow ${stage.percent} %` : `${stage.percent} %`;
    return at === rollout.stage ? h("b", { "aria-current": "step" }, name) : h("span", { class: "muted" }, name);
  });
  const limits = rollout.abortIf.length ? `Rolled back if ${rollout.abortIf.join(", or ")}.` : "No limits are set.";
  return h(
    "div",
    { class: "stack", dataset: { testid: "rollout-running" } },
    h(
      "p",
      null,
      h("b", null, rollout.version),
      " is rolled out: ",
      stages.flatMap((each, at) => (at ? [" → ", each] : [each])),
    ),
    h("p", { role: "status" }, rollout.waitsFor),
    h(
      "table",
      { class: "table" },
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          ["Version", "Requests", "Failed", "p50, ms", "p99, ms", "Changed"].map((name) => h("th", null, name)),
        ),
      ),
      h("tbody", null, row(rollout.version, measured.version), row(rollout.baseline, measured.baseline)),
    ),
    h("p", { class: "muted small" }, `${limits} ${rollout.reason}`),
  );
}

/** @param {string} name @param {Api.StageMeasurement} measured */
function row(name, measured) {
  const changed = measured.compared ? `${number(measured.changed)} of ${number(measured.compared)}` : "";
  const cells = [
    name,
    number(measured.requests),
    number(measured.errors),
    number(measured.p50Ms),
    number(measured.p99Ms),
    changed,
  ];
  return h(
    "tr",
    null,
    cells.map((each) => h("td", null, each)),
  );
}

/** @param {Api.Rollout} rollout */
function ended(rollout) {
  return h(
    "p",
    { dataset: { testid: `rollout-${rollout.id}` } },
    h("b", null, rollout.version),
    ` ${ENDS[rollout.state]} ${when(rollout.endTime ?? rollout.createTime)}. `,
    h("span", { class: rollout.state === "ROLLED_BACK" ? "bad" : "muted" }, rollout.reason),
  );
}
