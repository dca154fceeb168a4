"""A job, its states and the legal moves between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from trainshed.errors import FailedPrecondition


class JobState(StrEnum):
    """The API's own words."""

    QUEUED = "QUEUED"  #: stored; no engine has it yet
    PREPARING = "PREPARING"  #: its runtime, its packages and its processes are being made ready
    RUNNING = "RUNNING"  #: the user's code runs in every replica
    CANCELLING = "CANCELLING"  #: told to end; not all of it has
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


ENGINE_LABEL = "trainshed-engine"  #: by which any client can say where a job is to run
LOCAL, RAY = "local", "ray"  #: the engines: this machine, which is always there, and a cluster

ENDS = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})

NEXT: Mapping[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.PREPARING, JobState.CANCELLED, JobState.FAILED}),
    JobState.PREPARING: ENDS | {JobState.RUNNING, JobState.CANCELLING},  # a short job may end before it is seen
    JobState.RUNNING: ENDS | {JobState.CANCELLING},
    JobState.CANCELLING: frozenset({JobState.CANCELLED}),
} | dict.fromkeys(ENDS, frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as the control plane knows it. A value: `to` returns a new one."""

    project: str
    id: str
    body: Mapping[str, Any]  #: the parts of the API's Job that the user wrote: trainingInput or predictionInput
    labels: Mapping[str, str] = field(default_factory=dict)
    state: JobState = JobState.QUEUED
    priority: int = 0
    attempt: int = 0
    runtime: str = ""  #: the runtime chosen for it, such as "2.21"; empty until it is prepared
    engine: str = LOCAL  #: where it runs, chosen when it was created
    created_us: int
    started_us: int | None = None
    ended_us: int | None = None
    error: str = ""
    generation: int = 1  #: grows with each write; the etag is made of it

    @property
    def name(self) -> str:
        return f"projects/{self.project}/jobs/{self.id}"

    @property
    def ended(self) -> bool:
        return self.state in ENDS

    def to(self, state: JobState, *, now_us: int, started_us: int | None = None, error: str = "") -> Job:
        """This job in its next state. `FailedPrecondition` if it cannot get there from where it is."""
        if state not in NEXT[self.state]:
            raise FailedPrecondition(f"Job {self.id} is {self.state} and can't become {state}.")
        started = self.started_us or started_us or (now_us if state is JobState.RUNNING else None)
        return replace(
            self,
            state=state,
            attempt=self.attempt + (state is JobState.PREPARING),
            started_us=started,
            ended_us=max(now_us, started or now_us) if state in ENDS else None,
            error=error or self.error,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A line of a job's history, written with the state change it tells of. People read these as `service` logs."""

    text: str
    time_us: int
    severity: str = "INFO"
    seq: int = 0  #: given by the store; grows
