// @ts-check
// The command line that submits a job like this one again.

const PLAIN = /^[\w@%+=:,./-]+$/;

/** @typedef {[field: keyof Api.TrainingInput, flag: string]} TrainingFlag */
/** @typedef {[field: keyof Api.PredictionInput, flag: string]} PredictionFlag */

/** @type {TrainingFlag[]} */
const TRAINING_FLAGS = [
  ["pythonModule", "--module-name"],
  ["packageUris", "--packages"],
  ["jobDir", "--job-dir"],
  ["region", "--region"],
  ["runtimeVersion", "--runtime-version"],
  ["pythonVersion", "--python-version"],
  ["scaleTier", "--scale-tier"],
  ["masterType", "--master-machine-type"],
  ["workerCount", "--worker-count"],
  ["workerType", "--worker-machine-type"],
  ["parameterServerCount", "--parameter-server-count"],
  ["parameterServerType", "--parameter-server-machine-type"],
  ["useChiefInTfConfig", "--use-chief-in-tf-config"],
];

/** @type {PredictionFlag[]} */
const PREDICTION_FLAGS = [
  ["uri", "--model-dir"],
  ["dataFormat", "--data-format"],
  ["inputPaths", "--input-paths"],
  ["outputPath", "--output-path"],
  ["batchSize", "--batch-size"],
  ["maxWorkerCount", "--max-worker-count"],
  ["signatureName", "--signature-name"],
  ["runtimeVersion", "--runtime-version"],
  ["region", "--region"],
];

const WORDS = new Set(["scaleTier", "dataFormat"]); // enums of the API that the command line spells its own way
const BY_DEFAULT = { trainingInput: ["args"], predictionInput: ["modelName", "versionName", "outputDataFormat"] };

/**
 * Quote a text for a POSIX shell.
 * @param {string} text
 * @returns {string}
 */
export function quoted(text) {
  return PLAIN.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** @param {string} field @param {unknown} value */
function flagValue(field, value) {
  if (Array.isArray(value)) return value.join(",");
  return WORDS.has(field) ? String(value).toLowerCase().replaceAll("_", "-") : String(value);
}

/**
 * @template {object} Input
 * @param {Input} input
 * @param {[field: keyof Input & string, flag: string][]} table
 */
function flags(input, table) {
  return table
    .filter(([field]) => input[field] !== undefined && input[field] !== "")
    .map(([field, flag]) => `${flag} ${quoted(flagValue(field, input[field]))}`);
}

/** @param {Api.PredictionInput} input */
function modelFlags(input) {
  const name = input.versionName ?? input.modelName ?? "";
  const parts = name.split("/");
  const found = parts.length > 3 ? [`--model ${quoted(parts[3])}`] : [];
  return parts.length > 5 ? [...found, `--version ${quoted(parts[5])}`] : found;
}

/**
 * @param {Api.JobRequest} job
 * @param {string} name of the new job: an id is taken for ever
 * @param {"trainshed" | "gcloud"} tool
 * @returns {string}
 */
export function submitCommand(job, name, tool) {
  const program = tool === "gcloud" ? "gcloud ai-platform" : "trainshed";
  const training = job.trainingInput;
  const prediction = job.predictionInput ?? {};
  const labels = Object.entries(job.labels ?? {}).map(([key, value]) => `${key}=${value}`);
  const lines = [
    `${program} jobs submit ${training ? "training" : "prediction"} ${quoted(name)}`,
    ...(training
      ? flags(training, TRAINING_FLAGS)
      : [...modelFlags(prediction), ...flags(prediction, PREDICTION_FLAGS)]),
    ...(labels.length ? [`--labels ${quoted(labels.join(","))}`] : []),
  ];
  const args = (training?.args ?? []).map(quoted);
  const all = args.length ? [...lines, "--", ...paired(args)] : lines;
  return all.join(" \\\n    ");
}

/** `--name value` on one line, as people write it. @param {string[]} args */
function paired(args) {
  /** @type {string[]} */
  const found = [];
  for (const arg of args) {
    const last = found.at(-1);
    const open = last !== undefined && last.startsWith("--") && !/[= ]/.test(last);
    if (open && !arg.startsWith("-")) found[found.length - 1] = `${last} ${arg}`;
    else found.push(arg);
  }
  return found;
}

/**
 * The fields of a job without a flag, for a file with --config.
 * @param {Api.JobRequest} job
 * @returns {string[]}
 */
export function withoutFlag(job) {
  const key = job.trainingInput ? "trainingInput" : "predictionInput";
  /** @type {Set<string>} */
  const said = new Set([
    ...(job.trainingInput ? TRAINING_FLAGS : PREDICTION_FLAGS).map(([field]) => field),
    ...BY_DEFAULT[key],
  ]);
  return Object.keys(job[key] ?? {}).filter((field) => !said.has(field));
}
