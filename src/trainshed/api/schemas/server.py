"""Shapes of the server, its settings and runtimes, and of the overview of a project."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from trainshed.api.schemas.jobs import JobRowBody, ProgressSummaryBody
from trainshed.api.schemas.notes import Example, Json, Time


class HealthBody(TypedDict):
    """That the server responds."""

    status: Annotated[Literal["ok"], Example("ok")]
    version: Annotated[str, Example("0.1.0")]


class ServerBody(TypedDict):
    """The endpoints and the process of the server."""

    url: Annotated[str, Example("http://127.0.0.1:8470")]
    tlsUrl: Annotated[str, Example("https://127.0.0.1:8471")]
    pid: NotRequired[Annotated[int, "For owners of all projects alone.", Example(4711)]]
    home: NotRequired[
        Annotated[str, "The state folder, for owners of all projects alone.", Example("/home/ada/.trainshed")]
    ]
    version: Annotated[str, Example("0.1.0")]
    fastPathOffReason: Annotated[
        str, "Why predictions have no fast path, and what to do. Empty if they have it.", Example("")
    ]
    sandbox: Annotated[
        Literal["full", "landlock", "none"],
        "The level of the sandbox around user code on this machine.",
        Example("full"),
    ]
    sandboxReason: Annotated[str, "Why it is not a higher level. Empty at the full one.", Example("")]
    network: Annotated[
        Literal["own", "proxied", "machine"],
        "The network of user code on this machine: its own, its own from which a proxy alone leads to other machines, "
        "or the machine's.",
        Example("own"),
    ]
    networkReason: Annotated[str, "Why it is not `own`. Empty if it is.", Example("")]
    limits: Annotated[
        Literal["cgroups", "watched", "none"],
        "By which means the limits of user code on this machine are kept.",
        Example("cgroups"),
    ]
    limitsReason: Annotated[str, "Why control groups do not keep them. Empty if they do.", Example("")]


class SettingBody(TypedDict):
    """A setting in effect. Passwords are left out of its value."""

    name: Annotated[str, Example("port")]
    value: Annotated[Json, Example(8470)]
    default: Annotated[Json, Example(8470)]
    source: Annotated[Literal["default", "file", "environment", "command line"], "Where its value comes from."]
    description: Annotated[str, Example("The port of HTTP.")]


class SettingsBody(TypedDict):
    """All settings."""

    settings: list[SettingBody]


class RuntimeBody(TypedDict):
    """A runtime and its state on this machine."""

    name: Annotated[str, Example("2.21")]
    python: Annotated[str, Example("3.11")]
    summary: Annotated[str, Example("TensorFlow 2.21")]
    state: Annotated[Literal["ABSENT", "BUILDING", "READY", "UNAVAILABLE"], Example("READY")]
    fraction: Annotated[float, "Of a build, from 0 to 1.", Example(1.0)]
    text: Annotated[str, "What a build does now.", Example("")]
    error: Annotated[str, "Why the last build failed, or why it can't be had.", Example("")]
    path: Annotated[str, Example("/home/ada/.trainshed/runtimes/2.21")]
    size: Annotated[int, "In bytes; 0 if it is not built.", Example(2_100_000_000)]


class RuntimesBody(TypedDict):
    """All runtimes."""

    runtimes: list[RuntimeBody]


class MachineSampleBody(TypedDict):
    """The machine at one time."""

    time: Time
    cpu: Annotated[float, Example(0.42)]
    memoryUsedBytes: Annotated[int, Example(3_000_000_000)]


class MachineBody(TypedDict):
    """The machine that the server runs on."""

    cpus: Annotated[int, Example(8)]
    cpu: Annotated[float, "The used share of all cores, from 0 to 1.", Example(0.42)]
    memoryBytes: Annotated[int, Example(16_000_000_000)]
    memoryUsedBytes: Annotated[int, Example(3_000_000_000)]
    diskBytes: Annotated[int, "Of the disk that the state folder is on.", Example(500_000_000_000)]
    diskFreeBytes: Annotated[int, Example(200_000_000_000)]
    history: Annotated[list[MachineSampleBody], "The last ten minutes, every 5 s."]


class AlertBody(TypedDict):
    """What needs a person."""

    severity: Literal["error", "warning"]
    message: Annotated[str, Example("Job mnist_2 failed. There is no gs://mnist/data/train.csv.")]
    remedy: Annotated[str, Example("trainshed buckets ls gs://mnist/data/")]
    link: Annotated[str, "Into the console.", Example("#/p/trainshed/jobs/mnist_2")]


class RunningJobBody(JobRowBody):
    """A row of a job that runs, with its progress."""

    progress: ProgressSummaryBody | None


class QueuedJobBody(JobRowBody):
    """A row of a job that is queued."""

    waiting: Annotated[str, "Why it is pending.", Example("1 job is ahead of it.")]


class ModelRowBody(TypedDict):
    """A model and its requests in the last hour. Latencies are null without requests."""

    name: Annotated[str, Example("digits")]
    defaultVersion: Annotated[str, "Empty without versions.", Example("v1")]
    versions: Annotated[int, Example(2)]
    requests1h: Annotated[int, Example(120)]
    errors1h: Annotated[int, Example(0)]
    p50Ms: Annotated[float | None, Example(1.9)]
    p99Ms: Annotated[float | None, Example(4.2)]


class JobCountsBody(TypedDict):
    """How many jobs there are. Those that are prepared or cancelled count as running."""

    queued: Annotated[int, Example(0)]
    running: Annotated[int, Example(1)]
    succeeded24h: Annotated[int, Example(3)]
    failed24h: Annotated[int, Example(1)]


class OverviewBody(TypedDict):
    """A project at a glance."""

    jobs: JobCountsBody
    running: Annotated[list[RunningJobBody], "Ten at most."]
    queued: Annotated[list[QueuedJobBody], "Ten at most."]
    models: Annotated[list[ModelRowBody], "Fifty at most."]
    machine: MachineBody
    alerts: Annotated[list[AlertBody], "Errors first."]


class OpenApiBody(TypedDict):
    """This document."""

    openapi: Annotated[str, Example("3.1.0")]
    info: dict[str, Json]
    tags: Annotated[list[Json], Example([])]
    security: Annotated[list[Json], Example([])]
    paths: Annotated[dict[str, Json], Example({})]
    components: Annotated[dict[str, Json], Example({})]


class ErrorReasonBody(TypedDict):
    """A reason, in the form that clients of Cloud Storage read."""

    domain: Annotated[str, Example("global")]
    reason: Annotated[str, Example("invalid")]
    message: Annotated[str, Example("There is no job mnist_1 in project trainshed.")]


class ErrorStatusBody(TypedDict):
    """What went wrong. `message` is a sentence for people, `status` a word for programs."""

    code: Annotated[int, "The HTTP status.", Example(404)]
    message: Annotated[str, Example("There is no job mnist_1 in project trainshed.")]
    status: Annotated[str, "The name of a google.rpc.Code.", Example("NOT_FOUND")]
    errors: list[ErrorReasonBody]
    details: NotRequired[Annotated[list[dict[str, Any]], "`BadRequest` with the field, if one is wrong."]]


class ErrorBody(TypedDict):
    """An error, in Google's form."""

    error: ErrorStatusBody


class TokenErrorBody(TypedDict):
    """An error of the token endpoint, in the form of RFC 6749."""

    error: Annotated[str, Example("invalid_grant")]
    error_description: NotRequired[str]


class EmptyBody(TypedDict):
    """An empty object."""
