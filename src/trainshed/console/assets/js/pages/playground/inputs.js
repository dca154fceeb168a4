// @ts-check
// How a model takes a picture of a digit, read from the request that its host was warmed with.

import { SIDE } from "./digits.js";

const PIXELS = SIDE * SIDE;
const COLOURS = 3;

/**
 * @typedef {{encode: (pixels: ArrayLike<number>) => any, text: string}} PictureInput `encode` makes a request's body
 */

/**
 * How to ask a version about 784 values from 0 to 1. An `Error` with a sentence if it takes something else.
 * @param {any} sample the body of a request, or null
 * @param {Record<string, any>} [signatures]
 * @returns {PictureInput}
 */
export function pictureInput(sample, signatures = {}) {
  const instance = sample?.instances?.[0];
  if (instance === undefined) {
    throw new Error(
      "This version has no sample request, so how it takes a picture is not known. Use the JSON tab, or put " +
        "assets.extra/sample_request.json into the exported folder.",
    );
  }
  const name = inputName(instance);
  const value = name === null ? instance : instance[name];
  const sides = shape(value);
  if (!isPicture(sides)) {
    throw new Error(`This model takes ${described(instance)}, not a picture of 28 × 28. Use the JSON tab to ask it.`);
  }
  const levels = wantsBytes(value, typeOf(signatures, sample.signature_name, name)) ? 255 : 1;
  const encode = (/** @type {ArrayLike<number>} */ pixels) => {
    const values = Array.from(pixels, (pixel) =>
      levels === 1 ? Number(pixel.toFixed(4)) : Math.round(pixel * levels),
    );
    const shaped = nested(values, sides);
    return { ...sample, instances: [name === null ? shaped : { ...instance, [name]: shaped }] };
  };
  const as = name === null ? "as the instance itself" : `as ${name}`;
  return { encode, text: `${sides.join(" × ")} values from 0 to ${levels}, ${as}` };
}

/** The name of the input that can be a picture: the first of 784 values, else the first. null: there are no names. */
function inputName(/** @type {any} */ instance) {
  if (instance === null || typeof instance !== "object" || Array.isArray(instance)) return null;
  const names = Object.keys(instance);
  return names.find((each) => isPicture(shape(instance[each]))) ?? names[0] ?? null;
}

/** The lengths of nested arrays, from the outside in. @param {any} value @returns {number[]} */
export function shape(value) {
  return Array.isArray(value) ? [value.length, ...(value.length ? shape(value[0]) : [])] : [];
}

/** @param {number[]} sides */
function isPicture(sides) {
  const long = sides.filter((side) => side !== 1);
  const coloured = long.length === 3 && sides[sides.length - 1] === COLOURS;
  const plain = coloured ? long.slice(0, 2) : long;
  return (plain.length === 1 && plain[0] === PIXELS) || (plain.length === 2 && plain.every((side) => side === SIDE));
}

/** @param {any} signatures @param {string | undefined} signature @param {string | null} name */
function typeOf(signatures, signature, name) {
  const chosen = signatures[signature ?? "serving_default"] ?? Object.values(signatures)[0];
  const inputs = chosen?.inputs ?? {};
  return String((name === null ? Object.values(inputs)[0] : inputs[name])?.dtype ?? "");
}

/** @param {any} value @param {string} type */
function wantsBytes(value, type) {
  return /^u?int/.test(type) || value.flat(Infinity).some((/** @type {any} */ each) => each > 2);
}

/** Values laid out by rows; where there are colours, each pixel has its grey in all of them. */
function nested(/** @type {number[]} */ values, /** @type {number[]} */ sides) {
  let at = 0;
  const coloured = sides.length > 2 && sides[sides.length - 1] === COLOURS;
  const build = (/** @type {number[]} */ rest) => {
    if (coloured && rest.length === 1) {
      const grey = values[at++];
      return [grey, grey, grey];
    }
    if (!rest.length) return values[at++];
    return Array.from({ length: rest[0] }, () => build(rest.slice(1)));
  };
  return build(sides);
}

/** @param {any} instance @returns {string} */
function described(instance) {
  if (Array.isArray(instance)) return `${shape(instance).join(" × ")} values`;
  if (instance !== null && typeof instance === "object") {
    const names = Object.keys(instance);
    return names.length === 1
      ? `${names[0]}, ${described(instance[names[0]])}`
      : `${names.length} inputs (${names.slice(0, 6).join(", ")})`;
  }
  return typeof instance === "string" ? "a text" : "a single value";
}
