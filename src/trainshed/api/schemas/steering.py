"""Shapes of what people change about a search while it runs."""

from typing import Annotated, NotRequired, TypedDict

from trainshed.api.schemas.jobs import JobId
from trainshed.api.schemas.notes import Example
from trainshed.domain.jobs.states import JobState


class ChangeSearchBody(TypedDict):
    """New bounds of a search. What is missing stays."""

    maxTrials: NotRequired[Annotated[int, "Of the job, those that have ended included.", Example(30)]]
    maxParallelTrials: NotRequired[Annotated[int, "Trials that run beyond it go on.", Example(4)]]


class TryPointBody(TypedDict):
    """A point of the space, to be tried next."""

    hyperparameters: Annotated[
        dict[str, float | str], "A value for each parameter. Numbers may be texts.", Example({"units": 64})
    ]


class SteeringBody(TypedDict):
    """What a search is to do now."""

    job: JobId
    state: Annotated[JobState, Example("RUNNING")]
    maxTrials: Annotated[int, Example(30)]
    maxParallelTrials: Annotated[int, Example(4)]
    finishing: Annotated[bool, "Whether it ends with the trials that it has.", Example(False)]
    points: Annotated[list[dict[str, str]], "Points of users that wait for their trial.", Example([{"units": "64"}])]
