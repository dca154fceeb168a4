// @ts-check
// Buckets and objects over the Cloud Storage API. Names may have any character, and are split at "/" only.

import { ApiError, del, get } from "../../api.js";
import { messageOf } from "../../format.js";
import { path } from "../../paths.js";

const PAGE = 200;
const LIST_PAGE = 1000;
const AT_ONCE = 6;

/** @typedef {{items: Api.StoredObject[], prefixes: string[], next: string}} Listing */

/** @param {string} bucket @param {string} name */
export function gsAddress(bucket, name = "") {
  return `gs://${bucket}/${name}`;
}

/** The URL of an object's content. @param {string} bucket @param {string} name */
export function mediaPath(bucket, name) {
  return `${path`/download/storage/v1/b/${bucket}/o/${name}`}?alt=media`;
}

/** @param {string} bucket @param {string} name */
export function objectPath(bucket, name) {
  return path`/storage/v1/b/${bucket}/o/${name}`;
}

/** The console's URL of a folder. @param {string} project @param {string} bucket @param {string} [prefix] */
export function folderLink(project, bucket, prefix = "") {
  return (
    path`#/p/${project}/buckets/${bucket}/` +
    prefix
      .split("/")
      .map((part) => encodeURIComponent(part))
      .join("/")
  );
}

/**
 * One page of a folder.
 * @param {string} bucket @param {string} prefix @param {string} pageToken
 * @returns {Promise<Listing>}
 */
export async function listFolder(bucket, prefix, pageToken) {
  /** @type {Api.Objects} */
  const answer = await get(path`/storage/v1/b/${bucket}/o`, {
    prefix,
    delimiter: "/",
    maxResults: PAGE,
    pageToken,
    fields: "items(name,size,updated,contentType,contentEncoding),prefixes,nextPageToken",
  });
  return { items: answer.items ?? [], prefixes: answer.prefixes ?? [], next: answer.nextPageToken ?? "" };
}

/**
 * All objects below a prefix.
 * @param {string} bucket @param {string} prefix
 * @param {AbortSignal} [signal]
 * @returns {Promise<{name: string, size: number}[]>}
 */
export async function below(bucket, prefix, signal) {
  const found = [];
  let pageToken = "";
  do {
    /** @type {Api.Objects} */
    const answer = await get(
      path`/storage/v1/b/${bucket}/o`,
      { prefix, maxResults: LIST_PAGE, pageToken, fields: "items(name,size),nextPageToken" },
      { signal },
    );
    for (const item of answer.items ?? []) found.push({ name: item.name, size: Number(item.size) });
    pageToken = answer.nextPageToken ?? "";
  } while (pageToken);
  return found;
}

/**
 * Delete objects, a few at a time. A missing one is not an error.
 * @param {string} bucket @param {string[]} names
 * @param {(done: number) => void} onProgress
 * @param {AbortSignal} signal
 * @returns {Promise<{done: number, failures: string[]}>}
 */
export async function deleteAll(bucket, names, onProgress, signal) {
  const waiting = [...names];
  /** @type {string[]} */
  const failures = [];
  let done = 0;
  const worker = async () => {
    for (let name = waiting.shift(); name !== undefined && !signal.aborted; name = waiting.shift()) {
      try {
        await del(objectPath(bucket, name));
        done += 1;
      } catch (error) {
        if (error instanceof ApiError && error.status === 404) done += 1;
        else failures.push(`${name}: ${messageOf(error)}`);
      }
      onProgress(done + failures.length);
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, names.length) }, worker));
  return { done, failures };
}
