// @ts-check
// The rows of a long list, loaded page by page; visible pages are refreshed.

const PAGE = 100;
const LARGEST = 500;

/** @typedef {(params: {pageSize: number, pageToken?: string}, signal: AbortSignal) => Promise<Api.JobTable>} Read */

export class JobRows {
  /** @param {Read} read */
  constructor(read) {
    this.read = read;
    this.counts = /** @type {Api.JobTable["counts"] | null} */ (null);
    this.next = "";
    this.pages = /** @type {{token: string, rows: Api.JobRow[]}[]} */ ([]);
    this.fresh = false; // the filter is another one, and no page of it was read yet
    this.loading = false;
    this.control = new AbortController();
  }

  /** All loaded rows, newest first. */
  get rows() {
    return this.pages.flatMap((page) => page.rows);
  }

  /** Start again with the first page, after a change of the filter. Requests in flight are aborted. */
  restart() {
    this.control.abort();
    this.control = new AbortController();
    this.pages = this.pages.slice(0, 1);
    this.loading = false;
    this.fresh = true;
  }

  /**
   * Refresh the first page, which has new jobs, and the pages with the rows from `first` to `last`.
   * @param {[number, number]} range
   */
  async refresh([first, last]) {
    const { signal } = this.control;
    await this.refreshFirst(signal);
    let start = this.pages[0].rows.length;
    for (const page of this.pages.slice(1)) {
      const end = start + page.rows.length;
      if (start <= last && end >= first) {
        const answer = await this.read({ pageSize: PAGE, pageToken: page.token }, signal);
        if (!signal.aborted) page.rows = answer.jobs;
      }
      start = end;
    }
  }

  /**
   * New jobs make the first page longer, so that none is lost between it and the second.
   * @param {AbortSignal} signal
   */
  async refreshFirst(signal) {
    const had = this.fresh ? 0 : (this.pages[0]?.rows.length ?? 0);
    const pageSize = Math.min(LARGEST, this.pages.length > 1 ? had + PAGE : PAGE);
    const answer = await this.read({ pageSize }, signal);
    this.fresh = false;
    this.counts = answer.counts;
    const later = new Set(this.pages.slice(1).flatMap((page) => page.rows.map((row) => row.jobId)));
    const rows = answer.jobs.filter((row) => !later.has(row.jobId));
    this.pages = [{ token: "", rows }, ...this.pages.slice(1)];
    if (this.pages.length === 1) this.next = answer.nextPageToken ?? "";
  }

  /** Read the page after the last one. @returns {Promise<boolean>} whether there was one */
  async more() {
    if (this.loading || this.next === "") return false;
    this.loading = true;
    const { signal } = this.control;
    const token = this.next;
    try {
      const answer = await this.read({ pageSize: PAGE, pageToken: token }, signal);
      if (signal.aborted) return false;
      const known = new Set(this.rows.map((row) => row.jobId));
      this.pages.push({ token, rows: answer.jobs.filter((row) => !known.has(row.jobId)) });
      this.next = answer.nextPageToken ?? "";
      return true;
    } finally {
      if (!signal.aborted) this.loading = false;
    }
  }
}
