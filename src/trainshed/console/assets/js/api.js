// @ts-check
// The client of the server's REST APIs. The browser adds the session's cookie.

/** An error response, or a network error with `status` 0. */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} message
   * @param {string} [reason]
   * @param {{field: string, description: string}} [violation] the field of the request that was refused, and why
   */
  constructor(status, message, reason = "", violation = undefined) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.reason = reason;
    this.violation = violation;
  }
}

const SESSION = "/trainshed/v1/session";
/** Required for changes by a session: pages of other origins can't send it. */
const OWN_PAGE = { "x-trainshed-console": "1" };
const NOT_MODIFIED = 304;
const NO_ANSWER = "The server does not answer. `trainshed status` says whether it runs.";

/** @typedef {string | number | boolean | null | undefined} Param */
/** @typedef {Record<string, Param | Param[]>} Params */
/** @typedef {{signal?: AbortSignal, headers?: Record<string, string>}} Options */

/** @type {Api.Session | null} */
let current = null;
/** @type {() => void} */
let signedOut = () => {};

/** The session of this browser; null before `loadSession` or `signIn`. */
export function session() {
  return current;
}

/** Calls `listener` when the session has ended. @param {() => void} listener */
export function onSignedOut(listener) {
  signedOut = listener;
}

/** Load the session. A 401 is thrown without a redirect: the caller shows the sign-in page. */
export async function loadSession() {
  current = await json("GET", SESSION, undefined, { quiet: true });
}

/** @param {string} token */
export async function signIn(token) {
  current = await json("POST", SESSION, { token }, { quiet: true });
}

/** How people sign in here, besides with a token. @returns {Promise<{openId: boolean}>} */
export function signInWays() {
  return json("GET", "/console/sign-in", undefined, { quiet: true });
}

/** End the session on the server too. */
export async function signOut() {
  await call("DELETE", SESSION, undefined, { quiet: true });
  current = null;
  signedOut();
}

/**
 * The caller names the type of the response: one of `Api`.
 * @template Answer
 * @param {string} path
 * @param {Params} [params] empty ones are omitted, arrays are repeated
 * @param {Options} [options]
 * @returns {Promise<Answer>}
 */
export function get(path, params, options) {
  return json("GET", withParams(path, params), undefined, options);
}

/**
 * Like `get`, but null if nothing has changed since the answer with this tag.
 * @template Answer
 * @param {string} path
 * @param {string} tag of an earlier answer; empty without one
 * @returns {Promise<{tag: string, answer: Answer} | null>}
 */
export async function getNew(path, tag) {
  const found = await call("GET", path, undefined, tag === "" ? {} : { headers: { "if-none-match": tag } });
  return found.status === NOT_MODIFIED ? null : { tag: found.headers.get("etag") ?? "", answer: await found.json() };
}

/**
 * Like `get`.
 * @template Answer
 * @param {string} path
 * @param {object} [body]
 * @returns {Promise<Answer>}
 */
export function post(path, body = {}) {
  return json("POST", path, body);
}

/** Raw JSON in, raw JSON out. @param {string} path @param {string} body */
export async function postText(path, body) {
  return (await call("POST", path, undefined, { text: body })).text();
}

/** @param {string} path */
export async function del(path) {
  await (await call("DELETE", path, undefined)).text();
}

/** A raw body. @param {string} path @param {Params} [params] @param {Options} [options] */
export async function blob(path, params, options) {
  return (await call("GET", withParams(path, params), undefined, options)).blob();
}

/**
 * Write a file as an object, with XMLHttpRequest: `fetch` has no upload progress.
 * @param {string} bucket
 * @param {string} name of the object
 * @param {Blob} file
 * @param {(fraction: number) => void} [onProgress]
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
export function putFile(bucket, name, file, onProgress = () => {}, signal = undefined) {
  const path = `/upload/storage/v1/b/${encodeURIComponent(bucket)}/o`;
  const request = new XMLHttpRequest();
  request.open("POST", withParams(path, { uploadType: "media", name }));
  for (const [name, value] of Object.entries(OWN_PAGE)) request.setRequestHeader(name, value);
  request.setRequestHeader("content-type", file.type || "application/octet-stream");
  request.upload.addEventListener("progress", (event) => {
    if (event.lengthComputable && event.total > 0) onProgress(event.loaded / event.total);
  });
  signal?.addEventListener("abort", () => request.abort());
  return new Promise((resolve, reject) => {
    request.addEventListener("load", () => {
      if (request.status < 300) resolve();
      else reject(refused(request.status, request.responseText));
    });
    request.addEventListener("error", () => reject(new ApiError(0, NO_ANSWER)));
    request.addEventListener("abort", () => reject(new ApiError(0, `The upload of ${name} was given up.`, "aborted")));
    request.send(file);
  });
}

/** @param {string} path @param {Params} [params] */
function withParams(path, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined && each !== null && each !== "") query.append(name, String(each));
    }
  }
  return query.size === 0 ? path : `${path}?${query}`;
}

/**
 * @template Answer
 * @param {string} method
 * @param {string} path
 * @param {object} [body]
 * @param {Options & {quiet?: boolean}} [options]
 * @returns {Promise<Answer>}
 */
async function json(method, path, body, options) {
  return (await call(method, path, body, options)).json();
}

/**
 * @param {string} method
 * @param {string} path
 * @param {object | undefined} body
 * @param {Options & {quiet?: boolean, text?: string}} [options]
 *   `quiet`: the caller handles a 401; `text`: the raw body
 */
async function call(method, path, body, options = {}) {
  const sent = options.text ?? (body === undefined ? undefined : JSON.stringify(body));
  /** @type {Response} */
  let answer;
  try {
    answer = await fetch(path, {
      method,
      credentials: "same-origin",
      cache: "no-store",
      headers: {
        ...OWN_PAGE,
        ...(sent === undefined ? {} : { "content-type": "application/json" }),
        ...options.headers,
      },
      body: sent,
      signal: options.signal,
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, NO_ANSWER);
  }
  if (!answer.ok && answer.status !== NOT_MODIFIED) throw refused(answer.status, await answer.text(), options.quiet);
  return answer;
}

/** @param {number} status @param {string} body @param {boolean} [quiet] */
function refused(status, body, quiet = false) {
  if (status === 401 && !quiet && current !== null) {
    current = null;
    signedOut();
  }
  try {
    const error = JSON.parse(body).error;
    if (typeof error === "string") return new ApiError(status, error);
    const reason = error.errors?.[0]?.reason ?? error.status ?? "";
    return new ApiError(status, error.message, reason, error.details?.[0]?.fieldViolations?.[0]);
  } catch {
    return new ApiError(status, `The server answered with status ${status}, and without a reason.`);
  }
}
