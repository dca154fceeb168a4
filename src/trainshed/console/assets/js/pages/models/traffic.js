// @ts-check
// Requests, latencies and errors by the minute, as series for charts.

const MINUTE = 60_000;
const MINUTES = 60;

/** The minutes of the last hour, oldest first, as milliseconds. @param {number} [now] */
function lastHour(now = Date.now()) {
  const last = Math.floor(now / MINUTE) * MINUTE;
  return Array.from({ length: MINUTES }, (_, at) => last - (MINUTES - 1 - at) * MINUTE);
}

/** @typedef {Api.ModelDetails["traffic"]} Traffic */

/** @param {Api.Traffic} version */
function byMinute(version) {
  return new Map(version.minutes.map((each) => [Date.parse(each.time), each]));
}

/** Requests of all versions in each of the last 60 minutes. @param {Traffic} traffic @returns {number[]} */
export function requestsByMinute(traffic) {
  const versions = Object.values(traffic).map(byMinute);
  return lastHour().map((minute) => versions.reduce((sum, version) => sum + (version.get(minute)?.count ?? 0), 0));
}

/**
 * Totals of the hour. Percentiles are those of the version with the most requests.
 * @param {Traffic} traffic
 */
export function totals(traffic) {
  const versions = Object.values(traffic);
  const sum = (/** @type {"count" | "errors"} */ name) => versions.reduce((all, each) => all + each[name], 0);
  const busiest = [...versions].sort((a, b) => b.count - a.count).at(0);
  return { count: sum("count"), errors: sum("errors"), p50: busiest?.p50Ms ?? 0, p99: busiest?.p99Ms ?? 0 };
}

/**
 * Series for three charts: requests a minute, milliseconds, errors a minute; a line for each version.
 * @param {Traffic} traffic
 */
export function trafficSeries(traffic) {
  const hour = lastHour();
  const versions = Object.entries(traffic).map(([name, version]) => ({ name, minutes: byMinute(version) }));
  const counted = (/** @type {"count" | "errors"} */ what) =>
    versions.map(({ name, minutes }) => ({
      name,
      points: hour.map((minute) => /** @type {[number, number]} */ ([minute, minutes.get(minute)?.[what] ?? 0])),
    }));
  const timed = (/** @type {"p50Ms" | "p99Ms"} */ what, /** @type {string} */ word) =>
    versions.map(({ name, minutes }) => ({
      name: `${name} ${word}`,
      points: hour.map(
        (minute) => /** @type {[number, number | null]} */ ([minute, minutes.get(minute)?.[what] ?? null]),
      ),
    }));
  return {
    requests: counted("count"),
    errors: counted("errors"),
    latency: versions.length ? [...timed("p50Ms", "p50"), ...timed("p99Ms", "p99")] : [],
  };
}
