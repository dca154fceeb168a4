// @ts-check
// Line charts in SVG. Series differ by colour and, from the seventh on, by dashes; the colours are distinct for
// colour-blind people.

import { clear, h, replace, s } from "./dom.js";
import { number } from "./format.js";
import { isKey } from "./lookup.js";
import { innerTicks, niceScale, shortNumber, timeLabel, timeTicks } from "./scales.js";

export { barChart, spark } from "./bars.js";

const COLOURS = 6;
const MARGIN = { top: 10, right: 12, bottom: 24, left: 52 };
const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
  day: "numeric",
  month: "short",
});

/** @typedef {{name: string, points: [x: number | string, y: Api.Measure | null][], colour?: number}} Series */
/** @typedef {[number, number]} Point */
/** @typedef {{name: string, look: number, dashed: boolean, points: Point[][], last: Point | null}} Line */
/** @typedef {ReturnType<LineChart["scales"]>} Scale */
/** @typedef {HTMLElement & {update: (series: Series[], reach?: number) => void}} ChartElement */

/**
 * @typedef {{series: Series[], x?: "time" | "number", yFormat?: (y: number) => string, height?: number, title?: string,
 *   label?: string, xTitle?: string, zero?: boolean, wholeX?: boolean, reach?: number}} Options `label`: its name,
 *   where a heading beside it shows that; `zero`: the y axis starts at 0; `wholeX`: the x axis covers all points,
 *   including gaps at its ends; `reach`: the minimum upper end of the y axis, so that charts side by side can have one
 *   scale
 */

/**
 * Lines over time (`x: "time"`, milliseconds or RFC 3339) or over a number such as the step. Null and NaN
 * make gaps. Hover, or the arrow keys, show the values at one x; the legend hides and shows series; screen readers get
 * a table of the last values. `.update(series)` replaces the series. `colour` fixes a series' colour while others come
 * and go.
 * @param {Options} options
 * @returns {ChartElement}
 */
export function lineChart(options) {
  const chart = new LineChart(options);
  const update = (/** @type {Series[]} */ series, /** @type {number} */ reach = chart.reach) => {
    chart.reach = reach;
    chart.update(series);
  };
  return Object.assign(chart.element, { update });
}

class LineChart {
  /** @param {Options} options */
  constructor(options) {
    this.x = options.x ?? "number";
    this.yFormat = options.yFormat ?? number;
    this.xTitle = options.xTitle ?? (this.x === "time" ? "time" : "step");
    this.zero = options.zero ?? false;
    this.wholeX = options.wholeX ?? false;
    this.given = /** @type {number[]} */ ([]); // every x, that of a gap too
    this.reach = options.reach ?? -Infinity;
    this.height = options.height ?? 200;
    this.title = options.title ?? "";
    this.label = options.label ?? (this.title || "Chart");
    this.width = 0;
    this.lines = /** @type {Line[]} */ ([]);
    this.off = /** @type {Set<string>} */ (new Set());
    this.at = /** @type {number | null} */ (null); // the x that is looked at
    this.scale = /** @type {Scale | null} */ (null);
    this.drawn = ""; // the names in the legend
    this.svg = s("svg", { class: "chart-svg", height: this.height, "aria-hidden": "true" });
    this.cross = s("g", { class: "chart-cross" });
    this.tip = h("div", { class: "chart-tip", hidden: true });
    this.stage = this.makeStage();
    this.legend = h("div", { class: "chart-legend" });
    this.table = h("table", { class: "sr-only" });
    const head = this.title ? h("figcaption", { class: "chart-title" }, this.title) : null;
    this.element = h("figure", { class: "chart" }, head, this.stage, this.legend, this.table);
    this.update(options.series);
    new ResizeObserver(() => this.resized()).observe(this.stage);
  }

  makeStage() {
    return h(
      "div",
      {
        class: "chart-stage",
        tabIndex: 0,
        role: "group",
        "aria-label": `${this.label}. Arrow keys show values.`,
        on: {
          pointermove: (e) => this.look(this.nearest(e.clientX)),
          pointerleave: () => this.look(null),
          blur: () => this.look(null),
          keydown: (e) => this.key(e),
        },
        style: { height: `${this.height}px` },
      },
      this.svg,
      this.tip,
    );
  }

  /** @param {Series[]} series */
  update(series) {
    this.lines = series.map((each, index) => line(each, index));
    this.given = series.flatMap((each) => each.points.map(([x]) => (typeof x === "string" ? Date.parse(x) : x)));
    this.drawLegend();
    this.drawTable();
    this.draw();
  }

  resized() {
    const width = Math.floor(this.stage.clientWidth);
    if (width === this.width || width === 0) return;
    this.width = width;
    this.draw();
  }

  visible() {
    return this.lines.filter((each) => !this.off.has(each.name));
  }

  draw() {
    if (this.width === 0) return;
    clear(this.svg);
    this.svg.setAttribute("width", String(this.width));
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    const points = this.visible().flatMap((each) => each.points.flat());
    if (points.length === 0) {
      this.scale = null;
      this.svg.append(
        s("text", { class: "chart-none", x: this.width / 2, y: this.height / 2 }, "Nothing measured yet"),
      );
      this.look(null);
      return;
    }
    const scale = this.scales(points);
    this.scale = scale;
    this.svg.append(...this.axes(scale), ...this.visible().map((each) => path(each, scale)), this.cross);
    this.look(this.at);
  }

  /** @param {Point[]} points */
  scales(points) {
    let [left, right, low, high] = [Infinity, -Infinity, this.zero ? 0 : Infinity, this.zero ? 0 : -Infinity];
    for (const x of this.wholeX ? this.given : []) {
      left = Math.min(left, x);
      right = Math.max(right, x);
    }
    high = Math.max(high, this.reach);
    for (const [x, y] of points) {
      left = Math.min(left, x);
      right = Math.max(right, x);
      low = Math.min(low, y);
      high = Math.max(high, y);
    }
    const wide = this.width - MARGIN.left - MARGIN.right;
    const tall = this.height - MARGIN.top - MARGIN.bottom;
    const y = niceScale(low, this.zero && high === low ? 1 : high, Math.max(2, Math.floor(tall / 42)));
    const span = right - left || 1;
    return {
      left,
      right,
      ticks: y.ticks,
      px: (/** @type {number} */ value) => MARGIN.left + (left === right ? wide / 2 : ((value - left) / span) * wide),
      py: (/** @type {number} */ value) => MARGIN.top + tall - ((value - y.low) / (y.high - y.low)) * tall,
    };
  }

  /** @param {Scale} scale */
  axes({ left, right, ticks, px, py }) {
    const wanted = Math.max(2, Math.floor((this.width - MARGIN.left) / 90));
    const labels = timeLabel(right - left);
    const across = this.x === "time" ? timeTicks(left, right, wanted) : innerTicks(left, right, wanted);
    const text = (/** @type {number} */ tick) => (this.x === "time" ? labels.format(tick) : shortNumber(tick));
    const end = this.width - MARGIN.right;
    return [
      ...ticks.map((tick) => s("line", { class: "chart-grid", x1: MARGIN.left, x2: end, y1: py(tick), y2: py(tick) })),
      ...ticks.map((tick) =>
        s(
          "text",
          { class: "chart-tick", x: MARGIN.left - 8, y: py(tick) + 4, "text-anchor": "end" },
          this.tickText(tick),
        ),
      ),
      ...across.map((tick) =>
        s(
          "text",
          { class: "chart-tick", x: Math.min(px(tick), end - 10), y: this.height - 7, "text-anchor": "middle" },
          text(tick),
        ),
      ),
    ];
  }

  /** @param {number} tick */
  tickText(tick) {
    return this.yFormat === number ? shortNumber(tick) : this.yFormat(tick);
  }

  /** The x of the point nearest to a position on the screen. @param {number} clientX */
  nearest(clientX) {
    if (!this.scale) return null;
    const place = clientX - this.svg.getBoundingClientRect().left;
    return closest(this.xs(), place, this.scale.px);
  }

  /** The x of all points of visible series, in order. */
  xs() {
    return [...new Set(this.visible().flatMap((each) => each.points.flat().map(([x]) => x)))].sort((a, b) => a - b);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const xs = this.xs();
    const last = xs.length - 1;
    const now = this.at === null ? last + 1 : xs.indexOf(this.at);
    const to = { ArrowLeft: Math.max(0, now - 1), ArrowRight: Math.min(last, now + 1), Home: 0, End: last };
    if (event.key === "Escape") this.look(null);
    if (!isKey(to, event.key) || last < 0) return;
    event.preventDefault();
    this.look(xs[to[event.key]]);
  }

  /** Show the values at an x, or none. @param {number | null} at */
  look(at) {
    const { scale } = this;
    this.at = at;
    this.tip.hidden = at === null || !scale;
    clear(this.cross);
    if (at === null || !scale) return;
    const { px, py } = scale;
    const found = this.visible().flatMap((each) => {
      const point = near(each, at, scale);
      return point ? [{ each, point }] : [];
    });
    this.cross.append(s("line", { x1: px(at), x2: px(at), y1: MARGIN.top, y2: this.height - MARGIN.bottom }));
    for (const { each, point } of found) {
      this.cross.append(s("circle", { class: `series-${each.look}`, cx: px(point[0]), cy: py(point[1]), r: 3.5 }));
    }
    const head = this.x === "time" ? CLOCK.format(at) : `${this.xTitle} ${number(at)}`;
    replace(
      this.tip,
      h("div", { class: "chart-tip-head" }, head),
      found.map(({ each, point }) =>
        h(
          "div",
          { class: "chart-tip-row" },
          swatch(each),
          h("span", { class: "chart-tip-name" }, each.name),
          h("b", null, this.yFormat(point[1])),
        ),
      ),
    );
    const side = px(at) > this.width / 2;
    this.tip.style.left = side ? "" : `${px(at) + 12}px`;
    this.tip.style.right = side ? `${this.width - px(at) + 12}px` : "";
  }

  drawLegend() {
    this.legend.hidden = this.lines.length < 2;
    const names = this.lines.map((each) => each.name).join("\n");
    if (names === this.drawn) return;
    this.drawn = names;
    replace(
      this.legend,
      this.lines.map((each) => {
        const toggle = () => {
          const hidden = !this.off.delete(each.name);
          if (hidden) this.off.add(each.name);
          button.setAttribute("aria-pressed", String(!hidden));
          this.draw();
        };
        const pressed = String(!this.off.has(each.name));
        const button = h(
          "button",
          { class: "legend-item", type: "button", "aria-pressed": pressed, on: { click: toggle } },
          swatch(each),
          each.name,
        );
        return button;
      }),
    );
  }

  drawTable() {
    replace(
      this.table,
      h("caption", null, `${this.label}, last values`),
      h(
        "tbody",
        null,
        this.lines.map((each) =>
          h(
            "tr",
            null,
            h("th", { scope: "row" }, each.name),
            h("td", null, each.last ? this.yFormat(each.last[1]) : "nothing yet"),
          ),
        ),
      ),
    );
  }
}

/** @param {Line} each @param {Scale} scale */
function path(each, { px, py }) {
  const at = (/** @type {Point} */ [x, y]) => `${px(x).toFixed(1)} ${py(y).toFixed(1)}`;
  const group = s("g", { class: `chart-line series-${each.look}${each.dashed ? " series-dashed" : ""}` });
  for (const run of each.points) {
    if (run.length === 1) group.append(s("circle", { cx: px(run[0][0]), cy: py(run[0][1]), r: 2.5 }));
    else group.append(s("path", { d: `M${run.map(at).join("L")}` }));
  }
  return group;
}

/** @param {Series} series @param {number} index @returns {Line} */
function line(series, index) {
  const place = series.colour ?? index;
  /** @type {Point[][]} */
  const runs = [];
  /** @type {Point[] | null} */
  let run = null;
  for (const [x, y] of series.points) {
    const at = typeof x === "string" ? Date.parse(x) : x;
    const value = y === null ? NaN : Number(y);
    if (!Number.isFinite(value) || !Number.isFinite(at)) {
      run = null;
      continue;
    }
    if (run === null) runs.push((run = []));
    run.push([at, value]);
  }
  return {
    name: series.name,
    look: (place % COLOURS) + 1,
    dashed: place >= COLOURS,
    points: runs,
    last: runs.at(-1)?.at(-1) ?? null,
  };
}

/**
 * The point of a line at an x, or the one beside it if that is near.
 * @param {Line} each
 * @param {number} at
 * @param {Scale} scale
 */
function near(each, at, scale) {
  const points = each.points.flat();
  const x = closest(
    points.map((point) => point[0]),
    scale.px(at),
    scale.px,
  );
  if (x === null || Math.abs(scale.px(x) - scale.px(at)) > 24) return null;
  return points.find((point) => point[0] === x) ?? null;
}

/** By bisection. @param {number[]} xs in order @param {number} place on the screen @param {(x: number) => number} px */
function closest(xs, place, px) {
  if (xs.length === 0) return null;
  let [low, high] = [0, xs.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (px(xs[middle]) < place) low = middle;
    else high = middle;
  }
  return Math.abs(px(xs[low]) - place) <= Math.abs(px(xs[high]) - place) ? xs[low] : xs[high];
}

/** @param {Line} each */
function swatch(each) {
  return s(
    "svg",
    {
      class: `swatch series-${each.look}${each.dashed ? " series-dashed" : ""}`,
      viewBox: "0 0 14 8",
      "aria-hidden": "true",
    },
    s("path", { d: "M1 4h12" }),
  );
}
