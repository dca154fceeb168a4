// @ts-check
// Formats times, sizes and numbers. Unknown values are a dash.

const UNKNOWN = "–";
const UNITS = ["B", "KB", "MB", "GB", "TB", "PB"];
const NUMBER = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 4 });
const WHOLE = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const DAY_YEAR = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const FULL = new Intl.DateTimeFormat(undefined, {
  day: "numeric",
  month: "short",
  year: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});

/** "just now", "3 min ago", "yesterday 14:02", "12 May 14:02". @param {string | number | null | undefined} iso */
export function ago(iso) {
  const time = parse(iso);
  if (time === null) return UNKNOWN;
  const seconds = (Date.now() - time.getTime()) / 1000;
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 6 * 3600) return `${Math.floor(seconds / 3600)} h ago`;
  const midnight = new Date().setHours(0, 0, 0, 0);
  if (time.getTime() >= midnight) return `today ${CLOCK.format(time)}`;
  if (time.getTime() >= midnight - 86_400_000) return `yesterday ${CLOCK.format(time)}`;
  const sameYear = time.getFullYear() === new Date().getFullYear();
  return sameYear ? `${DAY.format(time)} ${CLOCK.format(time)}` : DAY_YEAR.format(time);
}

/** The whole date and time, to the second. @param {string | number | null | undefined} iso */
export function when(iso) {
  const time = parse(iso);
  return time === null ? UNKNOWN : FULL.format(time);
}

/** "0.4 s", "12 s", "3 min 20 s", "2 h 5 min", "3 d 4 h". @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (typeof seconds !== "number" || !Number.isFinite(seconds)) return UNKNOWN;
  const whole = Math.max(0, seconds);
  if (whole < 9.95) return `${Math.round(whole * 10) / 10} s`;
  const rounded = Math.round(whole);
  if (rounded < 60) return `${rounded} s`;
  if (rounded < 3600) return two(rounded, 60, "min", 1, "s");
  if (rounded < 86_400) return two(rounded, 3600, "h", 60, "min");
  return two(rounded, 86_400, "d", 3600, "h");
}

/** The seconds from one time to another, or to now. @param {string} [start] @param {string | null} [end] */
export function between(start, end) {
  const from = parse(start);
  if (from === null) return null;
  const to = parse(end) ?? new Date();
  return Math.max(0, (to.getTime() - from.getTime()) / 1000);
}

/** "512 B", "1.4 MB". @param {number | string | null | undefined} n */
export function bytes(n) {
  let size = finite(n);
  if (size === null) return UNKNOWN;
  let unit = 0;
  while (size >= 1000 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 || size >= 100 ? Math.round(size) : Math.round(size * 10) / 10} ${UNITS[unit]}`;
}

/** "12,345", "0.1234", "1.2e-7". @param {number | string | null | undefined} n */
export function number(n) {
  const value = finite(n);
  if (value === null) return n === null || n === undefined ? UNKNOWN : String(n);
  if (Number.isInteger(value) || Math.abs(value) >= 10_000) return WHOLE.format(value);
  if (value !== 0 && Math.abs(value) < 1e-4) return value.toExponential(2);
  return NUMBER.format(value);
}

/** A share from 0 to 1 as "97.3 %". @param {number | null | undefined} f */
export function percent(f) {
  if (typeof f !== "number" || !Number.isFinite(f)) return UNKNOWN;
  const value = f * 100;
  const digits = value === 0 || value >= 99.995 ? 0 : value < 10 || value > 99 ? 2 : 1;
  return `${Number(value.toFixed(digits))} %`;
}

/** "1 job", "3 jobs". @param {number} n @param {string} one @param {string} [many] */
export function count(n, one, many = `${one}s`) {
  return `${WHOLE.format(n)} ${n === 1 ? one : many}`;
}

/** The message of an error. @param {unknown} error */
export function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}

/** @param {string | number | null | undefined} value @returns {Date | null} */
function parse(value) {
  if (value === null || value === undefined || value === "") return null;
  const time = new Date(value);
  return Number.isNaN(time.getTime()) ? null : time;
}

/** @param {string | number | null | undefined} value @returns {number | null} */
function finite(value) {
  if (value === null || value === undefined || value === "") return null;
  const n = Number(value);
  return Number.isFinite(n) ? n : null;
}

/** @param {number} total @param {number} big @param {string} name @param {number} small @param {string} rest */
function two(total, big, name, small, rest) {
  const left = Math.floor((total % big) / small);
  return left === 0 ? `${Math.floor(total / big)} ${name}` : `${Math.floor(total / big)} ${name} ${left} ${rest}`;
}
