// @ts-check
// Names that come from outside, such as keys of a keyboard, looked up in tables of this console.

/**
 * Whether a table has this name, as one of its own.
 * @template {object} Table
 * @param {Table} table
 * @param {PropertyKey} name
 * @returns {name is keyof Table}
 */
export function isKey(table, name) {
  return Object.hasOwn(table, name);
}
