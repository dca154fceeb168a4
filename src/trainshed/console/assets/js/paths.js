// @ts-check
// URL paths and resource names.

/** The last part of a resource's name: "v1" of projects/P/models/M/versions/v1. @param {string} resource */
export function lastPart(resource) {
  return resource.slice(resource.lastIndexOf("/") + 1);
}

/**
 * A path with escaped values: path`/v1/projects/${project}/models/${model}`.
 * @param {TemplateStringsArray} parts
 * @param {...(string | number)} values
 * @returns {string}
 */
export function path(parts, ...values) {
  return String.raw({ raw: parts }, ...values.map((value) => encodeURIComponent(String(value).toWellFormed())));
}
