// @ts-check
// The tab for any model: a request as JSON, and the answer as JSON, as a table and as a chart.

import { h, replace } from "../../dom.js";
import { bytes, number } from "../../format.js";
import { button, codeBlock, errorBox } from "../../parts.js";
import { predictionCharts, predictionTable } from "./answers.js";
import { parse, predict, pretty } from "./requests.js";

/**
 * @param {() => import("./requests.js").Chosen} chosen
 * @param {{text: string, model: string}} draft what was typed last, kept while other tabs are looked at
 * @returns {HTMLElement}
 */
export function editor(chosen, draft) {
  const { sample, target } = chosen();
  const start = () => (sample ? pretty(sample) : '{\n  "instances": [\n    \n  ]\n}');
  if (draft.model !== target.model) Object.assign(draft, { model: target.model, text: start() });
  const area = h("textarea", {
    class: "input code-input",
    rows: 14,
    spellcheck: false,
    value: draft.text,
    autocomplete: "off",
    "aria-label": "The request, as JSON",
    dataset: { testid: "request" },
  });
  area.addEventListener("input", () => (draft.text = area.value));
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask.click();
  });
  const answer = h("section", { class: "answer", "aria-live": "polite", dataset: { testid: "answer" } });
  const write = (/** @type {string} */ text) => (draft.text = area.value = text);

  const run = async () => {
    try {
      parse(area.value);
      replace(answer, shown(await predict(chosen().target, area.value)));
    } catch (error) {
      replace(answer, errorBox(error));
    }
  };
  const ask = button("Predict", { kind: "primary", onClick: run, title: "Ctrl+Enter", testid: "predict" });
  const tools = h(
    "div",
    { class: "button-row" },
    ask,
    button("Format", { onClick: () => write(pretty(parse(area.value))), testid: "format" }),
    button("Sample request", { onClick: () => write(start()), testid: "sample", disabled: !sample }),
  );
  const hint = sample
    ? null
    : h(
        "p",
        { class: "muted" },
        "This version has no sample request. Write one as its model takes it; an exported folder can bring one, in ",
        "assets.extra/sample_request.json.",
      );
  return h("div", { class: "editor" }, h("div", { class: "editor-request" }, hint, area, tools), answer);
}

/** @param {import("./requests.js").Answered} result @returns {Dom.Child} */
function shown({ text, answer, ms }) {
  const predictions = Array.isArray(answer.predictions) ? answer.predictions : [];
  const whole = pretty(answer);
  return [
    h(
      "p",
      { class: "muted", dataset: { testid: "latency" } },
      `Answered in ${number(Math.round(ms * 10) / 10)} ms, ${bytes(text.length)}.`,
    ),
    predictions.length ? [predictionCharts(predictions), predictionTable(predictions.slice(0, 100))] : null,
    h("details", { class: "answer-json", open: whole.length < 4000 }, h("summary", null, "JSON"), codeBlock(whole)),
  ];
}
