// @ts-check
// What a model reads in a picture: the picture as it was sent, the digit, ten bars, and how long it took.

import { barChart } from "../../charts.js";
import { h, replace } from "../../dom.js";
import { number, percent } from "../../format.js";
import { errorBox } from "../../parts.js";
import { digitOf, largest, probabilities, vectorOf } from "./answers.js";
import { SIDE } from "./digits.js";
import { pictureInput } from "./inputs.js";
import { latest, predict } from "./requests.js";

const DIGITS = [..."0123456789"];

/**
 * @param {() => import("./requests.js").Chosen} chosen
 * @param {string} hint what to do while there is nothing to read
 * @returns {HTMLElement & {read: (pixels: Float32Array | null) => void}}
 */
export function reading(chosen, hint) {
  const sent = h("canvas", {
    class: "sent",
    width: SIDE,
    height: SIDE,
    role: "img",
    "aria-label": "The picture that is sent, 28 by 28",
    dataset: { testid: "sent" },
  });
  const digit = h("output", { class: "digit", dataset: { testid: "digit" } }, "–");
  const sure = h("p", { class: "digit-sure", dataset: { testid: "sure" } });
  const how = h("p", { class: "muted small", dataset: { testid: "how" } });
  const bars = barChart({ labels: DIGITS, values: DIGITS.map(() => 0), format: percent, highlight: -1, max: 1 });
  const problem = h("div", { class: "reading-problem" });
  const element = h(
    "section",
    { class: "card reading", "aria-label": "What the model reads" },
    h(
      "div",
      { class: "reading-head" },
      h("figure", { class: "reading-sent" }, sent, h("figcaption", { class: "muted small" }, "sent")),
      h("div", { class: "reading-digit", "aria-live": "polite" }, digit, sure),
    ),
    problem,
    h("div", { class: "reading-bars", dataset: { testid: "bars" } }, bars),
    how,
  );

  const show = (/** @type {number | null} */ best, /** @type {number[]} */ values, /** @type {string} */ text) => {
    digit.textContent = best === null ? "–" : String(best);
    digit.classList.toggle("digit-none", best === null);
    sure.textContent = text;
    bars.update(values, best ?? -1);
  };
  const nothing = (/** @type {string} */ text) =>
    show(
      null,
      DIGITS.map(() => 0),
      text,
    );

  let empty = true;
  const ask = latest(async (/** @type {Float32Array | null} */ pixels) => {
    if (!pixels) return;
    const { target, sample, signatures } = chosen();
    try {
      const input = pictureInput(sample, signatures);
      const { answer, ms } = await predict(target, JSON.stringify(input.encode(pixels)));
      if (empty) return; // it was cleared meanwhile
      replace(problem);
      const said = read(answer.predictions?.[0]);
      show(said.best, said.values, said.text);
      how.textContent = `Answered in ${number(Math.round(ms * 10) / 10)} ms. Sent: ${input.text}.${said.note}`;
    } catch (error) {
      if (empty) return;
      nothing("");
      how.textContent = "";
      replace(problem, errorBox(error));
    }
  });

  const take = (/** @type {Float32Array | null} */ pixels) => {
    paint(sent, pixels);
    empty = pixels === null;
    if (!pixels) {
      nothing(hint);
      how.textContent = "";
      replace(problem);
    }
    ask(pixels);
  };
  take(null);
  return Object.assign(element, { read: take });
}

/**
 * @param {Api.Json | undefined} prediction
 * @returns {{best: number | null, values: number[], text: string, note: string}}
 */
function read(prediction) {
  const vector = vectorOf(prediction, DIGITS.length);
  if (vector) {
    const { values, softmax } = probabilities(vector.values);
    const best = largest(values);
    const note = softmax ? ` The bars are the softmax of ${vector.name || "its answer"}.` : "";
    return { best, values, text: percent(values[best]), note };
  }
  const digit = digitOf(prediction);
  if (digit === null) {
    throw new Error("The answer names no digit and has no vector of ten values. The JSON tab shows the whole of it.");
  }
  const values = DIGITS.map((_, at) => (at === digit ? 1 : 0));
  return { best: digit, values, text: "", note: " This model names a digit, and says nothing about how sure it is." };
}

/** @param {HTMLCanvasElement} canvas @param {Float32Array | null} pixels */
function paint(canvas, pixels) {
  const image = new ImageData(SIDE, SIDE);
  for (let at = 0; at < SIDE * SIDE; at += 1) {
    const grey = Math.round((pixels?.[at] ?? 0) * 255);
    image.data.set([grey, grey, grey, 255], at * 4);
  }
  canvas.getContext("2d")?.putImageData(image, 0, 0);
}
