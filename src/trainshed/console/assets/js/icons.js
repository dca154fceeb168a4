// @ts-check
// Icons, 16 by 16, in the colour of the text beside them.

import { s } from "./dom.js";

/** @type {Record<string, string>} */
const PATHS = {
  overview: "M2.5 2.5h4.5v4.5h-4.5zM9 2.5h4.5v4.5H9zM2.5 9h4.5v4.5h-4.5zM9 9h4.5v4.5H9z",
  jobs: "M2.5 4h11M2.5 8h11M2.5 12h7",
  models: "M8 1.8 13.5 5v6L8 14.2 2.5 11V5zM2.5 5 8 8.2 13.5 5M8 8.2v6",
  buckets:
    "M2.5 4.2c0-1.1 2.5-2 5.5-2s5.5.9 5.5 2-2.5 2-5.5 2-5.5-.9-5.5-2z" +
    "M2.5 4.2l1.2 8.2c.2.8 2 1.4 4.3 1.4s4.1-.6 4.3-1.4l1.2-8.2",
  studies: "M2.5 13.5v-11M2.5 13.5h11M5 10.2v.1M7 7.2v.1M9.2 8.6v.1M11.2 4.4v.1M13 5.8v.1",
  playground: "M3 13l.8-3.2L10.6 3a1.4 1.4 0 0 1 2 0l.4.4a1.4 1.4 0 0 1 0 2L6.2 12.2zM9.2 4.4l2.4 2.4",
  tokens: "M5 5.2a2.8 2.8 0 1 1 0 5.6 2.8 2.8 0 0 1 0-5.6zM7.8 8h6M11.2 8v2.2M13.8 8v2.6",
  settings: "M2.5 4.5h6M11.5 4.5h2M2.5 11.5h2M7.5 11.5h6M10 3v3M6 10v3",
  search: "M7 2.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9zM10.3 10.3l3.2 3.2",
  gauge: "M2.8 12a6 6 0 1 1 10.4 0M8 9.5l2.6-3.4",
  menu: "M2.5 4h11M2.5 8h11M2.5 12h11",
  close: "M3.5 3.5l9 9M12.5 3.5l-9 9",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  check: "M3 8.5l3.3 3.3L13 5",
  cross: "M4.5 4.5l7 7M11.5 4.5l-7 7",
  stop: "M5 8h6",
  clock: "M8 2.5a5.5 5.5 0 1 1 0 11 5.5 5.5 0 0 1 0-11zM8 5v3l2 1.5",
  warning: "M8 2.5 14 13H2zM8 6.5v3M8 11.2v.1",
  sun:
    "M8 5.2a2.8 2.8 0 1 1 0 5.6 2.8 2.8 0 0 1 0-5.6z" +
    "M8 1.5v1.2M8 13.3v1.2M1.5 8h1.2M13.3 8h1.2M3.4 3.4l.9.9M11.7 11.7l.9.9M3.4 12.6l.9-.9M11.7 4.3l.9-.9",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  system: "M2.5 3h11v7.5h-11zM6 13.5h4M8 10.5v3",
  user: "M8 2.5a2.7 2.7 0 1 1 0 5.4 2.7 2.7 0 0 1 0-5.4zM2.8 13.7c.4-2.6 2.5-4 5.2-4s4.8 1.4 5.2 4",
  compare: "M4.5 2.5v11M4.5 13.5l-2-2M4.5 13.5l2-2M11.5 13.5v-11M11.5 2.5l-2 2M11.5 2.5l2 2",
  download: "M8 2.5v7.5M5 7.2 8 10l3-2.8M2.5 13h11",
  upload: "M8 10.5V3M5 5.8 8 3l3 2.8M2.5 13h11",
  trash: "M3 4.5h10M6.5 4.5v-2h3v2M4.3 4.5l.6 9h6.2l.6-9",
  refresh: "M13 5.5A5.5 5.5 0 1 0 13.5 8M13.5 2.5v3.3h-3.3",
  folder: "M2 4h4l1.5 1.7H14v7H2z",
  file: "M4 2h5l3.2 3.2V14H4zM9 2v3.2h3.2",
  right: "M6 3.5 10.5 8 6 12.5",
  down: "M3.5 6 8 10.5 12.5 6",
  link: "M6.5 9.5l3-3M7 4.5l1.5-1.5a2.5 2.5 0 0 1 3.6 3.6L10.5 8M9 11.5 7.5 13A2.5 2.5 0 0 1 4 9.4L5.5 8",
  play: "M5 3.2v9.6L12.5 8z",
  help: "M8 2.5a5.5 5.5 0 1 1 0 11 5.5 5.5 0 0 1 0-11zM6.4 6.5c0-2 3.2-2 3.2-.1 0 1.3-1.6 1.3-1.6 2.6M8 11.3v.1",
};

/**
 * An icon, hidden from screen readers, which read the text beside it.
 * @param {string} name
 * @returns {SVGElement}
 */
export function icon(name) {
  return s(
    "svg",
    { class: `icon icon-${name}`, viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" },
    s("path", { d: PATHS[name] ?? PATHS.file }),
  );
}

/** The logo of the console: the arched roof of a train shed, and the tracks below it. @returns {SVGElement} */
export function mark() {
  return s(
    "svg",
    { class: "mark", viewBox: "0 0 32 32", "aria-hidden": "true", focusable: "false" },
    s("path", { class: "mark-roof", d: "M4 27V17a12 12 0 0 1 24 0v10" }),
    s("path", { class: "mark-rib", d: "M9.2 12.4 16 5.4l6.8 7M16 5.4v5.4" }),
    s("path", { class: "mark-rail", d: "M13.4 14.6 9.6 27.5M18.6 14.6 22.4 27.5" }),
    s("path", { class: "mark-tie", d: "M12.5 18.3h7M11.3 22.6h9.4" }),
  );
}
