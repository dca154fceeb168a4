// @ts-check
// Tables with in-place updates: rows, selection and focus are kept by key.

import { h, newId, replace } from "./dom.js";
import { RowWindow } from "./rowwindow.js";

/** @typedef {string | number | null | undefined} Sortable */

/**
 * @template Row
 * @typedef {{title: string | Node, cell: (row: Row) => Dom.Child, sort?: (row: Row) => Sortable,
 *   class?: string, label?: string}} Column `label` names a column whose title is not text
 */

/**
 * @template Row
 * @typedef {{columns: Column<Row>[], key: (row: Row) => string, rows: Row[], onOpen?: (row: Row) => void,
 *   select?: boolean, onSelect?: (rows: Row[]) => void, empty?: Node | string, caption?: string,
 *   testid?: string, windowed?: boolean}} Options
 */

/**
 * @template Row
 * @typedef {HTMLElement & {update: (rows: Row[]) => void, selected: () => Row[], deselect: () => void,
 *   range: () => [number, number]}} TableElement
 */

/**
 * @template Row
 * @typedef {{tr: HTMLTableRowElement, row: Row, sign: string, tick: HTMLInputElement | null}} Line
 */

/**
 * A table. `.update(rows)` replaces the rows; an unchanged cell keeps its elements and listeners, so listeners should
 * use the row's key. `.selected()` returns the selected rows, `.deselect()` clears the selection. Up and down arrows
 * move between rows. A `windowed` table renders only the rows near the screen, and `.range()` returns their indexes:
 * from the first to before the last.
 * @template Row
 * @param {Options<Row>} options
 * @returns {TableElement<Row>}
 */
export function table(options) {
  const view = new Table(options);
  return Object.assign(view.element, {
    update: (/** @type {Row[]} */ rows) => view.update(rows),
    selected: () => view.selected(),
    deselect: () => view.deselect(),
    range: () => view.range(),
  });
}

/** @template Row */
class Table {
  /** @param {Options<Row>} options */
  constructor(options) {
    this.options = options;
    this.rows = /** @type {Row[]} */ ([]);
    this.lines = /** @type {Map<string, Line<Row>>} */ (new Map());
    this.ticked = /** @type {Set<string>} */ (new Set());
    this.sorting = /** @type {{column: Column<Row>, down: boolean} | null} */ (null);
    this.body = h("tbody", { on: { click: (e) => this.clicked(e), keydown: (e) => this.keyed(e) } });
    this.heads = options.columns.map((column) => this.head(column));
    this.all = h("input", {
      type: "checkbox",
      "aria-label": "Select all that are shown",
      on: { change: () => this.tickAll() },
    });
    const first = options.select ? h("th", { class: "cell-tick", scope: "col" }, this.all) : null;
    const caption = options.caption ? h("caption", { class: "sr-only" }, options.caption) : null;
    const grid = h("table", { class: "table" }, caption, h("thead", null, h("tr", null, first, this.heads)), this.body);
    this.nothing = h("div", { class: "table-empty", hidden: true }, options.empty ?? "There is nothing here.");
    this.scroller = h("div", { class: "table-scroll" }, grid);
    this.element = h("div", { class: "table-box" }, this.scroller, this.nothing);
    if (options.testid) this.element.dataset.testid = options.testid;
    const { key, windowed } = options;
    /** @type {RowWindow<Row> | null} */
    this.window = windowed ? new RowWindow(this.body, key, (row) => this.line(row)) : null;
    this.grid = grid;
    this.update(options.rows);
  }

  /** @param {Column<Row>} column */
  head(column) {
    /** @type {Dom.Named} */
    const props = { scope: "col", class: column.class ?? null, "aria-label": column.label };
    if (!column.sort) return h("th", props, column.title);
    const button = h(
      "button",
      { class: "sort", type: "button", on: { click: () => this.sortBy(column) } },
      column.title,
    );
    return h("th", { ...props, "aria-sort": "none" }, button);
  }

  /** @param {Row[]} rows */
  update(rows) {
    this.rows = rows;
    const keys = new Set(rows.map(this.options.key));
    for (const [key, line] of this.lines) {
      if (keys.has(key)) continue;
      line.tr.remove();
      this.lines.delete(key);
      this.ticked.delete(key);
    }
    this.nothing.hidden = rows.length > 0;
    this.scroller.hidden = rows.length === 0;
    if (this.window === null) this.place(this.sorted().map((row) => this.line(row)));
    else {
      this.grid.setAttribute("aria-rowcount", String(rows.length + 1));
      this.window.show(this.sorted());
    }
    this.told(false);
  }

  /**
   * Sort the lines with few moves: a moved line loses the focus and the pointer.
   * @param {Element[]} lines
   */
  place(lines) {
    let at = this.body.firstElementChild;
    for (const line of lines) {
      if (line === at) at = at.nextElementSibling;
      else this.body.insertBefore(line, at);
    }
  }

  /** @param {Row} row */
  line(row) {
    const key = this.options.key(row);
    const sign = JSON.stringify(row);
    const found = this.lines.get(key);
    if (!found) {
      const tick = this.options.select ? this.tick(key) : null;
      const tr = h("tr", { dataset: { key } }, tick ? h("td", { class: "cell-tick" }, tick) : null, this.cells(row));
      if (this.options.onOpen) tr.classList.add("row-open");
      tr.classList.toggle("row-ticked", this.ticked.has(key));
      this.lines.set(key, { tr, row, sign, tick });
      return tr;
    }
    if (found.sign !== sign) {
      found.row = row;
      found.sign = sign;
      this.refresh(found.tr, row);
    }
    return found.tr;
  }

  /** @param {Row} row */
  cells(row) {
    return this.options.columns.map((column) => {
      const label = column.label ?? (typeof column.title === "string" ? column.title : "");
      return h("td", { class: column.class ?? null, dataset: { label } }, column.cell(row));
    });
  }

  /** @param {HTMLTableRowElement} tr @param {Row} row */
  refresh(tr, row) {
    const skip = this.options.select ? 1 : 0;
    this.cells(row).forEach((fresh, index) => {
      const old = tr.cells[index + skip];
      if (old.isEqualNode(fresh)) return;
      const focused = old.contains(document.activeElement);
      replace(old, ...fresh.childNodes);
      if (focused) /** @type {HTMLElement | null} */ (old.querySelector("a, button, input"))?.focus();
    });
  }

  /** @param {string} key */
  tick(key) {
    const change = () => {
      if (box.checked) this.ticked.add(key);
      else this.ticked.delete(key);
      this.told(true);
    };
    const box = h("input", {
      type: "checkbox",
      "aria-label": `Select ${key}`,
      checked: this.ticked.has(key),
      on: { change },
    });
    return box;
  }

  tickAll() {
    this.ticked = new Set(this.all.checked ? this.rows.map(this.options.key) : []);
    for (const { tick } of this.lines.values()) if (tick) tick.checked = this.all.checked;
    this.told(true);
  }

  deselect() {
    this.all.checked = false;
    this.tickAll();
  }

  /** @returns {[number, number]} */
  range() {
    return this.window === null ? [0, this.rows.length] : [this.window.first, this.window.last];
  }

  selected() {
    return this.rows.filter((row) => this.ticked.has(this.options.key(row)));
  }

  /** @param {boolean} changed */
  told(changed) {
    if (!this.options.select) return;
    const count = this.ticked.size;
    this.all.checked = count > 0 && count === this.rows.length;
    this.all.indeterminate = count > 0 && count < this.rows.length;
    for (const [key, line] of this.lines) line.tr.classList.toggle("row-ticked", this.ticked.has(key));
    if (changed) this.options.onSelect?.(this.selected());
  }

  /** @param {Column<Row>} column */
  sortBy(column) {
    this.sorting = { column, down: this.sorting?.column === column && !this.sorting?.down };
    this.options.columns.forEach((each, index) => {
      if (!each.sort) return;
      const way = each !== column ? "none" : this.sorting?.down ? "descending" : "ascending";
      this.heads[index].setAttribute("aria-sort", way);
    });
    this.update(this.rows);
  }

  sorted() {
    if (this.sorting === null) return this.rows;
    const { column, down } = this.sorting;
    const sign = down ? -1 : 1;
    return [...this.rows].sort((a, b) => sign * compare(column.sort?.(a), column.sort?.(b)));
  }

  /** @param {MouseEvent} event */
  clicked(event) {
    const target = /** @type {Element} */ (event.target);
    if (!this.options.onOpen || target.closest("a, button, input, label, select") || String(getSelection()) !== "")
      return;
    const line = this.lines.get(target.closest("tr")?.dataset.key ?? "");
    if (line) this.options.onOpen(line.row);
  }

  /** @param {KeyboardEvent} event */
  keyed(event) {
    const down = event.key === "ArrowDown";
    const target = /** @type {HTMLElement} */ (event.target);
    if (!(down || event.key === "ArrowUp") || target.matches("textarea, select, input:not([type=checkbox])")) return;
    const row = target.closest("tr");
    const others = stops(down ? row?.nextElementSibling : row?.previousElementSibling);
    if (others.length === 0) return;
    const place = stops(row).indexOf(target);
    event.preventDefault();
    (others[place] ?? others[0]).focus();
  }
}

/** The focusable elements of a row. @param {Element | null | undefined} row @returns {HTMLElement[]} */
function stops(row) {
  /** @type {NodeListOf<HTMLElement> | undefined} */
  const found = row?.querySelectorAll("a, button, input");
  return [...(found ?? [])];
}

/** Missing values last; numbers by value, texts by locale. @param {Sortable} a @param {Sortable} b */
function compare(a, b) {
  const none = [a, b].map((each) => each === null || each === undefined || each === "");
  if (none[0] || none[1]) return Number(none[0]) - Number(none[1]);
  if (a === b) return 0;
  if (typeof a === "string" && typeof b === "string") return a.localeCompare(b, undefined, { numeric: true });
  return Number(a) < Number(b) ? -1 : 1;
}

/** A list of names and values. @param {[string, Dom.Child][]} pairs @returns {HTMLElement} */
export function facts(pairs) {
  const id = newId("facts");
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h(
    "dl",
    { class: "facts", id },
    shown.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]),
  );
}
