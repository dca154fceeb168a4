"""Shapes of searches: tuning jobs and studies, with their trials, as people look at them."""

from typing import Annotated, Literal, NotRequired, TypedDict

from trainshed.api.schemas.notes import Example, Named, Time
from trainshed.domain.jobs.states import JobState
from trainshed.domain.tuning.scales import Scale
from trainshed.domain.tuning.search import Algorithm
from trainshed.domain.tuning.space import ParameterKind
from trainshed.domain.tuning.study import StudyState, TrialState

SearchName = Annotated[str, Example("search_1")]
Location = Annotated[str, "Empty for a tuning job.", Example("us-central1")]
SearchValue = Annotated[float | str | None, Named("SearchValue"), Example(0.01)]


class SearchMetricBody(TypedDict):
    """What a search looks for."""

    name: Annotated[str, "The tag, for a tuning job.", Example("accuracy")]
    goal: Annotated[Literal["MAXIMIZE", "MINIMIZE"], Example("MAXIMIZE")]


class SearchParameterBody(TypedDict):
    """A parameter of a search."""

    name: Annotated[str, Example("learning_rate")]
    type: Annotated[ParameterKind, Example("DOUBLE")]
    scale: Annotated[Scale, Example("LOG")]
    minimum: Annotated[float | None, "Null for CATEGORICAL.", Example(0.001)]
    maximum: Annotated[float | None, "Null for CATEGORICAL.", Example(0.3)]
    values: Annotated[list[str], "Of CATEGORICAL and DISCRETE.", Example([])]


class SearchTrialBody(TypedDict):
    """A trial of a search."""

    trial: Annotated[int, Example(3)]
    job: Annotated[str, "The tuning job that ran it; empty in a study.", Example("search_1")]
    state: Annotated[JobState | TrialState, "Of a study, a state of its trials.", Example("RUNNING")]
    values: Annotated[list[SearchValue], "In the order of the parameters. Null if the trial does not have it."]
    metrics: Annotated[list[float | None], "The final values, in the order of the metrics.", Example([0.93])]
    lastMetrics: Annotated[list[float | None], "The last values so far.", Example([0.93])]
    startTime: Time | None
    endTime: Time | None
    stoppedEarly: Annotated[bool, Example(False)]
    reason: Annotated[str, "Why it was stopped, failed or is infeasible.", Example("")]
    client: Annotated[str, "Of a study: who has the trial.", Example("")]


class SearchCurveBody(TypedDict):
    """What a trial reported of the first metric on its way."""

    trial: Annotated[int, Example(3)]
    x: Annotated[list[float], Example([100, 200])]
    y: Annotated[list[float], Example([0.8, 0.93])]


class SearchTableBody(TypedDict):
    """A search with all of its trials, by number."""

    name: SearchName
    location: Location
    state: Annotated[JobState | StudyState, Example("RUNNING")]
    ended: bool
    jobs: Annotated[list[str], "The tuning jobs whose trials these are, the first one first.", Example(["search_1"])]
    maxTrials: Annotated[int, "Of this job alone.", Example(20)]
    maxParallelTrials: Annotated[int | None, "Null for a study.", Example(2)]
    earlyStopping: bool
    algorithm: Annotated[Algorithm, Example("BAYESIAN")]
    createTime: Time
    metrics: list[SearchMetricBody]
    optimal: Annotated[
        list[int], "The best trial; of several metrics, those that no other one is better than in all.", Example([3])
    ]
    parameters: list[SearchParameterBody]
    trials: list[SearchTrialBody]
    unit: Annotated[Literal["step", "second"], "What `x` of the curves counts. Seconds if a trainer counts no steps."]
    curves: Annotated[list[SearchCurveBody], "Those of trials that have reported something."]


class StudyRowBody(TypedDict):
    """A study in the list."""

    study: SearchName
    location: Annotated[str, Example("us-central1")]
    state: Annotated[StudyState, Example("ACTIVE")]
    createTime: Time
    metrics: list[SearchMetricBody]
    parameters: Annotated[int, "How many.", Example(4)]
    trials: Annotated[int, "How many.", Example(20)]
    completed: Annotated[int, "How many of the trials.", Example(18)]
    best: Annotated[float | None, "Null without a value, and with several metrics.", Example(0.93)]


class StudyTableBody(TypedDict):
    """A page of the studies of all locations, newest first."""

    studies: list[StudyRowBody]
    nextPageToken: NotRequired[Annotated[str, "Missing on the last page.", Example("WzE3OTQ5NTg5MDEsICJ1cy9hIl0=")]]
