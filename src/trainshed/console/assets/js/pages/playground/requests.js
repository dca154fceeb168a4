// @ts-check
// Asking a version, and the JSON that goes to it and comes back: predictions may hold NaN, which JSON does not have.

import { postText } from "../../api.js";
import { messageOf } from "../../format.js";
import { path } from "../../paths.js";

/** @typedef {{project: string, model: string, version: string}} Target no version: the model's default */
/**
 * @typedef {{target: Target, sample: Api.Sample | null, signatures: Record<string, Api.Signature>}} Chosen
 *   a version with its sample request and signatures
 */
/** @typedef {{text: string, answer: Api.Answer, ms: number}} Answered */

const WORDS = /"(?:[^"\\]|\\.)*"|-?\b(?:NaN|Infinity)\b/g;

/**
 * Parse JSON. Bare NaN, Infinity and -Infinity become strings. Throws an error if it is invalid. As in api.js, the
 * caller names the type.
 * @template Shape
 * @param {string} text
 * @returns {Shape}
 */
export function parse(text) {
  try {
    return JSON.parse(text.replace(WORDS, (word) => (word.startsWith('"') ? word : `"${word}"`)));
  } catch (error) {
    throw new Error(`This is not JSON: ${messageOf(error)}`);
  }
}

/**
 * Formatted JSON: an array of plain values stays on one line.
 * @param {unknown} value
 * @param {string} [indent]
 * @returns {string}
 */
export function pretty(value, indent = "") {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const deeper = `${indent}  `;
  if (Array.isArray(value)) {
    if (!value.some((each) => each !== null && typeof each === "object"))
      return `[${value.map((each) => pretty(each)).join(", ")}]`;
    return `[\n${value.map((each) => deeper + pretty(each, deeper)).join(",\n")}\n${indent}]`;
  }
  const entries = Object.entries(value);
  if (!entries.length) return "{}";
  const lines = entries.map(([name, each]) => `${deeper}${JSON.stringify(name)}: ${pretty(each, deeper)}`);
  return `{\n${lines.join(",\n")}\n${indent}}`;
}

/**
 * @param {Target} target
 * @param {string} body
 * @returns {Promise<Answered>}
 */
export async function predict({ project, model, version }, body) {
  const name = path`/v1/projects/${project}/models/${model}` + (version ? path`/versions/${version}` : "");
  const began = performance.now();
  const text = await postText(`${name}:predict`, body);
  return { text, answer: parse(text), ms: performance.now() - began };
}

/**
 * A function that runs `work` for its latest argument: one run at a time, and arguments in between are skipped.
 * @template T
 * @param {(value: T) => Promise<void>} work
 * @returns {(value: T) => void}
 */
export function latest(work) {
  let busy = false;
  /** @type {{value: T} | null} */
  let next = null;
  const go = async () => {
    busy = true;
    while (next) {
      const { value } = next;
      next = null;
      await work(value);
    }
    busy = false;
  };
  return (value) => {
    next = { value };
    if (!busy) void go();
  };
}
