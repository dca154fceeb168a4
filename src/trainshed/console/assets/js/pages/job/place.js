// @ts-check
// The query of a job page's URL: the state of the page, so that links restore it.

/** The page's own part of the URL. Changes do not reload the page. */
export class Place {
  /** @param {import("../../routes.js").Context} ctx @param {string} name of the job */
  constructor(ctx, name) {
    this.ctx = ctx;
    this.project = ctx.project;
    this.name = name;
    /** @type {Record<string, string>} */
    this.query = Object.fromEntries(ctx.query);
  }

  /** @param {string} key */
  get(key) {
    return this.query[key] ?? "";
  }

  /** @param {Record<string, string>} values empty ones are taken out */
  set(values) {
    this.query = { ...this.query, ...values };
    this.ctx.setQuery(this.query);
  }

  /** Replace the query. @param {Record<string, string>} values */
  reset(values) {
    this.query = values;
    this.ctx.setQuery(values);
  }

  /** @param {Record<string, string>} values @returns {string} the address of this page with these choices */
  link(values) {
    return this.ctx.href(`/jobs/${encodeURIComponent(this.name)}`, values);
  }
}
