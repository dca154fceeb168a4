// @ts-check
// The replicas of a job that hang, and where they wait.

import { h } from "../../dom.js";
import { when } from "../../format.js";
import { icon } from "../../icons.js";
import { codeBlock, sentences } from "../../parts.js";
import { plain } from "./logtext.js";

/** @param {Api.Hang} hang */
function hangBox(hang) {
  return h(
    "section",
    { class: "job-failure", "aria-label": `${hang.replica} hangs`, dataset: { testid: "job-hang" } },
    h(
      "div",
      { class: "job-failure-head" },
      icon("warning"),
      h("h2", null, hang.kind === "stopped" ? "A replica is stopped" : "A replica hangs"),
      h("span", { class: "tag" }, hang.replica),
    ),
    h("p", { class: "job-failure-summary" }, plain(hang.message)),
    h("div", { class: "job-failure-lines" }, codeBlock(plain(hang.stack))),
    h("p", { class: "job-failure-remedy" }, h("strong", null, "What to do: "), sentences(hang.remedy)),
    h("p", { class: "job-failure-more" }, `Noticed ${when(hang.time)}.`),
  );
}

/**
 * @param {Api.Hang[]} hangs
 * @returns {HTMLElement[]} one for each replica that hangs now
 */
export function hangBoxes(hangs) {
  return hangs.filter((hang) => hang.endTime === null).map(hangBox);
}
