"""Shapes of rollouts."""

from typing import Annotated, Literal, NotRequired, TypedDict

from trainshed.api.schemas.notes import Example, Time


class RolloutRequestBody(TypedDict):
    """A version, and how it is rolled out."""

    version: Annotated[str, "The new version, which must be READY.", Example("v2")]
    shadowSeconds: NotRequired[
        Annotated[
            float,
            "How long it first gets copies of requests to the default version, as shadow traffic; 0 if not given.",
            Example(600),
        ]
    ]
    shadowPercent: NotRequired[Annotated[int, "Of the requests that are copied; 100 if not given.", Example(100)]]
    steps: NotRequired[
        Annotated[
            list[int],
            "Percents of the requests that name no version, each above the one before; 1, 10, 50, 100 if not given.",
            Example([1, 10, 50, 100]),
        ]
    ]
    stepSeconds: NotRequired[Annotated[float, "How long each step takes at least; 300 if not given.", Example(300)]]
    abortIf: NotRequired[
        Annotated[
            list[str],
            "When to roll back: a figure of the new version and a limit. `error_rate` (%, or x: a multiple of the "
            "default version's), `p50`, `p95`, `p99` (x, ms, s), `changed` (%: answers of shadow traffic).",
            Example(["error_rate>0.5%", "p99>1.5x"]),
        ]
    ]
    minRequests: NotRequired[
        Annotated[int, "Requests that a stage needs to be judged; 200 if not given.", Example(200)]
    ]


class RolloutStageBody(TypedDict):
    """One part of a rollout."""

    kind: Annotated[Literal["SHADOW", "SPLIT"], Example("SPLIT")]
    percent: Annotated[int, Example(10)]
    seconds: Annotated[float, Example(300)]


class StageMeasurementBody(TypedDict):
    """Requests to one version in the present stage. Latencies are 0 without any."""

    requests: Annotated[int, Example(412)]
    errors: Annotated[int, Example(0)]
    compared: Annotated[int, "Answers of shadow traffic that were compared with the default version's.", Example(0)]
    changed: Annotated[int, "Those of them that differ.", Example(0)]
    p50Ms: Annotated[float, Example(1.9)]
    p95Ms: Annotated[float, Example(3.1)]
    p99Ms: Annotated[float, Example(4.2)]


class MeasuredBody(TypedDict):
    """Both versions of a rollout in its present stage."""

    version: StageMeasurementBody
    baseline: StageMeasurementBody


class RolloutEventBody(TypedDict):
    """Something that a rollout did, and why."""

    time: Time
    message: Annotated[str, Example("Started with shadow traffic of 100 %.")]


class RolloutBody(TypedDict):
    """A rollout of a model."""

    id: Annotated[str, "A number, counted for each model.", Example("1")]
    version: Annotated[str, Example("v2")]
    baseline: Annotated[str, "The default version when it started.", Example("v1")]
    state: Annotated[Literal["RUNNING", "PROMOTED", "ROLLED_BACK", "STOPPED"], Example("RUNNING")]
    stages: list[RolloutStageBody]
    stage: Annotated[int, "The index of the present stage, or of the last one.", Example(1)]
    stageTime: Annotated[Time, "When it began."]
    abortIf: Annotated[list[str], Example(["error_rate>0.5%", "p99>1.5x"])]
    minRequests: Annotated[int, Example(200)]
    createTime: Time
    endTime: Annotated[Time | None, "Null while it is running."]
    reason: Annotated[str, "The last event.", Example("Started with shadow traffic of 100 %.")]
    events: list[RolloutEventBody]
    waitsFor: Annotated[str, "What the present stage waits for; empty after the end.", Example("")]
    measured: Annotated[MeasuredBody | None, "Null after the end. Counted anew when the server starts."]


class RolloutListBody(TypedDict):
    """The rollouts of a model, newest first: the one that is running, and the last 20 that have ended."""

    rollouts: list[RolloutBody]
