// @ts-check
// Previews of objects: text, JSON and pictures; others as bytes. Never as HTML.

import { blob, get } from "../../api.js";
import { dialog } from "../../dialogs.js";
import { h, replace } from "../../dom.js";
import { bytes, when } from "../../format.js";
import { icon } from "../../icons.js";
import { copyButton, errorBox, loading } from "../../parts.js";
import { gsAddress, mediaPath, objectPath } from "./objects.js";

const TEXT_BYTES = 256 * 1024;
const PICTURE_BYTES = 20 << 20;
const DUMP_BYTES = 512;
/** @type {Record<string, string>} */
const PICTURES = {
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
  avif: "image/avif",
  bmp: "image/bmp",
  svg: "image/svg+xml",
};

/**
 * @param {string} bucket
 * @param {Api.StoredObject} item
 * @param {() => void} [onDelete] is called when its deletion is asked for; without it there is no such button
 */
export function preview(bucket, item, onDelete) {
  const place = h("div", { class: "preview", dataset: { testid: "preview" } }, loading());
  const facts = h("dl", { class: "facts" });
  const short = item.name.slice(item.name.lastIndexOf("/") + 1) || item.name;
  const download = h(
    "a",
    {
      class: "button button-plain",
      href: mediaPath(bucket, item.name),
      download: short,
      dataset: { testid: "preview-download" },
    },
    icon("download"),
    "Download",
  );
  const shown = dialog({
    title: short,
    body: [h("div", { class: "preview-head" }, address(bucket, item.name), download), place, facts],
    actions: [
      ...(onDelete ? [{ text: "Delete…", kind: /** @type {const} */ ("danger"), run: onDelete }] : []),
      { text: "Close" },
    ],
    wide: true,
  });
  const urls = /** @type {string[]} */ ([]);
  void shown.closed.then(() => urls.forEach((url) => URL.revokeObjectURL(url)));
  void content(bucket, item, urls).then(
    (parts) => replace(place, parts),
    (error) => replace(place, errorBox(error)),
  );
  void get(objectPath(bucket, item.name)).then(
    (/** @type {Api.StoredObject} */ found) => replace(facts, factsOf(found)),
    () => replace(facts, factsOf(item)),
  );
}

/** A gs:// URI with a button that copies it. @param {string} bucket @param {string} name */
export function address(bucket, name) {
  const text = gsAddress(bucket, name);
  return h(
    "p",
    { class: "gs-address" },
    h("code", { dataset: { testid: "gs-address" } }, text),
    copyButton(text, "Copy the address"),
  );
}

/** @param {Api.StoredObject} found */
function factsOf(found) {
  /** @type {[string, string | undefined][]} */
  const facts = [
    ["Size", `${bytes(found.size)} (${Number(found.size).toLocaleString()} bytes)`],
    ["Type", found.contentType],
    ["Encoding", found.contentEncoding],
    ["Written", when(found.updated)],
    ["Generation", found.generation],
    ["MD5", found.md5Hash],
    ["CRC32C", found.crc32c],
    ...Object.entries(found.metadata ?? {}),
  ];
  return facts.filter(([, value]) => value).map(([name, value]) => [h("dt", null, name), h("dd", null, value)]);
}

/**
 * @param {string} bucket @param {Api.StoredObject} item
 * @param {string[]} urls that must be given back
 */
async function content(bucket, item, urls) {
  const size = Number(item.size);
  if (size === 0) return h("p", { class: "muted" }, "This object is empty.");
  const type = pictureType(item);
  if (type && size <= PICTURE_BYTES) {
    const url = URL.createObjectURL(new Blob([await blob(mediaPath(bucket, item.name))], { type }));
    urls.push(url);
    return picture(url);
  }
  const cut = size > TEXT_BYTES && !item.contentEncoding; // a part of a packed object can't be unpacked
  if (item.contentEncoding && size > TEXT_BYTES) {
    return h("p", { class: "muted" }, `It is packed (${item.contentEncoding}) and large: download it to look into it.`);
  }
  /** @type {Record<string, string>} */
  const headers = cut ? { range: `bytes=0-${TEXT_BYTES - 1}` } : {};
  const data = new Uint8Array(await (await blob(mediaPath(bucket, item.name), {}, { headers })).arrayBuffer());
  return [
    cut ? h("p", { class: "muted" }, `The first ${bytes(TEXT_BYTES)} of ${bytes(size)}.`) : null,
    readable(data, cut),
  ];
}

/** @param {Api.StoredObject} item */
function pictureType(item) {
  const ending = item.name.slice(item.name.lastIndexOf(".") + 1).toLowerCase();
  return (
    Object.values(PICTURES).find((type) => type === item.contentType) ??
    (Object.hasOwn(PICTURES, ending) ? PICTURES[ending] : undefined)
  );
}

/** @param {string} url */
function picture(url) {
  const size = h("p", { class: "muted small" });
  const image = h("img", {
    class: "preview-picture",
    alt: "The picture in this object",
    src: url,
    dataset: { testid: "preview-picture" },
    on: {
      load: () => (size.textContent = `${image.naturalWidth} × ${image.naturalHeight}`),
      error: () =>
        (size.textContent = "The browser can't show this picture. It may be damaged: download it to look into it."),
    },
  });
  return [image, size];
}

/** @param {Uint8Array} data @param {boolean} cut */
function readable(data, cut) {
  const text = textOf(data, cut);
  if (text === null) return dump(data);
  return h(
    "pre",
    { class: "preview-text", tabIndex: 0, dataset: { testid: "preview-text" } },
    cut ? text : arranged(text),
  );
}

/** Bytes as text, or null if they are not UTF-8. @param {Uint8Array} data @param {boolean} cut maybe in a character */
function textOf(data, cut) {
  if (data.includes(0)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(data, { stream: cut });
  } catch {
    return null;
  }
}

/** Indented JSON; other text unchanged. @param {string} text */
function arranged(text) {
  if (!/^\s*[[{]/.test(text)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // lines of JSON, or no JSON at all
  }
}

/** @param {Uint8Array} data */
function dump(data) {
  const lines = [];
  for (let at = 0; at < Math.min(data.length, DUMP_BYTES); at += 16) {
    const row = [...data.slice(at, at + 16)];
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const seen = row.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${seen}`);
  }
  return [
    h("p", { class: "muted" }, `These are bytes, not text. The first ${Math.min(data.length, DUMP_BYTES)}:`),
    h("pre", { class: "preview-text", tabIndex: 0 }, lines.join("\n")),
  ];
}
