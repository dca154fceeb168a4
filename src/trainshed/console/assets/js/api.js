// @ts-check
// The server, asked over the same REST APIs that everybody uses. The cookie of the session goes along by itself.

/** What the server, or the way to it, had against a request. `status` 0: no answer at all. */
export class ApiError extends Error {
  /** @param {number} status @param {string} message @param {string} [reason] */
  constructor(status, message, reason = "") {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.reason = reason;
  }
}

const SESSION = "/trainshed/v1/session";
/** Without it a session's cookie changes nothing: pages of other origins can't send it. */
const OWN_PAGE = { "x-trainshed-console": "1" };
const NO_ANSWER = "The server does not answer. Look whether it runs with: trainshed status";

/** @type {any} */
let current = null;
/** @type {() => void} */
let signedOut = () => {};

/** The session of this browser, once `loadSession` or `signIn` has got it; null before. */
export function session() {
  return current;
}

/** Calls `listener` when the server no longer knows the session. @param {() => void} listener */
export function onSignedOut(listener) {
  signedOut = listener;
}

/** Ask the server who this browser is. A 401 is thrown and leads nowhere: the caller shows the sign-in page. */
export async function loadSession() {
  current = await json("GET", SESSION, undefined, { quiet: true });
  return current;
}

/** @param {string} token */
export async function signIn(token) {
  current = await json("POST", SESSION, { token }, { quiet: true });
  return current;
}

/** End the session in the server too. */
export async function signOut() {
  await json("DELETE", SESSION, undefined, { quiet: true });
  current = null;
  signedOut();
}

/**
 * @param {string} path
 * @param {Record<string, any>} [params] empty ones are left out, arrays are repeated
 * @param {{signal?: AbortSignal}} [options]
 */
export function get(path, params, options) {
  return json("GET", withParams(path, params), undefined, options);
}

/** @param {string} path @param {any} [body] @param {{signal?: AbortSignal}} [options] */
export function post(path, body = {}, options = {}) {
  return json("POST", path, body, options);
}

/** JSON as it is written, for an answer as it is written. @param {string} path @param {string} body */
export async function postText(path, body) {
  return (await call("POST", path, undefined, { text: body })).text();
}

/** @param {string} path */
export function del(path) {
  return json("DELETE", path);
}

/** A body that is text. @param {string} path @param {Record<string, any>} [params] @param {any} [options] */
export async function text(path, params, options) {
  return (await call("GET", withParams(path, params), undefined, options)).text();
}

/** A body as it is. @param {string} path @param {Record<string, any>} [params] @param {any} [options] */
export async function blob(path, params, options) {
  return (await call("GET", withParams(path, params), undefined, options)).blob();
}

/**
 * Write a file as an object. `fetch` cannot tell how far an upload is, the older way can.
 * @param {string} bucket
 * @param {string} name of the object
 * @param {Blob} file
 * @param {(fraction: number) => void} [onProgress]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>} the object's resource
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
      if (request.status < 300) resolve(parsed(request.responseText));
      else reject(refused(request.status, request.responseText));
    });
    request.addEventListener("error", () => reject(new ApiError(0, NO_ANSWER)));
    request.addEventListener("abort", () => reject(new ApiError(0, `The upload of ${name} was given up.`, "aborted")));
    request.send(file);
  });
}

/** @param {string} path @param {Record<string, any>} [params] */
function withParams(path, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined && each !== null && each !== "") query.append(name, String(each));
    }
  }
  return query.size === 0 ? path : `${path}?${query}`;
}

/** @param {string} method @param {string} path @param {any} [body] @param {any} [options] */
async function json(method, path, body, options) {
  return parsed(await (await call(method, path, body, options)).text());
}

/**
 * @param {string} method
 * @param {string} path
 * @param {any} body
 * @param {{signal?: AbortSignal, quiet?: boolean, headers?: Record<string, string>, text?: string}} [options]
 *   `quiet`: a 401 is the caller's to handle; `text`: the body, as it is written
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
  if (!answer.ok) throw refused(answer.status, await answer.text(), options.quiet);
  return answer;
}

/** @param {string} body */
function parsed(body) {
  return body === "" ? null : JSON.parse(body);
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
    return new ApiError(status, error.message, error.errors?.[0]?.reason ?? error.status ?? "");
  } catch {
    return new ApiError(status, `The server answered with status ${status}, and without a reason.`);
  }
}
