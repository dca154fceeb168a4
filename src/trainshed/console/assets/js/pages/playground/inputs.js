// @ts-check
// The form of a picture in a model's requests, from its sample request.

import { SIDE } from "./digits.js";

const PIXELS = SIDE * SIDE;
const COLOURS = 3;

/**
 * @typedef {{encode: (pixels: ArrayLike<number>) => Api.Sample, text: string}} PictureInput
 *   `encode` makes a request's body
 */

/**
 * How to send 784 values from 0 to 1 to a version. Throws an `Error` if it does not take pictures.
 * @param {Api.Sample | null | undefined} sample
 * @param {Record<string, Api.Signature>} [signatures]
 * @returns {PictureInput}
 */
export function pictureInput(sample, signatures = {}) {
  const instance = sample?.instances[0];
  if (!sample || instance === undefined) {
    throw new Error(
      "This version has no sample request, so how it takes a picture is not known. Use the JSON tab, or put " +
        "assets.extra/sample_request.json into the exported folder.",
    );
  }
  const inputs = isNamed(instance) ? instance : null;
  const name = inputs && inputName(inputs);
  const value = inputs === null || name === null ? instance : inputs[name];
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
    return { ...sample, instances: [name === null ? shaped : { ...inputs, [name]: shaped }] };
  };
  const as = name === null ? "as the instance itself" : `as ${name}`;
  return { encode, text: `${sides.join(" × ")} values from 0 to ${levels}, ${as}` };
}

/** @param {Api.Json} instance @returns {instance is Record<string, Api.Json>} */
function isNamed(instance) {
  return instance !== null && typeof instance === "object" && !Array.isArray(instance);
}

/**
 * The name of the input that can be a picture: the first of 784 values, else the first. null: there are none.
 * @param {Record<string, Api.Json>} inputs
 */
function inputName(inputs) {
  const names = Object.keys(inputs);
  return names.find((each) => isPicture(shape(inputs[each]))) ?? names[0] ?? null;
}

/** The lengths of nested arrays, from the outside in. @param {Api.Json} value @returns {number[]} */
function shape(value) {
  return Array.isArray(value) ? [value.length, ...(value.length ? shape(value[0]) : [])] : [];
}

/** @param {number[]} sides */
function isPicture(sides) {
  const long = sides.filter((side) => side !== 1);
  const coloured = long.length === 3 && sides[sides.length - 1] === COLOURS;
  const plain = coloured ? long.slice(0, 2) : long;
  return (plain.length === 1 && plain[0] === PIXELS) || (plain.length === 2 && plain.every((side) => side === SIDE));
}

/**
 * @param {Record<string, Api.Signature>} signatures
 * @param {string | undefined} signature
 * @param {string | null} name
 */
function typeOf(signatures, signature, name) {
  const chosen = signatures[signature ?? "serving_default"] ?? Object.values(signatures).at(0);
  const inputs = chosen?.inputs ?? {};
  const tensor = name === null ? Object.values(inputs).at(0) : inputs[name];
  return tensor?.dtype ?? "";
}

/** @param {Api.Json} value @param {string} type */
function wantsBytes(value, type) {
  return /^u?int/.test(type) || hasAbove(value, 2);
}

/** @param {Api.Json} value @param {number} limit @returns {boolean} */
function hasAbove(value, limit) {
  return Array.isArray(value) ? value.some((each) => hasAbove(each, limit)) : Number(value) > limit;
}

/**
 * Values laid out by rows; where there are colours, each pixel has its grey in all of them.
 * @param {number[]} values
 * @param {number[]} sides
 */
function nested(values, sides) {
  let at = 0;
  const coloured = sides.length > 2 && sides[sides.length - 1] === COLOURS;
  /** @param {number[]} rest @returns {Api.Json} */
  const build = (rest) => {
    if (coloured && rest.length === 1) {
      const grey = values[at++];
      return [grey, grey, grey];
    }
    if (!rest.length) return values[at++];
    return Array.from({ length: rest[0] }, () => build(rest.slice(1)));
  };
  return build(sides);
}

/** @param {Api.Json} instance @returns {string} */
function described(instance) {
  if (Array.isArray(instance)) return `${shape(instance).join(" × ")} values`;
  if (isNamed(instance)) {
    const names = Object.keys(instance);
    return names.length === 1
      ? `${names[0]}, ${described(instance[names[0]])}`
      : `${names.length} inputs (${names.slice(0, 6).join(", ")})`;
  }
  return typeof instance === "string" ? "a text" : "a single value";
}
