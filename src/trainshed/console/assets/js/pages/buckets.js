// @ts-check
// Buckets: the list of them, and the folders and objects in one.

import { del, get, post } from "../api.js";
import { confirm, dialog, toast } from "../dialogs.js";
import { h, replace } from "../dom.js";
import { messageOf } from "../format.js";
import { icon } from "../icons.js";
import { live } from "../live.js";
import { button, copyButton, emptyState, field, link, loading, timeAgo } from "../parts.js";
import { path } from "../paths.js";
import { table } from "../table.js";
import { browser } from "./buckets/browser.js";
import { folderLink } from "./buckets/objects.js";

/** @param {{project: string, params: string[]}} ctx @returns {HTMLElement} */
export default function page(ctx) {
  const [bucket, ...folders] = ctx.params;
  return bucket ? browser(ctx.project, bucket, folders.join("/")) : list(ctx);
}

/** @param {{project: string}} ctx */
function list(ctx) {
  const body = h("div", null, loading());
  const make = () =>
    button("Create a bucket", { kind: "primary", onClick: () => create(ctx), testid: "create-bucket" });
  const node = h(
    "div",
    { class: "page buckets" },
    h("div", { class: "page-head" }, h("h1", null, "Buckets"), h("div", { class: "page-actions" }, make())),
    body,
  );
  /** @type {ReturnType<typeof bucketTable> | null} */
  let shown = null;
  const poll = live(
    node,
    5,
    () => allBuckets(ctx.project),
    (rows) => {
      if (!rows.length) {
        shown = null;
        replace(
          body,
          emptyState({
            title: "No buckets in this project",
            text: "A bucket keeps what jobs read and write: packages, data, models. Create one here, or with:",
            command: `trainshed buckets mb gs://${ctx.project}-data`,
          }),
        );
      } else if (shown) shown.update(rows);
      else replace(body, (shown = bucketTable(ctx.project, rows, () => void poll.now())));
    },
  );
  return node;
}

/** @param {string} project */
async function allBuckets(project) {
  const found = [];
  let pageToken = "";
  do {
    /** @type {Api.Buckets} */
    const answer = await get("/storage/v1/b", { project, pageToken });
    found.push(...(answer.items ?? []));
    pageToken = answer.nextPageToken ?? "";
  } while (pageToken);
  return found;
}

/** @param {string} project @param {Api.Bucket[]} rows @param {() => void} onChange */
function bucketTable(project, rows, onChange) {
  return table({
    testid: "buckets",
    columns: [
      {
        title: "Name",
        cell: (row) =>
          h("span", { class: "with-icon" }, icon("buckets"), link(folderLink(project, row.name), row.name)),
        sort: (row) => row.name,
      },
      {
        title: "Address",
        cell: (row) =>
          h(
            "span",
            { class: "gs-address" },
            h("code", null, `gs://${row.name}`),
            copyButton(`gs://${row.name}`, "Copy the address"),
          ),
        class: "wide-only",
      },
      { title: "Location", cell: (row) => row.location, sort: (row) => row.location, class: "wide-only" },
      { title: "Created", cell: (row) => timeAgo(row.timeCreated), sort: (row) => row.timeCreated },
      { title: "", label: "Actions", class: "cell-actions", cell: (row) => remove(row.name, onChange) },
    ],
    key: (row) => row.name,
    rows,
  });
}

/** @param {string} name @param {() => void} onChange */
function remove(name, onChange) {
  return h(
    "button",
    {
      class: "icon-button",
      type: "button",
      title: "Delete this bucket",
      "aria-label": `Delete bucket ${name}`,
      on: {
        click: async () => {
          const sure = await confirm({
            title: `Delete bucket ${name}?`,
            text: "Only an empty bucket can be deleted. Its name is free then.",
            action: "Delete",
            danger: true,
          });
          if (!sure) return;
          try {
            await del(path`/storage/v1/b/${name}`);
          } catch (error) {
            toast(messageOf(error), "error");
          }
          onChange();
        },
      },
    },
    icon("trash"),
  );
}

/** @param {{project: string}} ctx */
function create(ctx) {
  const name = h("input", {
    class: "input",
    type: "text",
    required: true,
    autocomplete: "off",
    spellcheck: false,
    placeholder: `${ctx.project}-data`,
    dataset: { testid: "bucket-name" },
  });
  const location = h("input", { class: "input", type: "text", autocomplete: "off", placeholder: "us-central1" });
  const run = async () => {
    /** @type {Api.Bucket} */
    const made = await post(`/storage/v1/b?project=${encodeURIComponent(ctx.project)}`, {
      name: name.value.trim(),
      location: location.value.trim(),
    });
    window.location.hash = folderLink(ctx.project, made.name).slice(1);
  };
  dialog({
    title: "Create a bucket",
    body: [
      field({
        label: "Name",
        input: name,
        hint: "Lower-case letters, digits, hyphens and dots. No two projects can have a bucket of one name.",
      }),
      field({
        label: "Location",
        input: location,
        hint: "Kept, as Cloud Storage does; everything lies on this machine.",
      }),
    ],
    actions: [{ text: "Cancel" }, { text: "Create", kind: "primary", run, testid: "create-bucket-go" }],
  });
}
