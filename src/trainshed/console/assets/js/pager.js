// @ts-check
// Paging through a list by page tokens.

import { h, replace } from "./dom.js";
import { button } from "./parts.js";

/** The current page, with buttons for its neighbours. Hidden if there is only one page. */
export class Pager {
  /** @param {() => Promise<void>} turned loads and shows the page of `token` */
  constructor(turned) {
    this.node = h("div", { class: "pager", hidden: true });
    this.turned = turned;
    this.tokens = [""]; // of the pages up to the one that is shown
  }

  get token() {
    return this.tokens[this.tokens.length - 1];
  }

  get first() {
    return this.tokens.length === 1;
  }

  /**
   * @param {string} next token of the page after this one; empty if this is the last
   * @param {string} [rows] the number of rows, as text
   */
  show(next, rows = "") {
    this.node.hidden = this.first && !next;
    const back = button("Previous", {
      onClick: () => this.turn(this.tokens.slice(0, -1)),
      disabled: this.first,
      testid: "previous",
    });
    const on = button("Next", { onClick: () => this.turn([...this.tokens, next]), disabled: !next, testid: "next" });
    const words = `Page ${this.tokens.length}${rows && `, ${rows}`}`;
    replace(this.node, back, h("span", { role: "status" }, words), on);
  }

  /**
   * Both buttons are disabled until the page is loaded: a second click would skip it.
   * @param {string[]} tokens
   */
  turn(tokens) {
    for (const each of this.node.querySelectorAll("button")) each.disabled = true;
    this.tokens = tokens;
    return this.turned();
  }
}
