// @ts-check
// Safe lookups of external names, such as keyboard keys, in tables.

/**
 * Whether a table has this name as its own property.
 * @template {object} Table
 * @param {Table} table
 * @param {PropertyKey} name
 * @returns {name is keyof Table}
 */
export function isKey(table, name) {
  return Object.hasOwn(table, name);
}
