// Shapes of Trainshed's own API. Generated: python -m trainshed.api.openapi.reference types

declare namespace Api {
  /** A token of limited lifetime, in the form of RFC 6749. */
  interface AccessToken {
    access_token: string;
    token_type: "Bearer";
    expires_in: number;
  }

  /** What needs a person. */
  interface Alert {
    severity: "error" | "warning";
    message: string;
    remedy: string;
    link: string;
  }

  type Algorithm = "BAYESIAN" | "RANDOM" | "GRID";

  /** A change, or a refused try. */
  interface AuditEntry {
    id: string;
    time: string;
    project: string;
    user: string;
    address: string;
    method: string;
    resource: string;
    outcome: string;
    times: number;
  }

  /** Entries, the newest first, or with `after` in the order in which they were written. */
  interface AuditPage {
    entries: AuditEntry[];
    cursor: string;
    nextPageToken: string;
  }

  /** New bounds of a search. What is missing stays. */
  interface ChangeSearch {
    maxTrials?: number;
    maxParallelTrials?: number;
  }

  /** Which sign-in is asked for. */
  interface DeviceHandle {
    handle: string;
  }

  /** The session of a person who has signed in, or the time until the next request. */
  interface DeviceOutcome {
    intervalSeconds?: number;
    token?: string;
    user?: string;
    project?: string;
    role?: Role;
  }

  /** A sign-in that a person ends in a browser. */
  interface DeviceSignIn {
    handle: string;
    userCode: string;
    url: string;
    urlWithCode: string;
    expiresSeconds: number;
    intervalSeconds: number;
  }

  /** A sign-in of a command line to begin. */
  interface DeviceSignInRequest {
    project?: string;
  }

  /** An instance whose prediction has changed. */
  interface Difference {
    instance: Json;
    before: Json;
    after: Json;
  }

  /** An empty object. */
  interface Empty {}

  /** An error, in Google's form. */
  interface Error {
    error: ErrorStatus;
  }

  /** A reason, in the form that clients of Cloud Storage read. */
  interface ErrorReason {
    domain: string;
    reason: string;
    message: string;
  }

  /** What went wrong. `message` is a sentence for people, `status` a word for programs. */
  interface ErrorStatus {
    code: number;
    message: string;
    status: string;
    errors: ErrorReason[];
    details?: Record<string, unknown>[];
  }

  /** A folder that a version can be created from. */
  interface Export {
    uri: string;
    time: string;
    framework: string;
    runtime: string;
  }

  /** The exports of a job, newest first. */
  interface Exports {
    exports: Export[];
  }

  /** Why a job failed. Programs can rely on its facts; the sentences may change. */
  interface Failure {
    cause: FailureCause;
    exitCode: number | null;
    signal: number | null;
    memoryPeakBytes: number | null;
    facts: Record<string, string | number | number>;
    summary: string;
    remedy: string;
    replica: string;
    lines: LogEntry[];
  }

  type FailureCause =
    | "replica_exited"
    | "replica_killed"
    | "replica_hung"
    | "out_of_memory"
    | "too_many_processes"
    | "too_many_open_files"
    | "file_too_large"
    | "disk_limit"
    | "node_lost"
    | "time_limit"
    | "cancelled"
    | "reaper_lost"
    | "supervisor_stopped"
    | "supervisor_failed"
    | "start_failed"
    | "install_failed"
    | "node_setup_failed"
    | "container_tool_missing"
    | "image_missing"
    | "image_architecture"
    | "supervisor_lost"
    | "launch_failed"
    | "bucket_limit"
    | "metric_missing"
    | "trials_failed";

  type FolderState = "KEPT" | "REMOVING" | "REMOVED";

  /** A replica that made no step, no output and used no CPU time, or that a signal stopped. */
  interface Hang {
    replica: string;
    kind: HangKind;
    time: string;
    endTime: string | null;
    quietSeconds: number;
    pid: number | null;
    waitsFor: string[];
    suspect: string;
    restarted: boolean;
    message: string;
    stack: string;
    remedy: string;
  }

  type HangKind = "stopped" | "idle";

  /** That the server responds. */
  interface Health {
    status: "ok";
    version: string;
  }

  /** A process that serves a version. */
  interface Host {
    instance: number;
    pid: number;
    state: "STARTING" | "READY" | "ENDED";
    memoryBytes: number;
    ageSeconds: number;
    stats: Record<string, number>;
    address: string;
  }

  /** How answers in batches compare with answers alone. */
  interface Invariance {
    difference: number | null;
    rows: number;
    message: string;
  }

  /** How many jobs there are. Those that are prepared or cancelled count as running. */
  interface JobCounts {
    queued: number;
    running: number;
    succeeded24h: number;
    failed24h: number;
  }

  /** A job with what the ml v1 API has no field for. */
  interface JobDetails {
    job: Job;
    runtime: string;
    engine: string;
    attempt: number;
    notes: string[];
    restarts: string[];
    hangs: Hang[];
    progress: Progress | null;
    waiting: string;
    failure: Failure | null;
    events: JobEvent[];
  }

  /** An entry of a job's history. */
  interface JobEvent {
    time: string;
    kind: JobEventKind;
    severity: Severity;
    message: string;
  }

  type JobEventKind =
    | "validated"
    | "note"
    | "queued"
    | "trial"
    | "admitted"
    | "preparing"
    | "outage"
    | "recovery"
    | "hung"
    | "hang_ended"
    | "cancel_requested"
    | "failed"
    | "ended";

  /** The progress of a job and of each of its replicas. */
  interface JobProgress {
    job: string;
    state: JobState;
    elapsedSeconds: number | null;
    error: string;
    progress: Progress | null;
    replicas: ReplicaProgress[];
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
    cause: FailureCause | null;
    message: string;
  }

  type JobState = "QUEUED" | "PREPARING" | "RUNNING" | "CANCELLING" | "SUCCEEDED" | "FAILED" | "CANCELLED";

  /** What replicas have used, and the metrics of the training. */
  interface JobStats {
    job: string;
    state: JobState;
    elapsedSeconds: number | null;
    error: string;
    complete: boolean;
    replicas: ReplicaStats[];
    metrics: Metric[];
  }

  /** A page of the table of jobs, newest first. */
  interface JobTable {
    jobs: JobRow[];
    nextPageToken?: string;
    counts: Record<string, number>;
  }

  /** A key of a service account to create. */
  interface KeyRequest {
    user: string;
    project: string;
    role?: "viewer" | "editor" | "owner";
    label?: string;
  }

  /** Which replica gets a signal. */
  interface KillRequest {
    kill: string;
    signal?: string;
  }

  /** The signal that a replica gets. */
  interface Killed {
    replica: string;
    signal: string;
  }

  type Labels = Record<string, string>;

  /** Percentiles. */
  interface Latency {
    p50: number;
    p99: number;
  }

  /** Latencies as logged, and of the replay. */
  interface LatencyChange {
    before: Latency;
    after: Latency;
  }

  /** Where a sign-in link leads. */
  interface LinkRequest {
    project?: string | null;
  }

  /** One line of a job's log. */
  interface LogEntry {
    insertId: string;
    time: string;
    replica: string;
    trial: string;
    severity: Severity;
    message: string;
  }

  /** Lines in order, between two cursors. A page may be short, or empty, and still not be the last. */
  interface LogPage {
    entries: LogEntry[];
    cursor: string;
    before: string;
    end?: string;
    more: boolean;
    ended: boolean;
    replicas: string[];
    since?: string;
  }

  /** The machine that the server runs on. */
  interface Machine {
    cpus: number;
    cpu: number;
    memoryBytes: number;
    memoryUsedBytes: number;
    diskBytes: number;
    diskFreeBytes: number;
    history: MachineSample[];
  }

  /** The machine at one time. */
  interface MachineSample {
    time: string;
    cpu: number;
    memoryUsedBytes: number;
  }

  type Measure = number | "NaN" | "Infinity" | "-Infinity";

  /** Both versions of a rollout in its present stage. */
  interface Measured {
    version: StageMeasurement;
    baseline: StageMeasurement;
  }

  /** One value of the metric of a trial. */
  interface Measurement {
    time: string;
    step: number;
    value: number;
  }

  /** A metric of a training, over time and steps. */
  interface Metric {
    mean: Measure | null;
    max: Measure | null;
    time: string[];
    value: Measure[];
    name: string;
    evaluation: boolean;
    unit: "step" | "epoch";
    step: number[];
  }

  /** Requests of one minute. */
  interface Minute {
    count: number;
    errors: number;
    p50Ms: number;
    p99Ms: number;
    time: string;
  }

  /** A mirror of a public object. */
  interface Mirror {
    uri: string;
    size: number | null;
    builtIn: boolean;
    updateTime: string | null;
  }

  /** The public object that a mirror is of. */
  interface MirrorName {
    uri: string;
  }

  /** A mirror to add. */
  interface MirrorRequest {
    uri: string;
    source: string;
  }

  /** All mirrors. */
  interface Mirrors {
    mirrors: Mirror[];
  }

  /** A model with what the ml v1 API has no field for. */
  interface ModelDetails {
    model: Model;
    notes: string[];
    split: Record<string, number>;
    previousVersion: string;
    traffic: Record<string, Traffic>;
  }

  /** A model and its requests in the last hour. Latencies are null without requests. */
  interface ModelRow {
    name: string;
    defaultVersion: string;
    versions: number;
    requests1h: number;
    errors1h: number;
    p50Ms: number | null;
    p99Ms: number | null;
  }

  /** What user code of a project reaches. */
  interface Network {
    network: "none" | "google-storage" | "all" | "machine";
    default: boolean;
  }

  /** A network to set. */
  interface NetworkRequest {
    network: "none" | "google-storage" | "all";
  }

  /** A key that was just created, with its file, which is shown this once. */
  interface NewKey {
    id: string;
    user: string;
    project: string;
    role: Role;
    label: string;
    createTime: string;
    expireTime: string | null;
    revokeTime: string | null;
    keyFile: Record<string, string>;
  }

  /** A token that was just created, with its secret, which is shown this once. */
  interface NewToken {
    id: string;
    user: string;
    project: string;
    role: Role;
    label: string;
    createTime: string;
    expireTime: string | null;
    revokeTime: string | null;
    token: string;
  }

  /** This document. */
  interface OpenApi {
    openapi: string;
    info: Record<string, Json>;
    tags: Json[];
    security: Json[];
    paths: Record<string, Json>;
    components: Record<string, Json>;
  }

  /** A project at a glance. */
  interface Overview {
    jobs: JobCounts;
    running: RunningJob[];
    queued: QueuedJob[];
    models: ModelRow[];
    machine: Machine;
    alerts: Alert[];
  }

  type ParameterKind = "DOUBLE" | "INTEGER" | "CATEGORICAL" | "DISCRETE";

  /** How the loader's answers compare with those of the model's own framework. */
  interface Parity {
    reference: string;
    difference: number | null;
    within: boolean;
    message: string;
  }

  /** A precision lower than f32, and how answers in it compare with those in f32. */
  interface Precision {
    name: string;
    difference: number | null;
    agreement: number | null;
    rows: number;
    message: string;
  }

  /** The progress of a training. */
  interface Progress {
    step: number | null;
    totalSteps: number | null;
    epoch: number | null;
    totalEpochs: number | null;
    fraction: number | null;
    loss: Measure | null;
    accuracy: Measure | null;
    globalStepsPerSecond: Measure | null;
    leftSeconds: Measure | null;
    time: string | null;
    ageSeconds: number | null;
    evaluation: Report | null;
  }

  /** How far a job is. A figure is null if none was reported. */
  interface ProgressSummary {
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

  /** A row of a job that is queued. */
  interface QueuedJob {
    jobId: string;
    state: JobState;
    createTime: string;
    startTime: string | null;
    endTime: string | null;
    labels: Labels;
    kind: "training" | "prediction";
    gang: string;
    cause: FailureCause | null;
    message: string;
    waiting: string;
  }

  /** A limit as it was set. */
  interface Quota {
    name: QuotaName;
    project: string;
    user: string;
    value: number;
  }

  type QuotaName =
    | "running-replicas"
    | "queued-replicas"
    | "jobs-per-day"
    | "highest-priority"
    | "versions"
    | "hosts"
    | "bucket-bytes"
    | "requests-per-second"
    | "log-days"
    | "attempt-days"
    | "trial-days"
    | "request-log-days";

  /** A limit to set. */
  interface QuotaRequest {
    name: QuotaName;
    project: string;
    user?: string;
    value: number;
  }

  /** A limit that applies, with what counts towards it. */
  interface QuotaUse {
    name: QuotaName;
    project: string;
    user: string;
    value: number;
    used: number | null;
    default: boolean;
  }

  /** The limits that apply. */
  interface QuotaUses {
    quotas: QuotaUse[];
  }

  /** All limits as they were set. */
  interface Quotas {
    quotas: Quota[];
  }

  /** A form, in the form of RFC 6749. Other fields are passed over. */
  interface RefreshRequest {
    grant_type: "refresh_token" | "urn:ietf:params:oauth:grant-type:jwt-bearer";
    refresh_token?: string;
    assertion?: string;
  }

  /** How a version answered logged requests. */
  interface Replay {
    compared: number;
    complete: boolean;
    changed: number;
    examples: Difference[];
    latencyMs: LatencyChange;
  }

  /** Which logged requests are replayed. */
  interface ReplayRequest {
    count?: number;
  }

  /** The progress of one replica, and what it uses now. Use is null if it does not run. */
  interface ReplicaProgress {
    time: string | null;
    step: number | null;
    loss: Measure | null;
    accuracy: Measure | null;
    name: string;
    state: ReplicaState;
    exitCode: number | null;
    signal: number | null;
    status: string;
    restarts: number;
    localStepsPerSecond: Measure | null;
    cpu: number | null;
    memoryBytes: number | null;
    processes: number | null;
  }

  type ReplicaState = "waiting" | "running" | "done" | "exited" | "killed" | "stopped";

  /** What a replica has used over time. */
  interface ReplicaStats {
    name: string;
    cpu: Series;
    memoryBytes: Series;
  }

  /** The last figures of a source. A figure is null if none was reported. */
  interface Report {
    time: string | null;
    step: number | null;
    loss: Measure | null;
    accuracy: Measure | null;
  }

  type Role = "artifact-reader" | "job" | "viewer" | "editor" | "owner";

  /** A rollout of a model. */
  interface Rollout {
    id: string;
    version: string;
    baseline: string;
    state: "RUNNING" | "PROMOTED" | "ROLLED_BACK" | "STOPPED";
    stages: RolloutStage[];
    stage: number;
    stageTime: string;
    abortIf: string[];
    minRequests: number;
    createTime: string;
    endTime: string | null;
    reason: string;
    events: RolloutEvent[];
    waitsFor: string;
    measured: Measured | null;
  }

  /** Something that a rollout did, and why. */
  interface RolloutEvent {
    time: string;
    message: string;
  }

  /** The rollouts of a model, newest first: the one that is running, and the last 20 that have ended. */
  interface RolloutList {
    rollouts: Rollout[];
  }

  /** A version, and how it is rolled out. */
  interface RolloutRequest {
    version: string;
    shadowSeconds?: number;
    shadowPercent?: number;
    steps?: number[];
    stepSeconds?: number;
    abortIf?: string[];
    minRequests?: number;
  }

  /** One part of a rollout. */
  interface RolloutStage {
    kind: "SHADOW" | "SPLIT";
    percent: number;
    seconds: number;
  }

  /** What a rotation of the key has done. */
  interface Rotation {
    secrets: number;
    unreadable: string[];
  }

  /** A row of a job that runs, with its progress. */
  interface RunningJob {
    jobId: string;
    state: JobState;
    createTime: string;
    startTime: string | null;
    endTime: string | null;
    labels: Labels;
    kind: "training" | "prediction";
    gang: string;
    cause: FailureCause | null;
    message: string;
    progress: ProgressSummary | null;
  }

  /** A runtime and its state on this machine. */
  interface Runtime {
    name: string;
    python: string;
    summary: string;
    state: "ABSENT" | "BUILDING" | "READY" | "UNAVAILABLE";
    fraction: number;
    text: string;
    error: string;
    path: string;
    size: number;
  }

  /** All runtimes. */
  interface Runtimes {
    runtimes: Runtime[];
  }

  /** The body of a predict request, as Google has it. */
  interface Sample {
    instances: Json[];
    signature_name?: string;
  }

  /** Instances to begin with. */
  interface SampleRequest {
    instances: Json[];
    signature: string;
    inputs: Record<string, Tensor>;
    source: "sample" | "signature" | "";
    cut: boolean;
  }

  type Scale = "NONE" | "LINEAR" | "LOG" | "REVERSE_LOG";

  /** How many hosts a version has by its load. */
  interface Scaling {
    minHosts: number;
    maxHosts: number;
    hosts: number;
    inFlight: number;
    waitsForMemory: boolean;
  }

  /** What a trial reported of the first metric on its way. */
  interface SearchCurve {
    trial: number;
    x: number[];
    y: number[];
  }

  /** What a search looks for. */
  interface SearchMetric {
    name: string;
    goal: "MAXIMIZE" | "MINIMIZE";
  }

  /** A parameter of a search. */
  interface SearchParameter {
    name: string;
    type: ParameterKind;
    scale: Scale;
    minimum: number | null;
    maximum: number | null;
    values: string[];
  }

  /** A search with all of its trials, by number. */
  interface SearchTable {
    name: string;
    location: string;
    state: JobState | StudyState;
    ended: boolean;
    jobs: string[];
    maxTrials: number;
    maxParallelTrials: number | null;
    earlyStopping: boolean;
    algorithm: Algorithm;
    createTime: string;
    metrics: SearchMetric[];
    optimal: number[];
    parameters: SearchParameter[];
    trials: SearchTrial[];
    unit: "step" | "second";
    curves: SearchCurve[];
  }

  /** A trial of a search. */
  interface SearchTrial {
    trial: number;
    job: string;
    state: JobState | TrialState;
    values: SearchValue[];
    metrics: (number | null)[];
    lastMetrics: (number | null)[];
    startTime: string | null;
    endTime: string | null;
    stoppedEarly: boolean;
    reason: string;
    client: string;
  }

  type SearchValue = number | string | null;

  /** A secret, without its value. */
  interface Secret {
    name: string;
    user: string;
    updateTime: string;
    readable: boolean;
  }

  /** The value of a secret. No answer has it. */
  interface SecretRequest {
    value: string;
  }

  /** The secrets of a project. */
  interface Secrets {
    secrets: Secret[];
  }

  /** A series over time, thinned to the number of points that was asked for. */
  interface Series {
    mean: Measure | null;
    max: Measure | null;
    time: string[];
    value: Measure[];
  }

  /** The endpoints and the process of the server. */
  interface Server {
    url: string;
    tlsUrl: string;
    pid?: number;
    home?: string;
    version: string;
    fastPathOffReason: string;
    sandbox: "full" | "landlock" | "none";
    sandboxReason: string;
    network: "own" | "proxied" | "machine";
    networkReason: string;
    limits: "cgroups" | "watched" | "none";
    limitsReason: string;
  }

  /** Who is signed in, and what there is to see. */
  interface Session {
    user: string;
    project: string;
    role: Role;
    projects: string[];
    version: string;
    url: string;
    authentication: boolean;
  }

  /** A setting in effect. Passwords are left out of its value. */
  interface Setting {
    name: string;
    value: Json;
    default: Json;
    source: "default" | "file" | "environment" | "command line";
    description: string;
  }

  /** All settings. */
  interface Settings {
    settings: Setting[];
  }

  type Severity = "DEFAULT" | "DEBUG" | "INFO" | "NOTICE" | "WARNING" | "ERROR" | "CRITICAL" | "ALERT" | "EMERGENCY";

  /** A page that signs a browser in, once, within 60 seconds. */
  interface SignInLink {
    url: string;
  }

  /** The token to sign in with. */
  interface SignInRequest {
    token?: string;
  }

  /** A signature of a model. */
  interface Signature {
    inputs: Record<string, Tensor>;
    outputs: Record<string, Tensor>;
  }

  /** How requests that name no version are spread. */
  interface SplitRequest {
    weights?: Record<string, number>;
  }

  /** Requests to one version in the present stage. Latencies are 0 without any. */
  interface StageMeasurement {
    requests: number;
    errors: number;
    compared: number;
    changed: number;
    p50Ms: number;
    p95Ms: number;
    p99Ms: number;
  }

  /** What a search is to do now. */
  interface Steering {
    job: string;
    state: JobState;
    maxTrials: number;
    maxParallelTrials: number;
    finishing: boolean;
    points: Record<string, string>[];
  }

  /** A study in the list. */
  interface StudyRow {
    study: string;
    location: string;
    state: StudyState;
    createTime: string;
    metrics: SearchMetric[];
    parameters: number;
    trials: number;
    completed: number;
    best: number | null;
  }

  type StudyState = "ACTIVE" | "COMPLETED";

  /** A page of the studies of all locations, newest first. */
  interface StudyTable {
    studies: StudyRow[];
    nextPageToken?: string;
  }

  /** An input or output of a signature. */
  interface Tensor {
    dtype: string;
    shape: number[] | null;
  }

  /** A TensorBoard that runs. */
  interface TensorBoard {
    url: string;
  }

  /** A token, without its secret. */
  interface Token {
    id: string;
    user: string;
    project: string;
    role: Role;
    label: string;
    createTime: string;
    expireTime: string | null;
    revokeTime: string | null;
  }

  /** An error of the token endpoint, in the form of RFC 6749. */
  interface TokenError {
    error: string;
    error_description?: string;
  }

  /** A token to create. */
  interface TokenRequest {
    user: string;
    project?: string;
    role?: "viewer" | "editor" | "owner";
    label?: string;
    ttlSeconds?: number | null;
  }

  /** All tokens that the caller may manage. */
  interface Tokens {
    tokens: Token[];
  }

  /** Requests to one version in the last hour. Minutes without a request are left out. */
  interface Traffic {
    count: number;
    errors: number;
    p50Ms: number;
    p99Ms: number;
    lastRequestTime?: string;
    minutes: Minute[];
  }

  /** A trial of a tuning job. */
  interface Trial {
    trial: number;
    state: JobState;
    hyperparameters: Record<string, string>;
    attempt: number;
    startTime: string | null;
    endTime: string | null;
    finalMetric: Measurement | null;
    lastMetric: Measurement | null;
    source: string;
    stoppedEarly: boolean;
    reason: string;
    folder: FolderState;
    measurements: Measurement[];
  }

  type TrialState = "REQUESTED" | "ACTIVE" | "STOPPING" | "COMPLETED";

  /** The trials of a tuning job, by number. */
  interface Trials {
    job: string;
    state: JobState;
    goal: "MAXIMIZE" | "MINIMIZE";
    metric: string;
    maxTrials: number;
    maxParallelTrials: number;
    best: number | null;
    trials: Trial[];
  }

  /** A point of the space, to be tried next. */
  interface TryPoint {
    hyperparameters: Record<string, number | string>;
  }

  /** A user or a service account. */
  interface User {
    name: string;
    kind: UserKind;
    createTime: string;
    disableTime: string | null;
  }

  type UserKind = "user" | "service-account";

  /** A limit of a user, or of each user, or days that the project keeps something, to remove. */
  interface UserQuotaName {
    name: QuotaName;
    user?: string;
  }

  /** A limit of a user, or of each user, or days that the project keeps something, to set. */
  interface UserQuotaRequest {
    name: QuotaName;
    user?: string;
    value: number;
  }

  /** A user or a service account to add. */
  interface UserRequest {
    name: string;
    kind?: UserKind;
  }

  /** All users and service accounts. */
  interface Users {
    users: User[];
  }

  /** A version with what the ml v1 API has no field for. What its creation finds out is missing before. */
  interface VersionDetails {
    version: Version;
    runtime: string;
    engine: string;
    notes: string[];
    loader?: string;
    detail?: string;
    batching?: boolean;
    invariance?: Invariance | null;
    precision?: Precision | null;
    parity?: Parity | null;
    site?: string;
    size?: number;
    image?: string;
    sample?: Sample | null;
    signatures?: Record<string, Signature>;
    files: string;
    operation: string;
    progress: string;
    hosts: Host[];
    scaling: Scaling | null;
    log: string;
  }
}
