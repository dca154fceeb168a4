/**
 * A path whose values are escaped, whatever they hold: path`/v1/projects/${project}/models/${model}`.
 * @param {TemplateStringsArray} parts
 * @param {...(string | number)} values
 * @returns {string}
 */
export function path(parts, ...values) {
  return String.raw({ raw: parts }, ...values.map((value) => encodeURIComponent(String(value).toWellFormed())));
}
