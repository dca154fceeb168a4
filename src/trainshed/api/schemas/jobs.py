"""Shapes of jobs, of their progress, and of what they use."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from trainshed.api.schemas.logs import LogEntryBody, Severity
from trainshed.api.schemas.notes import Example, Labels, Named, Time
from trainshed.domain.jobs.failure import FailureCause
from trainshed.domain.jobs.job import HangKind, JobEventKind
from trainshed.domain.jobs.states import JobState
from trainshed.domain.tuning.trial import FolderState

Job = Annotated[
    dict[str, Any],
    "As `projects.jobs.get` of the ml v1 API gives it.",
    Named("Job", shown=False),
    Example({"jobId": "mnist_1", "state": "RUNNING"}),
]
#: a number, or the word for one that JSON does not have
Measure = Annotated[float | Literal["NaN", "Infinity", "-Infinity"], Named("Measure"), Example(0.25)]
JobId = Annotated[str, Example("mnist_1")]
ReplicaName = Annotated[str, Example("worker-replica-0")]


ReplicaState = Annotated[
    Literal["waiting", "running", "done", "exited", "killed", "stopped"], Named("ReplicaState"), Example("running")
]


class JobRowBody(TypedDict):
    """A row of the table of jobs."""

    jobId: JobId
    state: Annotated[JobState, Example("RUNNING")]
    createTime: Time
    startTime: Time | None
    endTime: Annotated[Time | None, Example(None)]
    labels: Labels
    kind: Literal["training", "prediction"]
    gang: Annotated[str, "The replicas, in words.", Example("1 master, 2 workers, 1 ps")]
    cause: Annotated[FailureCause | None, "Why it failed or was cancelled.", Example(None)]
    message: Annotated[str, "The same in a sentence; empty for any other job.", Example("")]


class JobTableBody(TypedDict):
    """A page of the table of jobs, newest first."""

    jobs: list[JobRowBody]
    nextPageToken: NotRequired[Annotated[str, "Missing on the last page.", Example("WzE3OTQ5NTg5MDEsICJtbmlzdF8xIl0=")]]
    counts: Annotated[
        dict[str, int],
        "How many jobs match the rest of the search, by state, and `ALL` of them. The state that is asked for does not "
        "matter.",
        Example({"ALL": 1, "RUNNING": 1}),
    ]


class ReportBody(TypedDict):
    """The last figures of a source. A figure is null if none was reported."""

    time: Time | None
    step: Annotated[int | None, Example(400)]
    loss: Measure | None
    accuracy: Annotated[Measure | None, Example(0.92)]


class ProgressSummaryBody(TypedDict):
    """How far a job is. A figure is null if none was reported."""

    step: Annotated[int | None, Example(400)]
    totalSteps: Annotated[int | None, Example(1000)]
    epoch: Annotated[int | None, Example(None)]
    totalEpochs: Annotated[int | None, Example(None)]
    fraction: Annotated[float | None, "From 0 to 1.", Example(0.4)]
    loss: Measure | None
    accuracy: Annotated[Measure | None, Example(0.92)]
    globalStepsPerSecond: Annotated[Measure | None, "Of all replicas together.", Example(31.0)]
    leftSeconds: Annotated[Measure | None, "Estimated.", Example(19.4)]


class ProgressBody(ProgressSummaryBody):
    """The progress of a training."""

    time: Time | None
    ageSeconds: Annotated[float | None, "Since the last report, of a job that runs.", Example(1.5)]
    evaluation: ReportBody | None


class JobEventBody(TypedDict):
    """An entry of a job's history."""

    time: Time
    kind: Annotated[JobEventKind, Example("queued")]
    severity: Severity
    message: Annotated[str, Example("Job creation request has been queued.")]


class FailureBody(TypedDict):
    """Why a job failed. Programs can rely on its facts; the sentences may change."""

    cause: Annotated[FailureCause, Example("replica_exited")]
    exitCode: Annotated[int | None, "Of the replica.", Example(1)]
    signal: Annotated[int | None, "The signal that killed the replica.", Example(None)]
    memoryPeakBytes: Annotated[int | None, "The largest sample of the replica.", Example(734003200)]
    facts: Annotated[dict[str, str | int | float], "More facts of the cause.", Example({"module": "trainer.task"})]
    summary: Annotated[str, Example("There is no gs://mnist/data/train.csv.")]
    remedy: Annotated[str, "What to do; empty if nothing is known.", Example("trainshed buckets ls gs://mnist/data/")]
    replica: Annotated[str, "The replica whose end was the job's, or `service`.", Example("master-replica-0")]
    lines: Annotated[list[LogEntryBody], "The last traceback, or the last lines."]


class HangBody(TypedDict):
    """A replica that made no step, no output and used no CPU time, or that a signal stopped."""

    replica: ReplicaName
    kind: Annotated[HangKind, Example("idle")]
    time: Annotated[Time, "When it was noticed."]
    endTime: Annotated[Time | None, "When it was active again or exited; null if it still hangs.", Example(None)]
    quietSeconds: Annotated[float, "How long it had hung when it was noticed.", Example(600.4)]
    pid: Annotated[int | None, "Null if it runs on a node of a cluster.", Example(4711)]
    waitsFor: Annotated[list[str], "Active replicas that it may be waiting for.", Example([])]
    suspect: Annotated[
        str, "The replica that its synchronous group seems to wait for; empty if none can be named.", Example("")
    ]
    restarted: Annotated[bool, "Whether it was killed, so that it restarts."]
    message: Annotated[str, Example("worker-replica-0 hangs: no step, no output and no CPU time for 10 min.")]
    stack: Annotated[
        str,
        "Its Python threads, or why they are not known.",
        Example('Thread MainThread (most recent call last):\n  File "task.py", line 12, in train'),
    ]
    remedy: Annotated[str, "What a person can do about it.", Example("Continue it with `kill -CONT 4711`.")]


class JobDetailsBody(TypedDict):
    """A job with what the ml v1 API has no field for."""

    job: Job
    runtime: Annotated[str, "`container` if the job brings an image.", Example("2.21")]
    engine: Annotated[str, Example("local")]
    attempt: int
    notes: Annotated[list[str], "Such as: another runtime was chosen.", Example([])]
    restarts: Annotated[list[str], "A sentence for each restart.", Example([])]
    hangs: Annotated[list[HangBody], "The oldest first.", Example([])]
    progress: ProgressBody | None
    waiting: Annotated[str, "Why it is pending; empty if it is not.", Example("")]
    failure: Annotated[FailureBody | None, "Null for a job that did not fail.", Example(None)]
    events: list[JobEventBody]


class MeasurementBody(TypedDict):
    """One value of the metric of a trial."""

    time: Time
    step: Annotated[int, Example(400)]
    value: Annotated[float, Example(0.93)]


class TrialBody(TypedDict):
    """A trial of a tuning job."""

    trial: Annotated[int, "Its number, from 1.", Example(3)]
    state: Annotated[JobState, Example("RUNNING")]
    hyperparameters: Annotated[dict[str, str], "The values as the trainer gets them.", Example({"units": "64"})]
    attempt: Annotated[int, "Above 1 if it was lost with its machine and started again.", Example(1)]
    startTime: Time | None
    endTime: Annotated[Time | None, Example(None)]
    finalMetric: Annotated[MeasurementBody | None, "The last value, once it has ended.", Example(None)]
    lastMetric: Annotated[MeasurementBody | None, "The last value so far."]
    source: Annotated[str, "Where values come from: `hypertune`, or a folder.", Example("hypertune")]
    stoppedEarly: Annotated[bool, Example(False)]
    reason: Annotated[str, "Why it was stopped or failed; empty otherwise.", Example("")]
    folder: Annotated[FolderState, "Of its folder below `jobDir`.", Example("KEPT")]
    measurements: Annotated[list[MeasurementBody], "The oldest first. Of very many, some are left out."]


class TrialsBody(TypedDict):
    """The trials of a tuning job, by number."""

    job: JobId
    state: Annotated[JobState, Example("RUNNING")]
    goal: Annotated[Literal["MAXIMIZE", "MINIMIZE"], Example("MAXIMIZE")]
    metric: Annotated[str, "The tag.", Example("accuracy")]
    maxTrials: Annotated[int, Example(20)]
    maxParallelTrials: Annotated[int, Example(2)]
    best: Annotated[int | None, "The number of the best trial so far.", Example(3)]
    trials: list[TrialBody]


class JobHeadBody(TypedDict):
    """What answers about a job begin with."""

    job: JobId
    state: Annotated[JobState, Example("RUNNING")]
    elapsedSeconds: Annotated[float | None, Example(12.9)]
    error: Annotated[str, Example("")]


class ReplicaProgressBody(ReportBody):
    """The progress of one replica, and what it uses now. Use is null if it does not run."""

    name: ReplicaName
    state: ReplicaState
    exitCode: Annotated[int | None, Example(None)]
    signal: Annotated[int | None, Example(None)]
    status: Annotated[str, "The state in words, such as: exit status 1.", Example("running")]
    restarts: Annotated[int, Example(0)]
    localStepsPerSecond: Annotated[Measure | None, Example(15.5)]
    cpu: Annotated[float | None, "In cores.", Example(0.97)]
    memoryBytes: Annotated[int | None, Example(412_000_000)]
    processes: Annotated[int | None, Example(1)]


class JobProgressBody(JobHeadBody):
    """The progress of a job and of each of its replicas."""

    progress: ProgressBody | None
    replicas: list[ReplicaProgressBody]


class SeriesBody(TypedDict):
    """A series over time, thinned to the number of points that was asked for."""

    mean: Measure | None
    max: Measure | None
    time: list[Time]
    value: list[Measure]


class ReplicaStatsBody(TypedDict):
    """What a replica has used over time."""

    name: ReplicaName
    cpu: Annotated[SeriesBody, "In cores."]
    memoryBytes: SeriesBody


class MetricBody(SeriesBody):
    """A metric of a training, over time and steps."""

    name: Annotated[str, Example("loss")]
    evaluation: Annotated[bool, "Whether it was measured by an evaluation."]
    unit: Annotated[Literal["step", "epoch"], "What `step` counts."]
    step: Annotated[list[int], Example([400])]


class JobStatsBody(JobHeadBody):
    """What replicas have used, and the metrics of the training."""

    complete: Annotated[
        bool, "False if there was more to read than one request may. The next one goes on.", Example(True)
    ]
    replicas: list[ReplicaStatsBody]
    metrics: list[MetricBody]


class ExportBody(TypedDict):
    """A folder that a version can be created from."""

    uri: Annotated[str, Example("gs://mnist/out/export/1/")]
    time: Annotated[Time, "Of its newest file."]
    framework: Annotated[str, "Empty for a pickle: creating a version finds out.", Example("TENSORFLOW")]
    runtime: Annotated[str, "Of the job; empty if it has no runtime that can serve.", Example("2.21")]


class ExportsBody(TypedDict):
    """The exports of a job, newest first."""

    exports: list[ExportBody]


class KillRequestBody(TypedDict):
    """Which replica gets a signal."""

    kill: Annotated[str, "The replica.", Example("worker-replica-0")]
    signal: NotRequired[Annotated[str, "KILL if not given.", Example("KILL")]]


class KilledBody(TypedDict):
    """The signal that a replica gets."""

    replica: ReplicaName
    signal: Annotated[str, Example("SIGKILL")]


class TensorBoardBody(TypedDict):
    """A TensorBoard that runs."""

    url: Annotated[str, "A path of this server that needs no token.", Example("/tensorboard/KEY/")]
