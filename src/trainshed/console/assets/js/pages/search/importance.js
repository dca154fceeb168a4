// @ts-check
// How much each parameter matters: PED-ANOVA (Watanabe, Bansal, Hutter: "PED-ANOVA", IJCAI 2023). Where the values of
// the best trials lie differently from those of all trials, the parameter matters. Pure, without DOM.

/** @typedef {import("./search.js").Search} Search */
/** @typedef {import("./search.js").Column} Column */

export const LEAST = 10; // measured trials
const BEST_SHARE = 0.1;
const LEAST_BEST = 4;
const CELLS = 50;

/**
 * The share of each parameter, which add up to 1; null with too few trials.
 * @param {Search} search
 * @returns {{name: string, share: number}[] | null} the most important first
 */
export function importance(search) {
  const all = search.ranked;
  if (all.length < LEAST) return null;
  const best = all.slice(0, Math.max(LEAST_BEST, Math.round(all.length * BEST_SHARE)));
  const found = search.parameters.map((column) => ({ name: column.axis.title, share: difference(column, best, all) }));
  const sum = found.reduce((total, { share }) => total + share, 0);
  return found
    .map(({ name, share }) => ({ name, share: sum > 0 ? share / sum : 0 }))
    .sort((a, b) => b.share - a.share || a.name.localeCompare(b.name));
}

/**
 * The Pearson divergence of the density of the best trials from that of all.
 * @param {Column} column @param {number[]} best @param {number[]} all
 */
function difference(column, best, all) {
  const [of, from] = [best, all].map((indexes) => density(column, indexes));
  return from.reduce((sum, share, cell) => sum + share * (of[cell] / share - 1) ** 2, 0);
}

/**
 * The density on the cells of an axis: counts of a list, and else a sum of normal densities by Scott's rule. One more
 * trial is spread evenly over all cells, so that none is empty.
 * @param {Column} column @param {number[]} indexes
 * @returns {number[]} sums up to 1
 */
function density({ axis, values, units }, indexes) {
  const known = indexes.filter((index) => !Number.isNaN(units[index]));
  const count = axis.list ? axis.list.length : CELLS;
  const cells = new Array(count).fill(1 / count);
  const places = known.map((index) => units[index]);
  const width = Math.max(1 / CELLS, deviation(places) * Math.max(1, known.length) ** -0.2);
  for (const index of known) {
    if (axis.list) cells[values[index]] += 1;
    else spread(cells, units[index], width);
  }
  return cells.map((each) => each / (known.length + 1));
}

/**
 * Add a normal density that sums up to 1 within the axis.
 * @param {number[]} cells
 * @param {number} unit
 * @param {number} width
 */
function spread(cells, unit, width) {
  const weights = cells.map((_, cell) => Math.exp(-0.5 * (((cell + 0.5) / cells.length - unit) / width) ** 2));
  const sum = weights.reduce((total, each) => total + each, 0);
  weights.forEach((each, cell) => (cells[cell] += each / sum));
}

/** @param {number[]} values */
function deviation(values) {
  const mean = values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return Math.sqrt(squares / Math.max(1, values.length - 1));
}
