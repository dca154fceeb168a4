// @ts-check
// TensorBoard on the job's folder, which the server starts on demand.

import { post } from "../../api.js";
import { h, replace } from "../../dom.js";
import { button, errorBox, progressBar } from "../../parts.js";
import { outputFolders } from "./jobinfo.js";

/** @param {string} url @param {string} name */
function frame(url, name) {
  const open = h(
    "a",
    { class: "button button-plain", href: url, target: "_blank", rel: "noopener" },
    "Open in a tab of its own",
  );
  return [
    h(
      "div",
      { class: "tensorboard-bar" },
      h("p", { class: "muted" }, "It ends by itself when nobody has looked for a while."),
      open,
    ),
    h("iframe", {
      class: "tensorboard-frame",
      src: url,
      title: `TensorBoard of ${name}`,
      dataset: { testid: "tensorboard" },
    }),
  ];
}

/**
 * @param {string} path of the job in Trainshed's own API
 * @param {Api.Job} job
 * @returns {HTMLElement}
 */
export function tensorboardTab(path, job) {
  const node = h("section", { class: "tensorboard", "aria-label": "TensorBoard" });
  const start = async () => {
    const began = Date.now();
    const bar = progressBar({ fraction: null, label: "TensorBoard is starting…" });
    replace(
      node,
      h(
        "div",
        { class: "tensorboard-wait" },
        bar,
        h(
          "p",
          { class: "muted" },
          `It reads ${outputFolders(job)[0] ?? "the job's folder"}. The first start takes some seconds.`,
        ),
      ),
    );
    const ticking = setInterval(() => {
      bar.update({ fraction: null, label: `TensorBoard is starting… ${Math.round((Date.now() - began) / 1000)} s` });
    }, 1000);
    try {
      /** @type {{url: string}} */
      const { url } = await post(`${path}:tensorboard`);
      replace(node, frame(url, job.jobId));
    } catch (error) {
      replace(node, errorBox(error), button("Try again", { onClick: start }));
    } finally {
      clearInterval(ticking);
    }
  };
  void start();
  return node;
}
