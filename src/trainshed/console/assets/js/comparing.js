// @ts-check
// Compares jobs, as plain values.

import { between, duration, percent } from "./format.js";
import { stateName } from "./parts.js";

/** @typedef {{name: string, values: (string | number | null)[], different?: boolean, best?: number}} Line */
/** @typedef {{name: string, details: Api.JobDetails, stats: Api.JobStats}} Compared a job with its data */
/** @typedef {Api.TrainingInput & Api.PredictionInput} Input */

/** @type {[keyof Input, string][]} fields of a job's input, in their usual order */
const FIELDS = [
  ["pythonModule", "Module"],
  ["scaleTier", "Scale tier"],
  ["masterType", "Master type"],
  ["workerType", "Worker type"],
  ["workerCount", "Workers"],
  ["parameterServerType", "Parameter server type"],
  ["parameterServerCount", "Parameter servers"],
  ["evaluatorType", "Evaluator type"],
  ["evaluatorCount", "Evaluators"],
  ["runtimeVersion", "Runtime version"],
  ["pythonVersion", "Python version"],
  ["region", "Region"],
  ["jobDir", "Job folder"],
  ["packageUris", "Packages"],
  ["modelName", "Model"],
  ["versionName", "Version"],
  ["inputPaths", "Input"],
  ["outputPath", "Output"],
  ["dataFormat", "Input format"],
  ["batchSize", "Batch size"],
];

/**
 * A trainer's arguments by name. A repeated one has all values; those without a name are under "arguments".
 * @param {string[]} args
 * @returns {Map<string, string>}
 */
export function options(args) {
  /** @type {Map<string, string>} */
  const found = new Map();
  const put = (/** @type {string} */ name, /** @type {string} */ value) =>
    found.set(name, found.has(name) ? `${found.get(name)} ${value}` : value);
  for (let at = 0; at < args.length; at += 1) {
    const [, name, equals, value] = /^(--?[A-Za-z][^=\s]*)(=?)([^]*)$/.exec(args[at]) ?? [];
    if (name === undefined) put("arguments", args[at]);
    else if (equals !== "") put(name, value);
    else if (at + 1 < args.length && !/^--?[A-Za-z]/.test(args[at + 1])) put(name, args[++at]);
    else put(name, "yes");
  }
  return found;
}

/**
 * The parameters of each job: the fields of its request, then the arguments of its trainer.
 * @param {Compared[]} jobs
 * @returns {Line[]}
 */
export function parameters(jobs) {
  /** @type {Input[]} */
  const inputs = jobs.map(({ details }) => details.job.trainingInput ?? details.job.predictionInput ?? {});
  const fields = FIELDS.map(([key, name]) =>
    line(
      name,
      inputs.map((input) => text(input[key])),
    ),
  );
  const args = inputs.map((input) => options(input.args ?? []));
  const names = [...new Set(args.flatMap((each) => [...each.keys()]))].sort();
  const labels = jobs.map(({ details }) => details.job.labels ?? {});
  const keys = [...new Set(labels.flatMap((each) => Object.keys(each)))].sort();
  return [
    ...names.map((name) =>
      line(
        name,
        args.map((each) => each.get(name) ?? null),
      ),
    ),
    ...fields,
    ...keys.map((key) =>
      line(
        `Label ${key}`,
        labels.map((each) => each[key] ?? null),
      ),
    ),
  ].filter((row) => row.values.some((value) => value !== null));
}

/**
 * The results, one line for each. Missing values are empty.
 * @param {Compared[]} jobs
 * @returns {Line[]}
 */
export function jobColumns(jobs) {
  const progress = jobs.map(({ details }) => details.progress);
  const evaluation = progress.map((each) => each?.evaluation);
  const share = (/** @type {Api.Measure} */ value) => (typeof value === "number" ? percent(value) : value);
  /** @type {Line[]} */
  const lines = [
    { name: "State", values: jobs.map(({ details }) => stateName(details.job.state)) },
    { name: "Ran for", values: jobs.map(({ details: { job } }) => (job.endTime ? ran(job) : null)) },
    ranked(
      "Loss",
      progress.map((each) => each?.loss),
      -1,
    ),
    ranked(
      "Accuracy",
      progress.map((each) => each?.accuracy),
      1,
      share,
    ),
    ranked(
      "Loss, evaluation",
      evaluation.map((each) => each?.loss),
      -1,
    ),
    ranked(
      "Accuracy, evaluation",
      evaluation.map((each) => each?.accuracy),
      1,
      share,
    ),
    { name: "Steps", values: progress.map((each) => each?.step ?? null) },
    ranked(
      "Steps per second",
      jobs.map((job) => meanRate(job)),
      1,
    ),
    { name: "Replicas", values: jobs.map(({ stats }) => stats.replicas.length) },
    { name: "CPU of all replicas, cores", values: jobs.map(({ stats }) => cpuOf(stats)) },
    { name: "Runtime", values: jobs.map(({ details }) => details.runtime || null) },
    { name: "Error", values: jobs.map(({ details }) => failure(details)) },
  ];
  return lines.filter((row) => row.values.some((value) => value !== null));
}

/**
 * The points of one metric of a job, over steps or over seconds since its start. After a restart, steps
 * repeat: points are sorted.
 * @param {Compared} job
 * @param {string} metric
 * @param {boolean} evaluation
 * @param {"step" | "time"} x
 * @returns {[number, number][]}
 */
export function measured(job, metric, evaluation, x) {
  const found = job.stats.metrics.find((each) => each.name === metric && each.evaluation === evaluation);
  if (!found) return [];
  const start = Date.parse(job.details.job.startTime ?? job.details.job.createTime);
  /** @type {[number, number][]} */
  const points = found.value.map((value, index) => [
    x === "time" ? (Date.parse(found.time[index]) - start) / 1000 : found.step[index],
    Number(value),
  ]);
  return points.sort((a, b) => a[0] - b[0]);
}

/** @param {string} name @param {(string | null)[]} values @returns {Line} */
function line(name, values) {
  return { name, values, different: new Set(values).size > 1 };
}

/**
 * A line with the best number highlighted: the largest, or with -1 the smallest.
 * @param {string} name
 * @param {(Api.Measure | null | undefined)[]} given
 * @param {1 | -1} sign
 * @param {(value: Api.Measure) => string | number} [format]
 * @returns {Line}
 */
function ranked(name, given, sign, format = (value) => value) {
  const numbers = given.map((value) => (typeof value === "number" ? value * sign : -Infinity));
  const top = Math.max(...numbers);
  const known = numbers.filter((value) => value !== -Infinity);
  const best = known.length > 1 && new Set(known).size > 1 ? numbers.indexOf(top) : undefined;
  return { name, values: given.map((value) => (value === null || value === undefined ? null : format(value))), best };
}

/** The mean rate of the whole job: the last rate may not be typical. @param {Compared} job */
function meanRate(job) {
  const found = job.stats.metrics.find((each) => each.name === "steps_per_s" && !each.evaluation);
  return found?.mean ?? job.details.progress?.globalStepsPerSecond ?? null;
}

/** The cores that all replicas used together. @param {Api.JobStats} stats */
function cpuOf(stats) {
  const means = stats.replicas.map((each) => each.cpu.mean).filter((mean) => typeof mean === "number");
  return means.length > 0 ? means.reduce((sum, each) => sum + each, 0) : null;
}

/** The failure in one line: the job's page has the details. @param {Api.JobDetails} details */
function failure({ failure: found, job }) {
  return found?.summary ?? job.errorMessage?.split("\n")[0] ?? null;
}

/** @param {Api.Job} job */
function ran(job) {
  return job.startTime ? duration(between(job.startTime, job.endTime)) : null;
}

/** @param {string | string[] | boolean | object | undefined} value @returns {string | null} */
function text(value) {
  if (value === undefined || value === "") return null;
  return Array.isArray(value) ? value.join("\n") : String(value);
}
