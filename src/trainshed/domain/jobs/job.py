"""A job and its events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from trainshed.domain.jobs.failure import Failure
from trainshed.domain.jobs.states import TERMINAL_STATES, TRANSITIONS, JobState
from trainshed.domain.jobs.training import Training
from trainshed.domain.jobs.workload import Workload
from trainshed.domain.names import LOCAL_ENGINE
from trainshed.domain.tuning.hyperparameters import Tuning
from trainshed.errors import FailedPreconditionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as the control plane knows it. Immutable: `to` returns a new one."""

    project: str
    id: str
    workload: Workload  #: what it runs; `workload.input` is what the user wrote
    labels: Mapping[str, str] = field(default_factory=dict)
    state: JobState = JobState.QUEUED
    priority: int = 0
    attempt: int = 0
    runtime: str = ""  #: resolved runtime version, such as "2.21"; empty until PREPARING
    engine: str = LOCAL_ENGINE  #: chosen at creation
    created_us: int
    started_us: int | None = None
    ended_us: int | None = None
    failure: Failure | None = None  #: why it failed or was cancelled
    generation: int = 1  #: incremented by each write; the etag encodes it
    user: str = ""  #: who submitted it
    replicas: int = 1  #: of its gang; 0 for a tuning job, whose trials have replicas
    passed_over_us: int | None = None  #: when a job behind it in the queue first started before it
    parent: str = ""  #: the tuning job of a trial
    trial: int = 0  #: its number, from 1; 0 if the job is no trial
    order_us: int = field(default=0, compare=False)  #: position in the order of creation; assigned by the store

    @property
    def name(self) -> str:
        return f"projects/{self.project}/jobs/{self.id}"

    @property
    def training(self) -> Training:
        """The workload of a training job. Raises `TypeError` if the job is a batch prediction."""
        if not isinstance(self.workload, Training):
            raise TypeError(f"Job {self.id} is a {self.workload.what}, not a training job.")
        return self.workload

    @property
    def tuning(self) -> Tuning | None:
        """What a tuning job searches for. Returns None for any other job, and for a trial."""
        return self.workload.tuning if isinstance(self.workload, Training) and not self.trial else None

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL_STATES

    def to(self, state: JobState, *, now_us: int, started_us: int | None = None, failure: Failure | None = None) -> Job:
        """Return this job after a transition. Raises `FailedPreconditionError` if the transition is illegal."""
        if state not in TRANSITIONS[self.state]:
            raise FailedPreconditionError(f"Job {self.id} is {self.state} and can't become {state}.")
        started = self.started_us or started_us or (now_us if state is JobState.RUNNING else None)
        started = started and max(started, self.created_us)  # the clock may have been set back
        return replace(
            self,
            state=state,
            attempt=self.attempt + (state is JobState.PREPARING),
            started_us=started,
            ended_us=max(now_us, started or self.created_us) if state in TERMINAL_STATES else None,
            failure=failure or self.failure,
        )

    def requeued(self) -> Job:
        """Return a lost trial as it waits for its next attempt. Raises `FailedPreconditionError` for any other job."""
        if not self.trial or self.state not in (JobState.PREPARING, JobState.RUNNING):
            raise FailedPreconditionError(f"Job {self.id} is {self.state} and can't go back to the queue.")
        return replace(self, state=JobState.QUEUED, started_us=None)


class JobEventKind(StrEnum):
    """What an event of a job tells of."""

    VALIDATED = "validated"
    NOTE = "note"  #: what the user should know of the job as it was submitted
    QUEUED = "queued"
    TRIAL = "trial"  #: a trial of a tuning job started or ended
    ADMITTED = "admitted"
    PREPARING = "preparing"  #: progress of a launch
    OUTAGE = "outage"  #: its engine became unreachable
    RECOVERY = "recovery"  #: its engine responds again
    HUNG = "hung"  #: a replica makes no step, no output and uses no CPU time, or is stopped
    HANG_ENDED = "hang_ended"  #: it is active again, or has exited
    CANCEL_REQUESTED = "cancel_requested"
    FAILED = "failed"  #: why it failed, before its end
    ENDED = "ended"


class HangKind(StrEnum):
    """How a replica hangs."""

    STOPPED = "stopped"  #: by a signal: the kernel does not run it
    IDLE = "idle"  #: no step, no output and no CPU time


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """One entry of a job's history, written together with its transition. People read it as a `service` log."""

    kind: JobEventKind
    message: str
    time_us: int
    severity: str = "INFO"
    subject: str = ""  #: with OUTAGE: the engine's name, for people
    seq: int = 0  #: assigned by the store; increasing
