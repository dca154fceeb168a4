// @ts-check
// Ticks of axes and their labels.

/** @type {number[]} steps of a time axis, in milliseconds */
const TIME_STEPS = [
  1,
  2,
  5,
  10,
  15,
  30, // seconds
  60,
  120,
  300,
  600,
  900,
  1800, // minutes
  3600,
  7200,
  10_800,
  21_600,
  43_200, // hours
  86_400,
  172_800,
  604_800,
  1_209_600,
  2_592_000, // days
].map((seconds) => seconds * 1000);

/**
 * About `wanted` round numbers from `low` to `high`, with the ends extended to the first and the last.
 * @param {number} low
 * @param {number} high
 * @param {number} wanted
 * @returns {{low: number, high: number, ticks: number[]}}
 */
export function niceScale(low, high, wanted) {
  if (low === high) {
    const room = low === 0 ? 1 : Math.abs(low) * 0.1;
    return niceScale(low - room, high + room, wanted);
  }
  const step = niceStep((high - low) / Math.max(1, wanted));
  const first = Math.floor(low / step + 1e-9);
  const last = Math.ceil(high / step - 1e-9);
  const ticks = Array.from({ length: last - first + 1 }, (_, index) => rounded((first + index) * step));
  return { low: ticks[0], high: ticks[ticks.length - 1], ticks };
}

/**
 * Round numbers within `low` and `high`, for an axis that ends with its data.
 * @param {number} low
 * @param {number} high
 * @param {number} wanted
 * @returns {number[]}
 */
export function innerTicks(low, high, wanted) {
  if (low === high) return [low];
  return niceScale(low, high, wanted).ticks.filter((tick) => tick >= low && tick <= high);
}

/**
 * Times of day within `low` and `high`, in milliseconds, at round local times.
 * @param {number} low
 * @param {number} high
 * @param {number} wanted
 * @returns {number[]}
 */
export function timeTicks(low, high, wanted) {
  const least = (high - low) / Math.max(1, wanted);
  const step = TIME_STEPS.find((each) => each >= least) ?? niceStep(least / 86_400_000) * 86_400_000;
  const shift = new Date(low).getTimezoneOffset() * 60_000;
  const ticks = [];
  for (let tick = Math.ceil((low - shift) / step) * step + shift; tick <= high; tick += step) ticks.push(tick);
  return ticks;
}

/** The time format of an axis that spans `span` milliseconds. @param {number} span */
export function timeLabel(span) {
  if (span > 2 * 86_400_000) return new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
  const seconds = span < 10 * 60_000 ? /** @type {const} */ ({ second: "2-digit" }) : {};
  return new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", ...seconds, hourCycle: "h23" });
}

/** "1.5k", "2M", "0.25", "1e-5": short, for ticks. @param {number} value */
export function shortNumber(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e12)) return value.toExponential(1).replace(".0e", "e").replace("e+", "e");
  for (const [limit, unit] of /** @type {[number, string][]} */ ([
    [1e9, "G"],
    [1e6, "M"],
    [1e4, "k"],
  ])) {
    if (size >= limit) return `${rounded(value / (limit === 1e4 ? 1e3 : limit))}${unit}`;
  }
  return String(rounded(value));
}

/** @param {number} raw @returns {number} 1, 2 or 5 times a power of ten, at least `raw` */
function niceStep(raw) {
  const power = 10 ** Math.floor(Math.log10(raw));
  const share = raw / power;
  return (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10) * power;
}

/** Without binary rounding errors. @param {number} value */
function rounded(value) {
  return Number(value.toPrecision(12));
}
