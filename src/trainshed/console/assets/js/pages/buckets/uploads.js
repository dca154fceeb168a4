// @ts-check
// Uploads: several files at a time, each with a progress bar and a cancel button.

import { putFile } from "../../api.js";
import { h } from "../../dom.js";
import { bytes, messageOf } from "../../format.js";
import { icon } from "../../icons.js";
import { button, progressBar } from "../../parts.js";

const AT_ONCE = 3;
const SHOWN = 200; // rows in the list; more wait unseen

/** @typedef {{file: File, name: string}} Wanted a file, and the name below the folder that it gets */

/**
 * All dropped files, including those in folders, with their paths.
 * @param {DataTransfer} data
 * @returns {Promise<Wanted[]>}
 */
export async function dropped(data) {
  // Entries must be read before the first await: the browser drops them then.
  const entries = [...data.items].map((item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
  if (!entries.length) return [...data.files].map((file) => ({ file, name: file.name }));
  const found = await Promise.all(entries.map((entry) => walk(entry, "")));
  return found.flat();
}

/** @param {FileSystemEntry} entry @param {string} above @returns {Promise<Wanted[]>} */
async function walk(entry, above) {
  const name = above + entry.name;
  if (entry.isFile) {
    /** @type {File} */
    const file = await new Promise((resolve, reject) =>
      /** @type {FileSystemFileEntry} */ (entry).file(resolve, reject),
    );
    return [{ file, name }];
  }
  const reader = /** @type {FileSystemDirectoryEntry} */ (entry).createReader();
  const found = [];
  for (;;) {
    /** @type {FileSystemEntry[]} */
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) return found;
    for (const each of some) found.push(...(await walk(each, `${name}/`)));
  }
}

/** Files of an input; those of a folder have paths. @param {FileList | null} files @returns {Wanted[]} */
export function chosen(files) {
  return [...(files ?? [])].map((file) => ({ file, name: file.webkitRelativePath || file.name }));
}

/**
 * The list of uploads, initially hidden. `.add(bucket, prefix, files, onDone)` starts some.
 * @returns {HTMLElement & {add: (bucket: string, prefix: string, files: Wanted[], onDone: () => void) => void}}
 */
export function uploadList() {
  const rows = h("ul", { class: "uploads-rows" });
  const sum = h("strong", { role: "status", dataset: { testid: "uploads-sum" } });
  const element = h(
    "section",
    { class: "card uploads", hidden: true, "aria-label": "Uploads", dataset: { testid: "uploads" } },
    h(
      "div",
      { class: "uploads-head" },
      sum,
      button("Cancel all", { onClick: () => tasks.forEach((task) => task.abort()), testid: "cancel-uploads" }),
      button("Close", { onClick: () => hide() }),
    ),
    rows,
  );
  /** @type {Task[]} */
  let tasks = [];
  let running = 0;

  const hide = () => {
    element.hidden = true;
    tasks = tasks.filter((task) => !task.over);
    rows.replaceChildren(...tasks.slice(0, SHOWN).map((task) => task.row));
  };
  const tell = () => {
    const done = tasks.filter((task) => task.state === "done").length;
    const failed = tasks.filter((task) => task.state === "failed").length;
    const left = tasks.filter((task) => !task.over).length;
    const words = [
      `${done} of ${tasks.length} uploaded`,
      failed ? `${failed} failed` : "",
      left ? `${left} to go` : "",
    ];
    sum.textContent = words.filter(Boolean).join(", ");
  };
  const next = () => {
    const task = running < AT_ONCE ? tasks.find((each) => each.state === "waiting") : undefined;
    tell();
    if (!task) return;
    running += 1;
    void task.run().finally(() => {
      running -= 1;
      task.onDone();
      next();
    });
    next();
  };
  const add = (
    /** @type {string} */ bucket,
    /** @type {string} */ prefix,
    /** @type {Wanted[]} */ files,
    /** @type {() => void} */ onDone,
  ) => {
    if (!files.length) return;
    for (const { file, name } of files) {
      const task = new Task(bucket, prefix + name, file, onDone, tell);
      tasks.push(task);
      if (rows.childElementCount < SHOWN) rows.append(task.row);
    }
    element.hidden = false;
    next();
  };
  return Object.assign(element, { add });
}

class Task {
  /**
   * @param {string} bucket @param {string} name @param {File} file
   * @param {() => void} onDone @param {() => void} onChange
   */
  constructor(bucket, name, file, onDone, onChange) {
    this.bucket = bucket;
    this.name = name.toWellFormed();
    this.file = file;
    this.onDone = onDone;
    this.onChange = onChange;
    /** @type {"waiting" | "running" | "done" | "failed" | "cancelled"} */
    this.state = "waiting";
    this.control = new AbortController();
    this.bar = progressBar({ fraction: 0, label: "" });
    this.word = h("span", { class: "uploads-word" }, bytes(file.size));
    this.cancel = h(
      "button",
      {
        class: "icon-button",
        type: "button",
        title: "Give up",
        "aria-label": `Give up ${this.name}`,
        on: { click: () => this.abort() },
      },
      icon("close"),
    );
    this.row = h(
      "li",
      { class: "uploads-row" },
      h("span", { class: "uploads-name", title: this.name }, this.name),
      this.bar,
      this.word,
      this.cancel,
    );
  }

  get over() {
    return this.state !== "waiting" && this.state !== "running";
  }

  async run() {
    this.state = "running";
    try {
      await putFile(
        this.bucket,
        this.name,
        this.file,
        (share) => this.bar.update({ fraction: share }),
        this.control.signal,
      );
      this.end("done", `${bytes(this.file.size)}, done`);
      this.bar.update({ fraction: 1 });
    } catch (error) {
      if (this.control.signal.aborted) this.end("cancelled", "given up");
      else this.end("failed", messageOf(error));
    }
  }

  abort() {
    if (this.over) return;
    this.control.abort();
    if (this.state === "waiting") this.end("cancelled", "given up");
  }

  /** @param {"done" | "failed" | "cancelled"} state @param {string} word */
  end(state, word) {
    this.state = state;
    this.word.textContent = word;
    this.row.dataset.state = state;
    this.cancel.hidden = true;
    this.onChange();
  }
}
