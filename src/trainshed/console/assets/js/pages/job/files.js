// @ts-check
// The output of a job: the objects in its folders, to preview and download.

import { get } from "../../api.js";
import { h, replace } from "../../dom.js";
import { bytes } from "../../format.js";
import { icon } from "../../icons.js";
import { live } from "../../live.js";
import { emptyState, link, loading, timeAgo } from "../../parts.js";
import { table } from "../../table.js";
import { folderLink, mediaPath } from "../buckets/objects.js";
import { preview } from "../buckets/preview.js";
import { outputFolders, placeOf } from "./jobinfo.js";

const EVERY_S = 5;
const PAGES = 10; // of a thousand names each; a folder with more is better looked at in its bucket

/** @typedef {import("./place.js").Place} Place */
/** @typedef {{folders: string[], objects: Api.StoredObject[], more: boolean}} Contents */
/** @typedef {{name: string, title: string, object: Api.StoredObject | null}} Row without an object it is a folder */

/**
 * The folders and objects directly in a folder.
 * @param {string} bucket
 * @param {string} prefix
 * @returns {Promise<Contents>}
 */
async function contents(bucket, prefix) {
  const folders = [];
  const objects = [];
  let pageToken = "";
  for (let page = 0; page < PAGES; page += 1) {
    /** @type {Api.Objects} */
    const found = await get(`/storage/v1/b/${encodeURIComponent(bucket)}/o`, { prefix, delimiter: "/", pageToken });
    folders.push(...(found.prefixes ?? []));
    objects.push(...(found.items ?? []));
    pageToken = found.nextPageToken ?? "";
    if (!pageToken) break;
  }
  return { folders, objects, more: pageToken !== "" };
}

/** @param {Contents} found @param {string} prefix @returns {Row[]} */
function rowsOf({ folders, objects }, prefix) {
  const title = (/** @type {string} */ name) => name.slice(prefix.length);
  return [
    ...folders.map((name) => ({ name, title: title(name), object: null })),
    ...objects
      .filter((object) => object.name !== prefix)
      .map((object) => ({ name: object.name, title: title(object.name), object })),
  ];
}

class FilesTab {
  /** @param {string[]} roots @param {Place} place */
  constructor(roots, place) {
    this.roots = roots;
    this.place = place;
    const asked = place.get("folder");
    this.folder = roots.some((root) => asked.startsWith(root)) ? asked : roots[0];
    this.crumbs = h("nav", { class: "crumbs file-crumbs", "aria-label": "Folder" });
    this.list = h("div", null, loading("Reading the folder…"));
    this.node = h("section", { class: "job-files", "aria-label": "Files" }, this.crumbs, this.list);
    /** @type {import("../../table.js").TableElement<Row> | null} */
    this.table = null;
    this.poll = live(
      this.node,
      EVERY_S,
      () => this.#load(),
      (found) => this.#show(found),
    );
    this.#showCrumbs();
  }

  async #load() {
    const folder = this.folder;
    const { bucket, prefix } = placeOf(folder);
    return { folder, ...(await contents(bucket, prefix)) };
  }

  /** @param {string} folder */
  #open(folder) {
    this.folder = folder;
    this.place.set({ folder });
    this.table = null;
    replace(this.list, loading("Reading the folder…"));
    this.#showCrumbs();
    void this.poll.now();
  }

  #showCrumbs() {
    const root = this.roots.find((each) => this.folder.startsWith(each)) ?? this.roots[0];
    const parts = this.folder.slice(root.length).split("/").filter(Boolean);
    const picker = this.roots.length > 1 ? this.#picker(root) : this.#crumb(root, root);
    const steps = parts.map((part, index) => [
      h("span", { class: "crumb-sep", "aria-hidden": "true" }, "/"),
      this.#crumb(`${root}${parts.slice(0, index + 1).join("/")}/`, part),
    ]);
    const { bucket, prefix } = placeOf(this.folder);
    const there = folderLink(this.place.project, bucket, prefix);
    replace(this.crumbs, picker, steps, h("span", { class: "log-bar-space" }), link(there, "Open in Buckets"));
  }

  /** @param {string} root */
  #picker(root) {
    const select = h(
      "select",
      { "aria-label": "Folder of the job", value: root, on: { change: () => this.#open(select.value) } },
      this.roots.map((each) => h("option", { value: each }, each)),
    );
    return select;
  }

  /** @param {string} folder @param {string} text */
  #crumb(folder, text) {
    return h("button", { class: "link-button", type: "button", on: { click: () => this.#open(folder) } }, text);
  }

  /** @param {Contents & {folder: string}} found */
  #show(found) {
    if (found.folder !== this.folder) return;
    const { bucket, prefix } = placeOf(this.folder);
    const rows = rowsOf(found, prefix);
    if (this.table) {
      this.table.update(rows);
      return;
    }
    this.table = table({
      testid: "file-table",
      columns: this.#columns(bucket),
      key: (row) => row.name,
      rows,
      onOpen: (row) => this.#openRow(bucket, row),
      empty: emptyState({
        title: "Nothing is here yet",
        text: "What the job writes to its folder appears here by itself.",
      }),
    });
    const more = found.more
      ? h("p", { class: "muted" }, "There are more files than are shown here; open the folder in Buckets.")
      : null;
    replace(this.list, this.table, more);
  }

  /** @param {string} bucket @param {Row} row */
  #openRow(bucket, { name, object }) {
    if (object) preview(bucket, object);
    else this.#open(`gs://${bucket}/${name}`);
  }

  /** @param {string} bucket @returns {import("../../table.js").Column<Row>[]} */
  #columns(bucket) {
    return [
      {
        title: "Name",
        cell: (row) =>
          h(
            "button",
            { class: "link-button file-name", type: "button", on: { click: () => this.#openRow(bucket, row) } },
            icon(row.object ? "file" : "folder"),
            row.title,
          ),
        sort: (row) => `${row.object ? 1 : 0}${row.title}`,
      },
      {
        title: "Size",
        cell: ({ object }) => (object ? bytes(object.size) : ""),
        sort: ({ object }) => (object ? Number(object.size) : -1),
        class: "cell-number",
      },
      {
        title: "Changed",
        cell: ({ object }) => (object ? timeAgo(object.updated) : ""),
        sort: ({ object }) => object?.updated,
      },
      {
        title: "",
        cell: (row) =>
          row.object
            ? h(
                "a",
                {
                  class: "icon-button",
                  href: mediaPath(bucket, row.name),
                  download: row.title,
                  title: "Download",
                  "aria-label": `Download ${row.title}`,
                },
                icon("download"),
              )
            : "",
        class: "cell-actions",
      },
    ];
  }
}

/**
 * @param {Api.Job} job
 * @param {Place} place
 * @returns {HTMLElement}
 */
export function filesTab(job, place) {
  const roots = outputFolders(job);
  if (roots.length > 0) return new FilesTab(roots, place).node;
  return emptyState({
    title: "This job has no folder",
    text: "Give a job a folder with --job-dir, and what its trainer writes there is shown here.",
    command: "trainshed jobs submit training my_job --job-dir gs://my-bucket/my_job …",
  });
}
