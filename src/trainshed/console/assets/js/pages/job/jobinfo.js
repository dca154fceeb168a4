// @ts-check
// Pure functions of a job's JSON, without requests or DOM.

import { isKey } from "../../lookup.js";

const ENDED = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);
/** @type {Record<string, [workers: number, servers: number]>} */
const TIERS = { BASIC: [0, 0], STANDARD_1: [4, 3], PREMIUM_1: [19, 11] };

/** @param {Api.JobState} state @returns {boolean} whether a job in this state never changes again */
export function hasEnded(state) {
  return ENDED.has(state);
}

/** @param {Api.JobRequest} job @returns {boolean} */
export function isPrediction(job) {
  return Boolean(job.predictionInput);
}

/** @param {Api.JobRequest} job @returns {boolean} whether it runs trials */
export function isTuning(job) {
  return Boolean(job.trainingInput?.hyperparameters);
}

/** @param {string} job @param {number} trial @returns {string} the name of a trial in paths of Trainshed's own API */
export function trialJob(job, trial) {
  return `${job}.trial-${trial}`;
}

/** @param {number} count @param {string} one @param {string} many */
function counted(count, one, many) {
  return count === 0 ? [] : [`${count} ${count === 1 ? one : many}`];
}

/**
 * The replicas of a job, as text.
 * @param {Api.JobRequest} job
 * @returns {string}
 */
export function gang(job) {
  if (isPrediction(job)) return "1 master";
  const input = job.trainingInput ?? {};
  const tier = input.scaleTier ?? "BASIC";
  const custom = [Number(input.workerCount ?? 0), Number(input.parameterServerCount ?? 0)];
  const [workers, servers] = isKey(TIERS, tier) ? TIERS[tier] : custom;
  const evaluators = tier === "CUSTOM" ? Number(input.evaluatorCount ?? 0) : 0;
  return [
    "1 master",
    ...counted(workers, "worker", "workers"),
    ...counted(servers, "parameter server", "parameter servers"),
    ...counted(evaluators, "evaluator", "evaluators"),
  ].join(", ");
}

/**
 * A name for the next job of the same kind: mnist_1 is followed by mnist_2, and mnist by mnist_2.
 * @param {string} name
 * @returns {string}
 */
export function nextName(name) {
  const found = /^(.*?)(\d{1,15})$/.exec(name);
  if (!found) return `${name}_2`.slice(0, 128);
  const [, stem, digits] = found;
  return `${stem}${String(Number(digits) + 1).padStart(digits.length, "0")}`;
}

/**
 * The gs:// folders that a job writes to, its own folder first.
 * @param {Api.JobRequest} job
 * @returns {string[]}
 */
export function outputFolders(job) {
  const found = [job.trainingInput?.jobDir ?? "", job.predictionInput?.outputPath ?? ""];
  let option = "";
  for (const arg of job.trainingInput?.args ?? []) {
    const at = arg.startsWith("--") ? arg.indexOf("=") : -1;
    if (arg.startsWith("--")) option = at < 0 ? arg : arg.slice(0, at);
    const value = at < 0 ? arg : arg.slice(at + 1);
    if (value.startsWith("gs://") && /out|dir|path|export|model|log/.test(option)) found.push(value);
  }
  const folders = found.filter(Boolean).map((uri) => (uri.endsWith("/") ? uri : `${uri}/`));
  return [...new Set(folders)];
}

/**
 * @param {string} uri a gs:// address
 * @returns {{bucket: string, prefix: string}}
 */
export function placeOf(uri) {
  const rest = uri.slice("gs://".length);
  const at = rest.indexOf("/");
  return at < 0 ? { bucket: rest, prefix: "" } : { bucket: rest.slice(0, at), prefix: rest.slice(at + 1) };
}

/**
 * The same job under another name, without output fields; folders with the old name get the new one.
 * @param {Api.JobRequest} job
 * @param {string} name
 * @returns {Api.JobRequest}
 */
export function renamed(job, name) {
  const { labels, trainingInput: training, predictionInput: prediction } = structuredClone(job);
  const moved = (/** @type {string} */ uri) => withName(uri, job.jobId, name);
  if (training?.jobDir) training.jobDir = moved(training.jobDir);
  if (training?.args) training.args = training.args.map((arg) => (arg.includes("gs://") ? moved(arg) : arg));
  if (prediction?.outputPath) prediction.outputPath = moved(prediction.outputPath);
  return {
    jobId: name,
    ...(labels && { labels }),
    ...(training && { trainingInput: training }),
    ...(prediction && { predictionInput: prediction }),
  };
}

/**
 * A text with path segments of the old name replaced by the new one.
 * @param {string} text @param {string} before @param {string} after
 * @returns {string}
 */
export function withName(text, before, after) {
  if (before === "") return text; // parts of a path are empty too
  return text
    .split("/")
    .map((part) => (part === before ? after : part))
    .join("/");
}
