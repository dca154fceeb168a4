"""A job, its states and the legal moves between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from trainshed.errors import FailedPreconditionError


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
LOCAL_ENGINE, RAY_ENGINE = "local", "ray"  #: the engines: this machine, which is always there, and a cluster

TERMINAL_STATES = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})

TRANSITIONS: Mapping[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.PREPARING, JobState.CANCELLED, JobState.FAILED}),
    JobState.PREPARING: TERMINAL_STATES
    | {JobState.RUNNING, JobState.CANCELLING},  # a short job may end before it is seen
    JobState.RUNNING: TERMINAL_STATES | {JobState.CANCELLING},
    JobState.CANCELLING: frozenset({JobState.CANCELLED}),
} | dict.fromkeys(TERMINAL_STATES, frozenset())


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
    engine: str = LOCAL_ENGINE  #: where it runs, chosen when it was created
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
        return self.state in TERMINAL_STATES

    def to(self, state: JobState, *, now_us: int, started_us: int | None = None, error: str = "") -> Job:
        """This job in its next state. `FailedPreconditionError` if it cannot get there from where it is."""
        if state not in TRANSITIONS[self.state]:
            raise FailedPreconditionError(f"Job {self.id} is {self.state} and can't become {state}.")
        started = self.started_us or started_us or (now_us if state is JobState.RUNNING else None)
        return replace(
            self,
            state=state,
            attempt=self.attempt + (state is JobState.PREPARING),
            started_us=started,
            ended_us=max(now_us, started or now_us) if state in TERMINAL_STATES else None,
            error=error or self.error,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """A line of a job's history, written with the state change it tells of. People read these as `service` logs."""

    message: str
    time_us: int
    severity: str = "INFO"
    seq: int = 0  #: given by the store; grows
