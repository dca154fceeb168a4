// @ts-check
// Windows above the page, and short messages at its edge.

import { h, newId, replace } from "./dom.js";
import { messageOf } from "./format.js";
import { icon } from "./icons.js";

const TOAST_MS = 6000;

/** @typedef {{text: string, kind?: "primary" | "danger" | "plain", run?: () => unknown, testid?: string}} Action */

/** @typedef {{element: HTMLDialogElement, close: () => void, closed: Promise<void>}} Window */

/**
 * Show a window. An action that returns false or throws keeps it open, and its error is shown; any other action closes
 * it. Escape closes it too.
 * @param {{title: string, body: Dom.Child, actions?: Action[], wide?: boolean}} what
 * @returns {Window}
 */
export function dialog({ title, body, actions = [{ text: "Close" }], wide = false }) {
  const problem = h("p", { class: "dialog-problem", role: "alert", hidden: true });
  const close = () => element.close();
  const buttons = actions.map((action) => actionButton(action, problem, close));
  const heading = h("h2", { class: "dialog-title", id: newId("dialog") }, title);
  const shut = h(
    "button",
    { class: "icon-button", type: "button", "aria-label": "Close", on: { click: close } },
    icon("close"),
  );
  const element = h(
    "dialog",
    { class: wide ? "dialog dialog-wide" : "dialog", "aria-labelledby": heading.id, dataset: { testid: "dialog" } },
    h("div", { class: "dialog-head" }, heading, shut),
    h("div", { class: "dialog-body" }, typeof body === "string" ? h("p", null, body) : body, problem),
    buttons.length > 0 ? h("div", { class: "dialog-foot" }, buttons) : null,
  );
  // The browser restores the focus when the window closes. The event comes later: another element may have it by then.
  /** @type {Promise<void>} */
  const closed = new Promise((resolve) => {
    element.addEventListener("close", () => {
      element.remove();
      resolve();
    });
  });
  element.addEventListener("click", (event) => {
    if (event.target === element) close(); // the dimmed page around it
  });
  element.addEventListener("keydown", (event) => {
    const typing = /** @type {HTMLElement} */ (event.target).matches("input:not([type=checkbox], [type=radio])");
    if (event.key === "Enter" && typing) buttons.at(-1)?.click(); // the last action is what the window is for
  });
  document.body.append(element);
  element.showModal();
  /** @type {HTMLElement | null} */
  const field = element.querySelector("[autofocus], input, textarea, select");
  (field ?? buttons.at(-1) ?? shut).focus();
  return { element, close, closed };
}

/** @param {Action} action @param {HTMLElement} problem @param {() => void} close */
function actionButton(action, problem, close) {
  const element = h("button", { class: `button button-${action.kind ?? "plain"}`, type: "button" }, action.text);
  if (action.testid) element.dataset.testid = action.testid;
  element.addEventListener("click", async () => {
    if (element.getAttribute("aria-busy") === "true") return;
    element.setAttribute("aria-busy", "true");
    problem.hidden = true;
    try {
      if ((await action.run?.()) !== false) close();
    } catch (error) {
      problem.textContent = messageOf(error);
      problem.hidden = false;
    } finally {
      element.removeAttribute("aria-busy");
    }
  });
  return element;
}

/**
 * Ask for confirmation.
 * @param {{title: string, text: string | Node, action: string, danger?: boolean}} what
 * @returns {Promise<boolean>}
 */
export async function confirm({ title, text, action, danger = false }) {
  let agreed = false;
  const window = dialog({
    title,
    body: typeof text === "string" ? h("p", null, text) : text,
    actions: [
      { text: "Cancel", testid: "confirm-no" },
      { text: action, kind: danger ? "danger" : "primary", testid: "confirm-yes", run: () => void (agreed = true) },
    ],
  });
  await window.closed;
  return agreed;
}

/** @type {HTMLElement | null} */
let corner = null;

/**
 * A message that disappears after a while; errors stay until they are closed.
 * @param {string} text
 * @param {"info" | "good" | "error"} [kind]
 */
export function toast(text, kind = "info") {
  if (corner === null) {
    corner = h("div", {
      class: "toasts",
      role: "region",
      "aria-label": "Messages",
      "aria-live": "polite",
      popover: "manual",
    });
    document.body.append(corner);
  }
  const region = corner;
  const drop = () => {
    message.remove();
    if (region.childElementCount === 0) region.hidePopover();
  };
  const shut = h(
    "button",
    { class: "icon-button", type: "button", "aria-label": "Close this message", on: { click: drop } },
    icon("close"),
  );
  const message = h(
    "div",
    { class: `toast toast-${kind}`, role: kind === "error" ? "alert" : "status", dataset: { testid: "toast" } },
    icon(kind === "error" ? "warning" : "check"),
    h("p", null, text),
    shut,
  );
  region.append(message);
  region.hidePopover(); // shown again it is above a dialog that was opened since
  region.showPopover();
  if (kind !== "error") setTimeout(drop, TOAST_MS);
}

/** Change what a dialog shows. @param {Window} window @param {...Dom.Child} body */
export function setBody(window, ...body) {
  const place = window.element.querySelector(".dialog-body");
  if (place) replace(place, ...body);
}
