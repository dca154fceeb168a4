// @ts-check
// The address of a job's page: what is chosen on it stands behind the question mark, so that a link leads back to it.

/** A page's own part of the address. Changes do not make the router build the page again. */
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

  /** Only these choices, and none of those before. @param {Record<string, string>} values */
  reset(values) {
    this.query = values;
    this.ctx.setQuery(values);
  }

  /** @param {Record<string, string>} values @returns {string} the address of this page with these choices */
  link(values) {
    return this.ctx.href(`/jobs/${encodeURIComponent(this.name)}`, values);
  }
}
