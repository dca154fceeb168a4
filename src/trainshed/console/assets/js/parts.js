// @ts-check
// Common components of pages.

import { h, newId, replace } from "./dom.js";
import { ago, between, duration, messageOf, when } from "./format.js";
import { icon } from "./icons.js";
import { isKey } from "./lookup.js";
import { toast } from "./dialogs.js";

/** state -> [class, icon, label] @type {Record<string, [string, string, string]>} */
const STATES = {
  QUEUED: ["waiting", "clock", "Queued"],
  PREPARING: ["busy", "", "Preparing"],
  RUNNING: ["busy", "", "Running"],
  CANCELLING: ["busy", "", "Cancelling"],
  SUCCEEDED: ["good", "check", "Succeeded"],
  FAILED: ["bad", "cross", "Failed"],
  CANCELLED: ["off", "stop", "Cancelled"],
  CREATING: ["busy", "", "Creating"],
  UPDATING: ["busy", "", "Updating"],
  DELETING: ["busy", "", "Deleting"],
  READY: ["good", "check", "Ready"],
  ACTIVE: ["good", "check", "Active"],
  COMPLETED: ["good", "check", "Completed"],
};

/** The label of a state. @param {string} state */
export function stateName(state) {
  return STATES[state]?.[2] ?? words(state);
}

/** A state as a label with an icon, not by colour alone. @param {string} state @returns {HTMLElement} */
export function stateBadge(state) {
  const [look, drawing] = STATES[state] ?? ["off", "help"];
  const sign = look === "busy" ? h("span", { class: "spinner", "aria-hidden": "true" }) : icon(drawing);
  return h("span", { class: `badge badge-${look}`, dataset: { state } }, sign, stateName(state));
}

/** @typedef {{fraction: number | null, label?: string}} Share */

/**
 * A progress bar. `fraction` null: unknown progress. `.update({fraction, label})` updates it.
 * @param {Share} value
 * @returns {HTMLElement & {update: (value: Share) => void}}
 */
export function progressBar(value) {
  const fill = h("div", { class: "progress-fill" });
  const track = h(
    "div",
    { class: "progress-track", role: "progressbar", "aria-valuemin": "0", "aria-valuemax": "100" },
    fill,
  );
  const label = h("div", { class: "progress-label" });
  const element = h("div", { class: "progress" }, track, label);
  const update = (/** @type {Share} */ { fraction, label: text = "" }) => {
    const known = fraction !== null && Number.isFinite(fraction);
    const share = known ? Math.min(1, Math.max(0, fraction)) : 0;
    track.classList.toggle("progress-unknown", !known);
    fill.style.transform = known ? `scaleX(${share})` : "";
    if (known) track.setAttribute("aria-valuenow", String(Math.round(share * 100)));
    else track.removeAttribute("aria-valuenow");
    track.setAttribute("aria-label", text === "" ? "Progress" : text);
    label.textContent = text;
    label.hidden = text === "";
  };
  update(value);
  return Object.assign(element, { update });
}

/**
 * A button that copies a text, or the result of a function.
 * @param {string | (() => string)} text
 * @param {string} [title]
 * @returns {HTMLButtonElement}
 */
export function copyButton(text, title = "Copy") {
  const element = h("button", { class: "icon-button", type: "button", title, "aria-label": title }, icon("copy"));
  element.addEventListener("click", async (event) => {
    event.stopPropagation();
    await copy(typeof text === "function" ? text() : text);
    replace(element, icon("check"));
    setTimeout(() => replace(element, icon("copy")), 1500);
  });
  return element;
}

/** @param {string} text */
async function copy(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = h("textarea", { class: "off-screen", value: text }); // pages over plain HTTP from a remote server
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** Text to be copied: commands, JSON. @param {string} text @returns {HTMLElement} */
export function codeBlock(text) {
  return h(
    "div",
    { class: "code-block" },
    h("pre", { tabIndex: 0 }, h("code", null, text)),
    copyButton(text, "Copy this"),
  );
}

/** An error, with the server's message. @param {unknown} error @returns {HTMLElement} */
export function errorBox(error) {
  return h(
    "div",
    { class: "error-box", role: "alert", dataset: { testid: "error" } },
    icon("warning"),
    h("p", null, sentences(messageOf(error))),
  );
}

/** A text in which what stands between backticks is formatted as code. @param {string} text */
export function sentences(text) {
  return text.split(/`([^`]+)`/).map((part, at) => (at % 2 === 1 ? h("code", null, part) : part));
}

/**
 * The empty state of a page: what it would show, and how to create it.
 * @param {{title: string, text?: string | Node, command?: string, action?: Node}} what
 * @returns {HTMLElement}
 */
export function emptyState({ title, text, command, action }) {
  return h(
    "div",
    { class: "empty", dataset: { testid: "empty" } },
    h("h2", { class: "empty-title" }, title),
    text ? h("p", null, text) : null,
    command ? codeBlock(command) : null,
    action ?? null,
  );
}

/** Shown until the first response. @param {string} [text] @returns {HTMLElement} */
export function loading(text = "Loading…") {
  return h("div", { class: "loading", role: "status" }, h("span", { class: "spinner", "aria-hidden": "true" }), text);
}

/**
 * Tabs, by the ARIA pattern: arrow keys move between them. `show` creates the panel, each time that its tab is
 * selected.
 * @param {{id: string, title: string | Node, show: () => Node}[]} list
 * @param {string} current
 * @param {(id: string) => void} [onChange]
 * @returns {HTMLElement & {select: (id: string) => void}}
 */
export function tabs(list, current, onChange = () => {}) {
  const stem = newId("tab");
  const panel = h("div", { class: "tab-panel", role: "tabpanel", id: `${stem}-panel`, tabIndex: 0 });
  const buttons = list.map((tab) =>
    h(
      "button",
      {
        class: "tab",
        type: "button",
        role: "tab",
        id: `${stem}-${tab.id}`,
        "aria-controls": `${stem}-panel`,
        dataset: { tab: tab.id, testid: `tab-${tab.id}` },
        on: { click: () => select(tab.id, true) },
      },
      tab.title,
    ),
  );
  const bar = h("div", { class: "tab-bar", role: "tablist", on: { keydown: (e) => move(e) } }, buttons);
  const element = h("div", { class: "tabs" }, bar, panel);

  /** @param {string} id @param {boolean} told */
  function select(id, told) {
    const tab = list.find((each) => each.id === id) ?? list[0];
    buttons.forEach((button, index) => {
      const chosen = list[index] === tab;
      button.setAttribute("aria-selected", String(chosen));
      button.tabIndex = chosen ? 0 : -1;
    });
    panel.setAttribute("aria-labelledby", `${stem}-${tab.id}`);
    replace(panel, tab.show());
    if (told) onChange(tab.id);
  }

  /** @param {KeyboardEvent} event */
  function move(event) {
    const at = buttons.findIndex((each) => each === document.activeElement);
    const last = buttons.length - 1;
    const to = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at <= 0 ? last : at - 1, Home: 0, End: last };
    if (!isKey(to, event.key) || at < 0) return;
    event.preventDefault();
    const next = to[event.key];
    buttons[next].focus();
    select(list[next].id, true);
  }

  select(current, false);
  return Object.assign(element, { select: (/** @type {string} */ id) => select(id, false) });
}

/**
 * A button. It is busy while an async `onClick` runs; a toast shows its error.
 * @param {string | Node | (string | Node)[]} text
 * @param {{kind?: "primary" | "danger" | "plain", onClick?: (event: Event) => unknown, title?: string,
 *   icon?: string, testid?: string, disabled?: boolean, type?: "button" | "submit"}} [options]
 * @returns {HTMLButtonElement}
 */
export function button(
  text,
  { kind = "plain", onClick, title, icon: drawing, testid, disabled, type = "button" } = {},
) {
  const element = h(
    "button",
    { class: `button button-${kind}`, type, title, disabled },
    drawing ? icon(drawing) : null,
    text,
  );
  if (testid) element.dataset.testid = testid;
  if (onClick) element.addEventListener("click", (event) => void busyWhile(element, () => onClick(event)));
  return element;
}

/** @param {HTMLButtonElement} element @param {() => unknown} work */
export async function busyWhile(element, work) {
  if (element.getAttribute("aria-busy") === "true") return;
  element.setAttribute("aria-busy", "true");
  try {
    await work();
  } catch (error) {
    toast(messageOf(error), "error");
  } finally {
    element.removeAttribute("aria-busy");
  }
}

/**
 * An input with a label and a hint.
 * @param {{label: string, input: HTMLElement, hint?: string | Node}} what
 * @returns {HTMLElement}
 */
export function field({ label, input, hint }) {
  if (!input.id) input.id = newId("field");
  const words = hint ? h("p", { class: "field-hint", id: `${input.id}-hint` }, hint) : null;
  if (words) input.setAttribute("aria-describedby", words.id);
  return h("div", { class: "field" }, h("label", { class: "field-label", for: input.id }, label), input, words);
}

/** @param {string} href @param {string | Node} text @param {string} [look] @returns {HTMLAnchorElement} */
export function link(href, text, look = "link") {
  return h("a", { class: look, href }, text);
}

/**
 * A duration, live without an end.
 * @param {string} start
 * @param {string | null} [end]
 * @returns {HTMLElement}
 */
export function elapsed(start, end) {
  const text = duration(between(start, end));
  return h("span", { class: "nowrap", dataset: end ? {} : { since: start } }, text);
}

/** A relative time, kept up to date, with the full time as its title. @param {string} [iso] */
export function timeAgo(iso) {
  return h("time", { class: "time", dateTime: iso ?? "", title: when(iso), dataset: { ago: iso ?? "" } }, ago(iso));
}

/**
 * Labels as small tags.
 * @param {Record<string, string>} [labels]
 * @param {(key: string, value: string) => void} [onPick]
 */
export function labelTags(labels = {}, onPick) {
  const entries = Object.entries(labels).sort(([a], [b]) => a.localeCompare(b));
  return h(
    "span",
    { class: "tags" },
    entries.map(([key, value]) => {
      const text = value === "" ? key : `${key}=${value}`;
      if (!onPick) return h("span", { class: "tag" }, text);
      const pick = (/** @type {Event} */ event) => {
        event.stopPropagation();
        onPick(key, value);
      };
      return h("button", { class: "tag", type: "button", title: `Show only ${text}`, on: { click: pick } }, text);
    }),
  );
}

/** @param {string} state */
function words(state) {
  return state === "" ? "Unknown" : state[0].toUpperCase() + state.slice(1).toLowerCase().replaceAll("_", " ");
}

setInterval(() => {
  if (document.visibilityState === "hidden") return;
  for (const element of /** @type {NodeListOf<HTMLElement>} */ (
    document.querySelectorAll("[data-ago], [data-since]")
  )) {
    const { ago: time, since } = element.dataset;
    const text = since ? duration(between(since)) : ago(time);
    if (element.textContent !== text) element.textContent = text;
  }
}, 1000);
