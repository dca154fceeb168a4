// @ts-check
// The tab with the drawing pad.

import { h } from "../../dom.js";
import { button } from "../../parts.js";
import { fromStrokes } from "./digits.js";
import { pad } from "./pad.js";

/** Lines as thick as in MNIST, and a little thinner and thicker. */
const BRUSHES = /** @type {[string, number][]} */ ([
  ["Fine", 1.8],
  ["Medium", 2.4],
  ["Bold", 3.2],
]);

/**
 * @param {{read: (pixels: Float32Array | null) => void}} reader is given each drawing as it grows
 * @returns {HTMLElement}
 */
export function drawing(reader) {
  const told = h("p", { class: "off-screen", role: "status" });
  const board = pad({
    onChange: () => reader.read(fromStrokes(board.strokes(), board.thickness())),
    onPen: (text) => (told.textContent = text),
  });
  const brush = h(
    "select",
    {
      class: "input input-small",
      "aria-label": "Brush",
      dataset: { testid: "brush" },
      on: { change: () => board.thickness(Number(brush.value)) },
    },
    BRUSHES.map(([name, value]) => h("option", { value: String(value), selected: value === 2.4 }, name)),
  );
  const tools = h(
    "div",
    { class: "pad-tools" },
    button("Undo", { onClick: () => board.undo(), testid: "undo" }),
    button("Clear", { onClick: () => board.clear(), testid: "clear" }),
    brush,
  );
  const keys = h(
    "p",
    { class: "muted small" },
    "By keyboard: ",
    h("kbd", null, "←↑↓→"),
    " move (",
    h("kbd", null, "Shift"),
    " in small steps), ",
    h("kbd", null, "Space"),
    " puts the pen down and lifts it, ",
    h("kbd", null, "Backspace"),
    " undoes, ",
    h("kbd", null, "Delete"),
    " clears.",
  );
  return h("div", { class: "drawing" }, board, tools, keys, told);
}
