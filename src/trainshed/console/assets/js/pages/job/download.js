// @ts-check
// Downloads text as a file.

import { h } from "../../dom.js";

/**
 * @param {string} name of the file
 * @param {string} text
 */
export function saveText(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
  const anchor = h("a", { href: url, download: name });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
