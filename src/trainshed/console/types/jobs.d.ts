// Jobs, as in responses of the server. `Api` is global.

declare namespace Api {
  type JobState = "QUEUED" | "PREPARING" | "RUNNING" | "CANCELLING" | "SUCCEEDED" | "FAILED" | "CANCELLED";

  type Severity = "DEFAULT" | "DEBUG" | "INFO" | "NOTICE" | "WARNING" | "ERROR" | "CRITICAL" | "ALERT" | "EMERGENCY";

  type Labels = Record<string, string>;

  /** A number, or the name of one that JSON does not have. */
  type Measure = number | "NaN" | "Infinity" | "-Infinity";

  interface ReplicaConfig {
    imageUri?: string;
    containerCommand?: string[];
    containerArgs?: string[];
    acceleratorConfig?: { count?: string; type?: string };
  }

  interface TrainingInput {
    args?: string[];
    evaluatorConfig?: ReplicaConfig;
    evaluatorCount?: string;
    evaluatorType?: string;
    jobDir?: string;
    masterConfig?: ReplicaConfig;
    masterType?: string;
    packageUris?: string[];
    parameterServerConfig?: ReplicaConfig;
    parameterServerCount?: string;
    parameterServerType?: string;
    pythonModule?: string;
    pythonVersion?: string;
    region?: string;
    runtimeVersion?: string;
    scaleTier?: string;
    scheduling?: { maxRunningTime?: string; priority?: number };
    useChiefInTfConfig?: boolean;
    workerConfig?: ReplicaConfig;
    workerCount?: string;
    workerType?: string;
  }

  interface PredictionInput {
    batchSize?: string;
    dataFormat?: string;
    inputPaths?: string[];
    maxWorkerCount?: string;
    modelName?: string;
    outputDataFormat?: string;
    outputPath?: string;
    region?: string;
    runtimeVersion?: string;
    signatureName?: string;
    uri?: string;
    versionName?: string;
  }

  /** A job as a client writes it. It has one of the inputs. */
  interface JobRequest {
    jobId: string;
    labels?: Labels;
    trainingInput?: TrainingInput;
    predictionInput?: PredictionInput;
  }

  interface Job extends JobRequest {
    state: JobState;
    createTime: string;
    startTime?: string;
    endTime?: string;
    errorMessage?: string;
    etag: string;
    jobPosition?: string;
    predictionOutput?: { outputPath: string; predictionCount: string; errorCount: string; nodeHours: number };
  }

  /** A row of the table of jobs. */
  interface JobRow {
    jobId: string;
    state: JobState;
    createTime: string;
    startTime: string | null;
    endTime: string | null;
    labels: Labels;
    kind: "training" | "prediction";
    gang: string;
    message: string;
  }

  interface JobTable {
    jobs: JobRow[];
    nextPageToken?: string;
    counts: Record<"ALL" | JobState, number>;
  }

  interface Report {
    time: string | null;
    step: number | null;
    loss: Measure | null;
    accuracy: Measure | null;
  }

  /** Progress fields of both trainings and batch predictions. */
  interface Standing {
    step: number | null;
    totalSteps: number | null;
    epoch: number | null;
    totalEpochs: number | null;
    fraction: number | null;
    loss: Measure | null;
    accuracy: Measure | null;
    globalStepsPerSecond: Measure | null;
    leftSeconds: Measure | null;
  }

  interface Progress extends Standing, Report {
    ageSeconds: number | null;
    evaluation: Report | null;
  }

  interface JobEvent {
    time: string;
    severity: Severity;
    message: string;
  }

  interface Failure {
    summary: string;
    remedy: string;
    replica: string;
    lines: LogEntry[];
  }

  interface JobDetails {
    job: Job;
    runtime: string;
    engine: string;
    attempt: number;
    notes: string[];
    restarts: string[];
    progress: Progress | null;
    waiting: string;
    failure: Failure | null;
    events: JobEvent[];
  }

  /** Common fields of `progress` and `stats`. */
  interface JobHead {
    job: string;
    state: JobState;
    elapsedSeconds: number | null;
    error: string;
  }

  type ReplicaState = "waiting" | "running" | "done" | "exited" | "killed" | "stopped";

  interface ReplicaProgress extends Report {
    name: string;
    state: ReplicaState;
    exitCode: number | null;
    signal: number | null;
    /** The state in words, such as: exit status 1. */
    status: string;
    restarts: number;
    localStepsPerSecond: Measure | null;
    cpu: number | null;
    memoryBytes: number | null;
    processes: number | null;
  }

  interface JobProgress extends JobHead {
    progress: Progress | null;
    replicas: ReplicaProgress[];
  }

  interface Series {
    mean: Measure | null;
    max: Measure | null;
    time: string[];
    value: Measure[];
  }

  interface ReplicaStats {
    name: string;
    cpu: Series;
    memoryBytes: Series;
  }

  interface Metric extends Series {
    name: string;
    evaluation: boolean;
    unit: "step" | "epoch";
    step: number[];
  }

  interface JobStats extends JobHead {
    complete: boolean;
    replicas: ReplicaStats[];
    metrics: Metric[];
  }

  /** One line of a job's log. */
  interface LogEntry {
    insertId: string;
    time: string;
    replica: string;
    severity: Severity;
    message: string;
  }

  interface LogPage {
    entries: LogEntry[];
    cursor: string;
    before: string;
    more: boolean;
    ended: boolean;
    replicas: string[];
  }

  interface Export {
    uri: string;
    time: string;
    framework: string;
    runtime: string;
  }

  interface Exports {
    exports: Export[];
  }

  interface Killed {
    replica: string;
    signal: string;
  }
}
