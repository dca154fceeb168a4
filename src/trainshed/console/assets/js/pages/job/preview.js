// @ts-check
// A look into an object: text, JSON and images; anything else is offered for download.

import { blob, text } from "../../api.js";
import { dialog } from "../../dialogs.js";
import { h, replace } from "../../dom.js";
import { bytes } from "../../format.js";
import { codeBlock, errorBox, loading } from "../../parts.js";
import { mediaPath } from "./files.js";
import { visible } from "./logtext.js";

const MOST_TEXT = 1 << 20;
const MOST_IMAGE = 16 << 20;
const IMAGES = {
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
  bmp: "image/bmp",
};
const TEXTS = new Set(
  "txt log csv tsv md py sh yaml yml toml ini cfg pbtxt htm html xml svg json jsonl ndjson".split(" "),
);
const WORDS = /(^|\/)(checkpoint|README|LICENSE|prediction\.(results|errors_stats)-[^/]*)$/;

/** @param {{name: string, size: number, type: string}} object */
function kindOf({ name, size, type }) {
  const ending = name.slice(name.lastIndexOf(".") + 1).toLowerCase();
  if (ending in IMAGES) return size <= MOST_IMAGE ? "image" : "large";
  if (ending === "json" || type === "application/json") return size <= MOST_TEXT ? "json" : "large";
  if (TEXTS.has(ending) || WORDS.test(name) || type.startsWith("text/")) return size <= MOST_TEXT ? "text" : "large";
  return "other";
}

/** @param {string} path @param {string} name @param {AbortSignal} signal */
async function imageNode(path, name, signal) {
  const ending = /** @type {keyof typeof IMAGES} */ (name.slice(name.lastIndexOf(".") + 1).toLowerCase());
  const data = await blob(path, undefined, { signal });
  const url = URL.createObjectURL(new Blob([data], { type: IMAGES[ending] }));
  signal.addEventListener("abort", () => URL.revokeObjectURL(url));
  return h("img", { class: "preview-image", src: url, alt: name });
}

/** @param {string} raw */
function prettyJson(raw) {
  try {
    return JSON.stringify(JSON.parse(raw), null, 2);
  } catch {
    return raw; // it is not JSON after all: shown as the text that it is
  }
}

/** @param {string} bucket @param {any} object @param {AbortSignal} signal */
async function lookInto(bucket, object, signal) {
  const path = mediaPath(bucket, object.name);
  const kind = kindOf(object);
  if (kind === "image") return imageNode(path, object.name, signal);
  if (kind === "large") return h("p", null, `It has ${bytes(object.size)}: too much to be shown here. Download it.`);
  if (kind === "other") return h("p", null, "This kind of file can't be shown here. Download it.");
  const raw = await text(path, undefined, { signal });
  return codeBlock(visible(kind === "json" ? prettyJson(raw) : raw));
}

/**
 * @param {string} bucket
 * @param {{name: string, title: string, size: number, type: string}} object
 */
export function preview(bucket, object) {
  const leaving = new AbortController();
  const body = h("div", { class: "preview", dataset: { testid: "preview" } }, loading());
  const save = h(
    "a",
    { class: "button button-plain", href: mediaPath(bucket, object.name), download: object.title },
    "Download",
  );
  const foot = h("p", { class: "preview-foot" }, `gs://${bucket}/${object.name} · ${bytes(object.size)} `, save);
  const shown = dialog({ title: object.title, body: [body, foot], actions: [{ text: "Close" }], wide: true });
  void shown.closed.then(() => leaving.abort());
  lookInto(bucket, object, leaving.signal)
    .then((node) => replace(body, node))
    .catch((error) => {
      if (!leaving.signal.aborted) replace(body, errorBox(error));
    });
}
