"""The next action for a job, as a pure function of desired and observed state."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainshed.domain.jobs.job import Job, JobEvent, JobState


class AttemptPhase(StrEnum):
    """How far an attempt has come, as its engine observes it."""

    ABSENT = "absent"  #: it has no supervisor
    PREPARING = "preparing"  #: its supervisor runs; some replicas do not yet
    RUNNING = "running"  #: every replica was started
    ENDED = "ended"  #: its supervisor recorded the outcome and exited
    LOST = "lost"  #: its supervisor is gone and recorded no outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedAttempt:
    """The state of one attempt as its engine reports it."""

    phase: AttemptPhase
    started_us: int | None = None  #: first start of the replica that started last
    ended_us: int | None = None
    outcome: JobState | None = None  #: with ENDED: SUCCEEDED, FAILED or CANCELLED
    message: str = ""  #: with ENDED: the reason, for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Slots for replicas on one machine."""

    slots: int
    taken: int  #: by gangs that were admitted already

    @property
    def free(self) -> int:
        return max(0, self.slots - self.taken)

    def fits(self, size: int) -> bool:
        """Whether a gang of this size may start. A gang with more replicas than slots gets an empty machine."""
        return size <= self.free or self.taken == 0


@dataclass(frozen=True, slots=True)
class NoAction:
    """Nothing to do until the next reconcile pass."""


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """Prepare the attempt and start its supervisor. Idempotent."""


@dataclass(frozen=True, slots=True)
class CancelAttempt:
    """Tell the supervisor to cancel the attempt. Idempotent."""


@dataclass(frozen=True, slots=True)
class Transition:
    """Write the job in its next state, together with its events."""

    job: Job
    events: tuple[JobEvent, ...]


Action = NoAction | StartAttempt | CancelAttempt | Transition

LOST_SUPERVISOR = (
    "The supervisor of this job was killed, and its replicas were ended with it. "
    "Nothing is wrong with the job itself: submit it again under a new name."
)


def reconcile(job: Job, observed: ObservedAttempt, *, now_us: int) -> Action:
    """The next action for a job that was admitted. A pure function."""
    match job.state, observed.phase:
        case JobState.CANCELLING, AttemptPhase.PREPARING | AttemptPhase.RUNNING:
            return CancelAttempt()
        case JobState.CANCELLING, _:
            return _end(job, JobState.CANCELLED, observed, now_us, "")
        case JobState.PREPARING, AttemptPhase.ABSENT:
            return StartAttempt()
        case JobState.PREPARING, AttemptPhase.RUNNING:
            started_us = observed.started_us or now_us
            return Transition(job.to(JobState.RUNNING, now_us=now_us, started_us=started_us), ())
        case JobState.PREPARING | JobState.RUNNING, AttemptPhase.ENDED:
            return _end(job, observed.outcome or JobState.FAILED, observed, now_us, observed.message)
        case (JobState.PREPARING | JobState.RUNNING, AttemptPhase.LOST) | (JobState.RUNNING, AttemptPhase.ABSENT):
            return _end(job, JobState.FAILED, observed, now_us, LOST_SUPERVISOR)
    return NoAction()


_END_MESSAGES = {
    JobState.SUCCEEDED: ("INFO", "Job completed successfully."),
    JobState.FAILED: ("ERROR", "Job failed."),
    JobState.CANCELLED: ("INFO", "Job cancelled."),
}


def _end(job: Job, state: JobState, observed: ObservedAttempt, now_us: int, error: str) -> Transition:
    ended_job = job.to(state, now_us=observed.ended_us or now_us, started_us=observed.started_us, error=error)
    severity, end_message = _END_MESSAGES[state]
    error_events = (JobEvent(message=error, time_us=now_us, severity="ERROR"),) if error else ()
    return Transition(ended_job, (*error_events, JobEvent(message=end_message, time_us=now_us, severity=severity)))
