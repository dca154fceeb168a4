// @ts-check
// The way through a list that the server gives out in pages, each with the token of the next.

import { h, replace } from "./dom.js";
import { button } from "./parts.js";

/** Which page is shown, and the buttons to the ones beside it. Hidden while there is one page alone. */
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
   * @param {string} [rows] how many there are, in words
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
   * Both ways are closed until the page is there: a second click would turn from one that nobody has seen.
   * @param {string[]} tokens
   */
  turn(tokens) {
    for (const each of this.node.querySelectorAll("button")) each.disabled = true;
    this.tokens = tokens;
    return this.turned();
  }
}
