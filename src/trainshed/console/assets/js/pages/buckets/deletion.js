// @ts-check
// Deletes objects and folders: counts them, asks for confirmation, and shows progress.

import { confirm, dialog, setBody, toast } from "../../dialogs.js";
import { h } from "../../dom.js";
import { bytes, count, messageOf } from "../../format.js";
import { loading, progressBar } from "../../parts.js";
import { below, deleteAll } from "./objects.js";

/** @typedef {{name: string, folder: boolean, size: number}} Victim */

/**
 * Ask for confirmation, with the number of objects, then delete them.
 * @param {string} bucket
 * @param {Victim[]} victims
 */
export async function askAndDelete(bucket, victims) {
  if (!victims.length) return;
  const found = await counted(bucket, victims);
  if (!found) return;
  const sure = await confirm({
    title: titleOf(victims, found),
    text: sentence(victims, found),
    action: `Delete ${count(found.length, "object")}`,
    danger: true,
  });
  if (sure)
    await work(
      bucket,
      found.map((each) => each.name),
    );
}

/**
 * The objects to delete; null if counting was cancelled.
 * @param {string} bucket @param {Victim[]} victims
 * @returns {Promise<{name: string, size: number}[] | null>}
 */
async function counted(bucket, victims) {
  const plain = victims.filter((each) => !each.folder);
  const folders = victims.filter((each) => each.folder);
  if (!folders.length) return plain;
  const control = new AbortController();
  const waiting = dialog({
    title: "Counting",
    body: loading("Counting the objects in these folders…"),
    actions: [{ text: "Cancel" }],
  });
  let closed = false;
  void waiting.closed.then(() => {
    closed = true;
    control.abort();
  });
  try {
    const inside = await Promise.all(folders.map((each) => below(bucket, each.name, control.signal)));
    if (closed) return null;
    const all = new Map([...plain, ...inside.flat()].map((each) => [each.name, each]));
    return [...all.values()];
  } catch (error) {
    if (!closed) toast(messageOf(error), "error");
    return null;
  } finally {
    waiting.close();
  }
}

/** @param {Victim[]} victims @param {{name: string}[]} found */
function titleOf(victims, found) {
  return victims.length === 1 ? `Delete ${victims[0].name}?` : `Delete ${count(found.length, "object")}?`;
}

/** @param {Victim[]} victims @param {{name: string, size: number}[]} found */
function sentence(victims, found) {
  const folders = victims.filter((each) => each.folder).length;
  const size = bytes(found.reduce((sum, each) => sum + each.size, 0));
  const within = folders ? `, all that is in ${count(folders, "folder")} among them` : "";
  return `${count(found.length, "object")} of ${size}${within}. They can't be brought back.`;
}

/** @param {string} bucket @param {string[]} names */
async function work(bucket, names) {
  const control = new AbortController();
  const label = (/** @type {number} */ done) => `${done.toLocaleString()} of ${names.length.toLocaleString()} deleted`;
  const bar = progressBar({ fraction: 0, label: label(0) });
  const shown = names.length > 20 ? dialog({ title: "Deleting", body: bar, actions: [{ text: "Stop" }] }) : null;
  void shown?.closed.then(() => control.abort());
  const { done, failures } = await deleteAll(
    bucket,
    names,
    (now) => bar.update({ fraction: now / names.length, label: label(now) }),
    control.signal,
  );
  if (failures.length && shown) setBody(shown, h("p", null, `${failures.length} could not be deleted: ${failures[0]}`));
  else shown?.close();
  if (failures.length) toast(`${count(failures.length, "object")} could not be deleted. ${failures[0]}`, "error");
  else toast(`Deleted ${count(done, "object")}.`, "good");
}
