"""The next step for a job: a function of what is stored and what is seen, and of nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainshed.domain.jobs.job import Job, JobEvent, JobState


class AttemptPhase(StrEnum):
    """How far an attempt has come, as seen from outside it."""

    ABSENT = "absent"  #: no supervisor was started for it
    PREPARING = "preparing"  #: its supervisor lives; not every replica runs yet
    RUNNING = "running"  #: every replica was started
    ENDED = "ended"  #: its supervisor wrote down how it ended, and is gone
    LOST = "lost"  #: its supervisor is gone and wrote nothing down


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedAttempt:
    """What an engine knows of one attempt."""

    phase: AttemptPhase
    started_us: int | None = None  #: when the last replica was first started
    ended_us: int | None = None
    outcome: JobState | None = None  #: with ENDED: SUCCEEDED, FAILED or CANCELLED
    message: str = ""  #: with ENDED: why, for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Places for replicas on one machine."""

    slots: int
    taken: int  #: by gangs that are there already

    @property
    def free(self) -> int:
        return max(0, self.slots - self.taken)

    def fits(self, size: int) -> bool:
        """Whether a gang of that size may start. One larger than the machine does when it has it for itself."""
        return size <= self.free or self.taken == 0


@dataclass(frozen=True, slots=True)
class NoAction:
    """Nothing to do until the next look."""


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """Prepare the attempt and start its supervisor. Safe to repeat."""


@dataclass(frozen=True, slots=True)
class CancelAttempt:
    """Tell the supervisor to end it. Safe to repeat."""


@dataclass(frozen=True, slots=True)
class Transition:
    """Write this down: the job in its next state, and the lines that say so."""

    job: Job
    events: tuple[JobEvent, ...]


Action = NoAction | StartAttempt | CancelAttempt | Transition

LOST_SUPERVISOR = (
    "The supervisor of this job was killed, and its replicas were ended with it. "
    "Nothing is wrong with the job itself: submit it again under a new name."
)


def reconcile(job: Job, seen: ObservedAttempt, *, now_us: int) -> Action:
    """The one next step for a job that has left the queue. Same arguments, same answer."""
    match job.state, seen.phase:
        case JobState.CANCELLING, AttemptPhase.PREPARING | AttemptPhase.RUNNING:
            return CancelAttempt()
        case JobState.CANCELLING, _:
            return _end(job, JobState.CANCELLED, seen, now_us, "")
        case JobState.PREPARING, AttemptPhase.ABSENT:
            return StartAttempt()
        case JobState.PREPARING, AttemptPhase.RUNNING:
            started = seen.started_us or now_us
            return Transition(job.to(JobState.RUNNING, now_us=now_us, started_us=started), ())
        case JobState.PREPARING | JobState.RUNNING, AttemptPhase.ENDED:
            return _end(job, seen.outcome or JobState.FAILED, seen, now_us, seen.message)
        case (JobState.PREPARING | JobState.RUNNING, AttemptPhase.LOST) | (JobState.RUNNING, AttemptPhase.ABSENT):
            return _end(job, JobState.FAILED, seen, now_us, LOST_SUPERVISOR)
    return NoAction()


_CLOSING = {
    JobState.SUCCEEDED: ("INFO", "Job completed successfully."),
    JobState.FAILED: ("ERROR", "Job failed."),
    JobState.CANCELLED: ("INFO", "Job cancelled."),
}


def _end(job: Job, state: JobState, seen: ObservedAttempt, now_us: int, error: str) -> Transition:
    ended = job.to(state, now_us=seen.ended_us or now_us, started_us=seen.started_us, error=error)
    severity, closing = _CLOSING[state]
    why = (JobEvent(message=error, time_us=now_us, severity="ERROR"),) if error else ()
    return Transition(ended, (*why, JobEvent(message=closing, time_us=now_us, severity=severity)))
