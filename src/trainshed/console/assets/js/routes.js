// @ts-check
// URLs of the console: `#/p/PROJECT/PLACE/MORE?QUERY`.

import { isKey } from "./lookup.js";

/** @typedef {Record<string, string | number | null | undefined>} Query empty ones are omitted */

/**
 * @typedef {{project: string, place: string, page: string, title: string, params: string[], query: URLSearchParams}}
 *   Route a parsed URL; `page` is "" for an unknown page, `project` is "" without a project
 */

/**
 * The context of a page. `go` navigates within the project, `href` returns a URL in it, `setQuery` changes the query of
 * the URL without a reload of the page, `setTitle` sets the window's title.
 * @typedef {object} Context
 * @property {string} project
 * @property {string[]} params
 * @property {URLSearchParams} query
 * @property {Api.Session} session
 * @property {(path: string, query?: Query) => void} go
 * @property {(path: string, query?: Query) => string} href
 * @property {(query: Query) => void} setQuery
 * @property {(title: string) => void} setTitle
 */

/** @typedef {{name: string, title: string, icon: string, key: string}} Place */

/** The entries of the side navigation, in order. @type {Place[]} */
export const PLACES = [
  { name: "", title: "Overview", icon: "overview", key: "o" },
  { name: "jobs", title: "Jobs", icon: "jobs", key: "j" },
  { name: "studies", title: "Studies", icon: "studies", key: "u" },
  { name: "models", title: "Models", icon: "models", key: "m" },
  { name: "playground", title: "Playground", icon: "playground", key: "p" },
  { name: "buckets", title: "Buckets", icon: "buckets", key: "b" },
  { name: "tokens", title: "Tokens", icon: "tokens", key: "t" },
  { name: "quotas", title: "Quotas", icon: "gauge", key: "q" },
  { name: "audit", title: "Audit", icon: "clock", key: "a" },
  { name: "settings", title: "Settings", icon: "settings", key: "s" },
];

/**
 * place -> [module of its page, module of the page of one item, title]
 * @type {Record<string, [string, string, string]>}
 */
const PAGES = {
  "": ["overview", "", "Overview"],
  jobs: ["jobs", "job", "Jobs"],
  studies: ["studies", "study", "Studies"],
  compare: ["compare", "", "Compare jobs"],
  buckets: ["buckets", "buckets", "Buckets"],
  models: ["models", "model", "Models"],
  playground: ["playground", "", "Playground"],
  tokens: ["tokens", "", "Tokens"],
  quotas: ["quotas", "", "Quotas"],
  audit: ["audit", "", "Audit"],
  settings: ["settings", "", "Settings"],
};

/** @param {string} hash @returns {Route} */
export function parseHash(hash) {
  const [path, ...rest] = hash.replace(/^#/, "").split("?");
  const query = new URLSearchParams(rest.join("?"));
  const segments = path.split("/").slice(1).map(decoded);
  if (segments[0] !== "p" || !segments[1]) return { project: "", place: "", page: "", title: "", params: [], query };
  const [, project, place = "", ...params] = segments;
  const [list, one, title] = isKey(PAGES, place) ? PAGES[place] : ["", "", "Not found"];
  const given = params.some((each) => each !== "");
  return { project, place, page: given ? one : list, title, params: given ? params : [], query };
}

/**
 * @param {string} project
 * @param {string} path within the project, such as `/jobs/one`, already encoded; or a whole address with `#`
 * @param {Query} [query]
 */
export function hashOf(project, path, query = {}) {
  if (path.startsWith("#")) return path;
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") params.set(name, String(value));
  }
  const base = `#/p/${encodeURIComponent(project)}${path === "/" ? "" : path}`;
  return params.size === 0 ? base : `${base}?${params}`;
}

/** @param {string} segment */
function decoded(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment; // an invalid percent sign
  }
}
