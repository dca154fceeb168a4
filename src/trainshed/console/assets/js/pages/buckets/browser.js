// @ts-check
// The folders and objects of one bucket, page by page.

import { putFile } from "../../api.js";
import { dialog, toast } from "../../dialogs.js";
import { h, replace } from "../../dom.js";
import { bytes, count, messageOf } from "../../format.js";
import { icon } from "../../icons.js";
import { live } from "../../live.js";
import { Pager } from "../../pager.js";
import { button, emptyState, field, link, loading, timeAgo } from "../../parts.js";
import { table } from "../../table.js";
import { askAndDelete } from "./deletion.js";
import { folderLink, listFolder, mediaPath } from "./objects.js";
import { address, preview } from "./preview.js";
import { chosen, dropped, uploadList } from "./uploads.js";

/** @typedef {{name: string, short: string, item?: Api.StoredObject}} Row without an item it is a folder */

/**
 * @param {string} project @param {string} bucket
 * @param {string} prefix of the folder: empty, or with "/" at its end
 * @returns {HTMLElement}
 */
export function browser(project, bucket, prefix) {
  const folder = prefix && !prefix.endsWith("/") ? `${prefix}/` : prefix;
  const view = new Browser(project, bucket, folder);
  return view.element;
}

class Browser {
  /** @param {string} project @param {string} bucket @param {string} prefix */
  constructor(project, bucket, prefix) {
    this.project = project;
    this.bucket = bucket;
    this.prefix = prefix;
    /** @type {import("../../table.js").TableElement<Row> | null} */
    this.table = null;
    this.deleteButton = button("Delete…", {
      kind: "danger",
      icon: "trash",
      onClick: () => this.deleteRows(this.table?.selected() ?? []),
      testid: "delete-selected",
    });
    this.deleteButton.hidden = true;
    this.body = h("div", null, loading());
    this.uploads = uploadList();
    this.pager = new Pager(() => {
      this.table?.deselect();
      return this.poll.now();
    });
    this.element = h(
      "div",
      { class: "page browser", dataset: { testid: "browser" } },
      h(
        "div",
        { class: "page-head" },
        h("h1", { class: "breadcrumbs" }, this.crumbs()),
        h("div", { class: "page-actions" }, this.actions()),
      ),
      address(bucket, prefix),
      this.uploads,
      this.body,
      this.pager.node,
    );
    this.acceptDrops();
    this.poll = live(
      this.element,
      5,
      () => listFolder(bucket, prefix, this.pager.token),
      (listing) => this.show(listing),
    );
  }

  crumbs() {
    const parts = this.prefix.split("/").slice(0, -1);
    const at = (/** @type {number} */ end) =>
      folderLink(
        this.project,
        this.bucket,
        parts
          .slice(0, end)
          .map((part) => `${part}/`)
          .join(""),
      );
    const steps = [this.bucket, ...parts];
    return [
      link(`#/p/${encodeURIComponent(this.project)}/buckets`, "Buckets"),
      steps
        .map((name, index) => [
          h("span", { class: "crumb-mark", "aria-hidden": "true" }, "/"),
          index === steps.length - 1
            ? h("span", { "aria-current": "page" }, name || "(no name)")
            : link(at(index), name || "(no name)"),
        ])
        .flat(),
    ];
  }

  actions() {
    const pick = (/** @type {boolean} */ folders) => {
      const input = h("input", {
        type: "file",
        multiple: true,
        webkitdirectory: folders,
        hidden: true,
        dataset: { testid: folders ? "folder-input" : "file-input" },
        on: {
          change: () => {
            this.upload(chosen(input.files));
            input.value = "";
          },
        },
      });
      return input;
    };
    const [files, folders] = [pick(false), pick(true)];
    return [
      files,
      folders,
      this.deleteButton,
      button("New folder", { icon: "folder", onClick: () => this.newFolder(), testid: "new-folder" }),
      button("Upload a folder", { icon: "upload", onClick: () => folders.click() }),
      button("Upload files", { kind: "primary", icon: "upload", onClick: () => files.click(), testid: "upload-files" }),
    ];
  }

  acceptDrops() {
    this.element.addEventListener("dragover", (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      this.element.classList.add("drop-over");
    });
    this.element.addEventListener("dragleave", (event) => {
      if (!this.element.contains(/** @type {Node | null} */ (event.relatedTarget)))
        this.element.classList.remove("drop-over");
    });
    this.element.addEventListener("drop", async (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      this.element.classList.remove("drop-over");
      try {
        this.upload(await dropped(event.dataTransfer));
      } catch (error) {
        toast(`What was dropped can't be read: ${messageOf(error)}`, "error");
      }
    });
  }

  /** @param {import("./uploads.js").Wanted[]} files */
  upload(files) {
    this.uploads.add(this.bucket, this.prefix, files, () => void this.poll.now());
  }

  /** @param {import("./objects.js").Listing} listing */
  show({ items, prefixes, next }) {
    const short = (/** @type {string} */ name) => name.slice(this.prefix.length);
    /** @type {Row[]} */
    const rows = [
      ...prefixes.map((name) => ({ name, short: short(name) })),
      ...items
        .filter((item) => item.name !== this.prefix)
        .map((item) => ({ name: item.name, short: short(item.name), item })),
    ];
    if (!rows.length && this.pager.first) {
      this.table = null;
      replace(
        this.body,
        emptyState({
          title: "Nothing in here",
          text: "Drop files or folders onto this page, or upload from a shell with:",
          command: `trainshed buckets cp FILE ${shellWord(`gs://${this.bucket}/${this.prefix}`)}`,
        }),
      );
    } else if (this.table) this.table.update(rows);
    else replace(this.body, (this.table = this.makeTable(rows)));
    this.selected(this.table?.selected() ?? []);
    this.pager.show(next, count(rows.length, "row"));
  }

  /** @param {Row[]} rows */
  makeTable(rows) {
    return table({
      testid: "objects",
      columns: [
        { title: "Name", cell: (row) => this.nameOf(row), class: "cell-name" },
        {
          title: "Size",
          cell: (row) => (row.item ? bytes(Number(row.item.size)) : "–"),
          class: "cell-number wide-only",
        },
        { title: "Type", cell: (row) => row.item?.contentType ?? "folder", class: "wide-only clip cell-type" },
        { title: "Written", cell: (row) => (row.item ? timeAgo(row.item.updated) : "–"), class: "wide-only nowrap" },
        { title: "", label: "Actions", class: "cell-actions", cell: (row) => this.rowActions(row) },
      ],
      key: (row) => row.name,
      rows,
      select: true,
      onSelect: (selected) => this.selected(selected),
    });
  }

  /** @param {Row} row */
  nameOf(row) {
    const { item } = row;
    if (!item)
      return h(
        "span",
        { class: "with-icon" },
        icon("folder"),
        link(folderLink(this.project, this.bucket, row.name), row.short),
      );
    const open = () => preview(this.bucket, item, () => void this.deleteRows([row]));
    const name = h(
      "button",
      { class: "link-button", type: "button", on: { click: open }, dataset: { testid: "object" } },
      row.short,
    );
    const facts = h(
      "div",
      { class: "muted small narrow-only" },
      bytes(Number(item.size)),
      " · ",
      timeAgo(item.updated),
    );
    return h("span", { class: "with-icon" }, icon("file"), h("span", null, name, facts));
  }

  /** @param {Row} row */
  rowActions(row) {
    const load = row.item
      ? h(
          "a",
          {
            class: "icon-button",
            href: mediaPath(this.bucket, row.name),
            download: row.short,
            title: "Download",
            "aria-label": `Download ${row.short}`,
          },
          icon("download"),
        )
      : null;
    return [
      load,
      h(
        "button",
        {
          class: "icon-button",
          type: "button",
          title: "Delete",
          "aria-label": `Delete ${row.short}`,
          on: { click: () => void this.deleteRows([row]) },
        },
        icon("trash"),
      ),
    ];
  }

  /** @param {Row[]} rows */
  selected(rows) {
    this.deleteButton.hidden = rows.length === 0;
    this.deleteButton.lastChild?.replaceWith(`Delete ${rows.length}…`);
  }

  /** @param {Row[]} rows */
  async deleteRows(rows) {
    await askAndDelete(
      this.bucket,
      rows.map((row) => ({ name: row.name, folder: !row.item, size: Number(row.item?.size ?? 0) })),
    );
    this.table?.deselect();
    await this.poll.now();
  }

  newFolder() {
    const name = h("input", { class: "input", type: "text", autocomplete: "off", dataset: { testid: "folder-name" } });
    dialog({
      title: "New folder",
      body: field({
        label: "Name",
        input: name,
        hint: "Folders are parts of the names of objects; an empty one is an object whose name ends in “/”.",
      }),
      actions: [
        { text: "Cancel" },
        {
          text: "Create",
          kind: "primary",
          testid: "new-folder-go",
          run: async () => {
            const short = name.value.replace(/\/+$/, "");
            if (!short) throw new Error("Give the folder a name.");
            await putFile(this.bucket, `${this.prefix}${short}/`, new Blob([]));
            await this.poll.now();
          },
        },
      ],
    });
  }
}

/** Quote a word for a shell. @param {string} text */
function shellWord(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
