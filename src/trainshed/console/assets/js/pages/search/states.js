// @ts-check
// How a trial stands, in words and as a badge.

import { h } from "../../dom.js";
import { icon } from "../../icons.js";

/** @type {Record<import("./search.js").Standing, [look: string, icon: string, text: string]>} */
const LOOKS = {
  waiting: ["waiting", "clock", "Waiting"],
  running: ["busy", "", "Running"],
  done: ["good", "check", "Completed"],
  stopped: ["off", "stop", "Stopped early"],
  lost: ["bad", "cross", "No value"],
};
/** @type {Record<string, [look: string, icon: string, text: string]>} more exact than the standing */
const STATES = {
  FAILED: ["bad", "cross", "Failed"],
  CANCELLED: ["off", "stop", "Cancelled"],
  PREPARING: ["busy", "", "Preparing"],
  CANCELLING: ["busy", "", "Stopping"],
  STOPPING: ["busy", "", "Stopping"],
};

/** @param {import("./search.js").Search} search @param {number} index */
function look(search, index) {
  const { state } = search.trials[index];
  return STATES[state] ?? LOOKS[search.standings[index]];
}

/** @param {import("./search.js").Search} search @param {number} index */
export function trialBadgeText(search, index) {
  return look(search, index)[2];
}

/** @param {import("./search.js").Search} search @param {number} index */
export function trialBadge(search, index) {
  const [kind, drawing, text] = look(search, index);
  const sign = kind === "busy" ? h("span", { class: "spinner", "aria-hidden": "true" }) : icon(drawing);
  return h("span", { class: `badge badge-${kind}` }, sign, text);
}
