// @ts-check
// The logs of a job: filters, counts and actions. The list itself is loglist.js.

import { ApiError, get } from "../../api.js";
import { toast } from "../../dialogs.js";
import { h, replace } from "../../dom.js";
import { icon } from "../../icons.js";
import { button, copyButton, emptyState, errorBox, loading } from "../../parts.js";
import { saveText } from "./download.js";
import { LogFeed } from "./logfeed.js";
import { LogList, lineText } from "./loglist.js";

const SEVERITIES = [
  ["", "Every severity"],
  ["INFO", "Info and worse"],
  ["WARNING", "Warnings and worse"],
  ["ERROR", "Errors and worse"],
];
const TYPING_MS = 250;
const LEAST = 360; // pixels of the list, however little room there is
const BELOW = 20;
const FARTHEST = 300; // pages that are read to find the line that a link names

/** @typedef {import("./place.js").Place} Place */

class LogsTab {
  /** @param {string} path of the job @param {Place} place */
  constructor(path, place) {
    this.path = `${path}/logs`;
    this.place = place;
    this.typing = 0;
    this.seen = 0; // the number behind the last line that was there when the following ended
    /** @type {LogFeed | null} */
    this.feed = null;
    this.trial = h("span", { class: "log-trial" });
    this.list = new LogList({
      onFollow: () => this.#followChanged(),
      linkTo: (line) => place.link({ tab: "logs", line: line.insertId }),
    });
    this.replica = h("select", { "aria-label": "Replica", dataset: { testid: "log-replica" } });
    this.severity = h(
      "select",
      { "aria-label": "Severity", dataset: { testid: "log-severity" } },
      SEVERITIES.map(([value, text]) => h("option", { value }, text)),
    );
    this.search = h("input", {
      type: "search",
      placeholder: "Find in the log",
      "aria-label": "Find in the log",
      dataset: { testid: "log-search" },
    });
    this.followButton = button("Follow", {
      onClick: () => this.#setFollow(!this.list.following),
      testid: "log-follow",
    });
    this.count = h("span", { class: "log-count", role: "status", dataset: { testid: "log-count" } });
    this.fresh = h("button", { class: "log-fresh", type: "button", hidden: true, dataset: { testid: "log-fresh" } });
    this.trouble = h("div", { class: "log-trouble" });
    this.node = this.#build();
    this.fitting = () => this.fit();
    addEventListener("resize", this.fitting);
    requestAnimationFrame(this.fitting);
  }

  #build() {
    this.severity.value = this.place.get("severity");
    this.search.value = this.place.get("search");
    this.#showReplicas([]);
    for (const select of [this.replica, this.severity]) select.addEventListener("change", () => this.restart());
    this.search.addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = window.setTimeout(() => this.restart(), TYPING_MS);
    });
    this.fresh.addEventListener("click", () => {
      this.#setFollow(true);
      this.list.node.focus({ preventScroll: true });
    });
    const copy = copyButton(() => this.list.text(), "Copy the lines that are loaded");
    const save = button(h("span", { class: "wide-only" }, "Download"), {
      icon: "download",
      title: "Download all lines that the filters let through",
      onClick: () => this.#download(),
      testid: "log-download",
    });
    save.setAttribute("aria-label", "Download");
    return h(
      "section",
      { class: "logs", "aria-label": "Logs" },
      h(
        "div",
        { class: "log-bar" },
        h("div", { class: "log-search" }, icon("search"), this.search),
        this.trial,
        this.replica,
        this.severity,
        this.followButton,
        h("span", { class: "log-bar-space" }),
        this.count,
        copy,
        save,
      ),
      this.trouble,
      h("div", { class: "log-frame" }, this.list.node, this.fresh),
    );
  }

  /** The feed of the current filters. */
  restart() {
    clearTimeout(this.typing);
    this.feed?.stop();
    const filters = this.#filters();
    this.place.set(filters);
    this.#showTrial();
    const feed = new LogFeed(
      (params, signal) => get(this.path, { ...filters, ...params }, { signal }),
      () => this.#changed(feed),
    );
    feed.following = this.list.following;
    this.feed = feed;
    this.seen = 0;
    this.list.show(feed, filters.search);
    void feed.start();
    this.#changed(feed);
  }

  #filters() {
    return {
      replica: this.replica.value,
      severity: this.severity.value,
      search: this.search.value,
      trial: this.place.get("trial"),
    };
  }

  /** The trial of a tuning job that the log is limited to, if it is. */
  #showTrial() {
    const trial = this.place.get("trial");
    const all = () => {
      this.place.set({ trial: "" });
      this.restart();
    };
    const words = `Show all trials, not only ${trial}`;
    const tag = h("button", { class: "tag tag-filter", type: "button", "aria-label": words, on: { click: all } });
    tag.append(`Trial ${trial}`, icon("close"));
    replace(this.trial, trial ? tag : null);
  }

  /** As tall as the window allows, so that there is one scroll bar. */
  fit() {
    if (!this.node.isConnected) return;
    const top = this.list.node.getBoundingClientRect().top + scrollY;
    const height = `${Math.max(LEAST, innerHeight - top - BELOW)}px`;
    if (this.list.node.style.height !== height) this.list.node.style.height = height;
  }

  leave() {
    removeEventListener("resize", this.fitting);
    clearTimeout(this.typing);
    this.feed?.stop();
  }

  /** Show the line of a link, even a far one. @param {string} id */
  async find(id) {
    this.#setFollow(false);
    this.restart();
    const feed = /** @type {LogFeed} */ (this.feed);
    while (!feed.loaded && !feed.stopping.signal.aborted) await new Promise((resolve) => setTimeout(resolve, 30));
    for (let page = 0; page < FARTHEST && this.feed === feed; page += 1) {
      const at = feed.lines.findIndex((line) => line.insertId === id);
      if (at >= 0) return this.list.reveal(feed.first + at);
      if (feed.before === "" || (await feed.earlier()) === undefined) break;
    }
    return toast("The line that the link names is not among those that the filters let through.", "error");
  }

  /** @param {LogFeed} feed */
  #changed(feed) {
    if (feed !== this.feed) return;
    this.#showReplicas(feed.replicas);
    this.#showCount(feed);
    this.list.say(this.#words(feed));
    const away = feed.trouble instanceof ApiError && feed.trouble.status === 0;
    replace(this.trouble, feed.trouble && !away ? errorBox(feed.trouble) : null);
    if (this.list.following) this.seen = feed.end;
    else if (this.seen === 0) this.seen = feed.end;
    this.#showFresh(feed);
    this.list.refresh();
  }

  /** @param {LogFeed} feed */
  #words(feed) {
    if (feed.lines.length > 0) return null;
    if (!feed.loaded) return feed.trouble ? null : loading("Reading the log…");
    const filtered = Object.values(this.#filters()).some(Boolean);
    if (filtered)
      return emptyState({ title: "No line is like that", text: "Change the filters above to see other lines." });
    return emptyState({ title: "No lines yet", text: "What the job prints appears here while it runs." });
  }

  /** @param {LogFeed} feed */
  #showCount(feed) {
    const more = feed.before === "" ? "" : "+";
    const count = feed.lines.length;
    const state = feed.trouble ? " · trying again" : feed.ended ? "" : feed.loaded ? " · live" : "";
    this.count.textContent = `${count.toLocaleString()}${more} ${count === 1 && !more ? "line" : "lines"}${state}`;
    this.count.dataset.loaded = String(feed.loaded);
    this.count.dataset.ended = String(feed.ended);
  }

  /** @param {LogFeed} feed */
  #showFresh(feed) {
    const count = feed.end - this.seen;
    this.fresh.hidden = this.list.following || (count <= 0 && !feed.held);
    const text = count === 1 ? "1 new line" : `${count.toLocaleString()}${feed.held ? "+" : ""} new lines`;
    replace(this.fresh, icon("down"), feed.held && count <= 0 ? "To the newest lines" : text);
    this.followButton.setAttribute("aria-pressed", String(this.list.following));
  }

  #followChanged() {
    if (this.feed?.held && this.list.following) this.restart();
    if (this.feed) {
      this.seen = this.feed.end;
      this.#showFresh(this.feed);
    }
  }

  /** @param {boolean} following */
  #setFollow(following) {
    this.list.follow(following);
    this.#followChanged();
  }

  /** @param {string[]} names */
  #showReplicas(names) {
    const chosen = this.replica.value || this.place.get("replica");
    const wanted = [...new Set([...names, ...(chosen ? [chosen] : [])])];
    const shown = [...this.replica.options].slice(1).map((option) => option.value);
    if (this.replica.options.length > 0 && shown.join("\n") === wanted.join("\n")) return;
    const chosenNow = this.replica.options.length > 0 ? this.replica.value : chosen;
    replace(
      this.replica,
      h("option", { value: "" }, "All logs"),
      wanted.map((name) => h("option", { value: name }, name)),
    );
    this.replica.value = chosenNow;
  }

  /** All lines that match the filters, as a text file. */
  async #download() {
    const filters = this.#filters();
    /** @type {string[]} */
    const parts = [];
    let before = "end";
    while (before !== "") {
      /** @type {Api.LogPage} */
      const page = await get(this.path, { ...filters, pageSize: 1000, before });
      parts.push(page.entries.map(lineText).join(""));
      before = page.before;
    }
    saveText(`${this.place.name}.log`, parts.reverse().join(""));
  }
}

/**
 * @param {string} path of the job in Trainshed's own API
 * @param {Place} place
 * @returns {HTMLElement & {leave: () => void, update: () => void}}
 */
export function logsTab(path, place) {
  const tab = new LogsTab(path, place);
  const line = place.get("line");
  if (line) void tab.find(line);
  else tab.restart();
  return Object.assign(tab.node, { leave: () => tab.leave(), update: () => tab.fit() });
}
