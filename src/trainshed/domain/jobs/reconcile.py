"""The next action for a job, as a pure function of desired and observed state."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.failure_text import error_message
from trainshed.domain.jobs.job import Job, JobEvent, JobEventKind
from trainshed.domain.jobs.states import JobState
from trainshed.errors import FailedPreconditionError

MAX_PIDS = 20  #: of orphans that a failure names
MAX_TRIAL_ATTEMPTS = 3  #: at a trial that is lost again and again
#: ends that say nothing of a trial itself, and which its supervisor recorded when all of its processes were gone
_LOSSES = frozenset({FailureCause.REAPER_LOST, FailureCause.SUPERVISOR_STOPPED, FailureCause.NODE_LOST})


class AttemptPhase(StrEnum):
    """How far an attempt has come, as its engine observes it."""

    ABSENT = "absent"  #: it has no supervisor
    PREPARING = "preparing"  #: its supervisor runs; some replicas do not yet
    RUNNING = "running"  #: every replica was started
    ENDED = "ended"  #: its supervisor recorded the outcome and exited
    LOST = "lost"  #: its supervisor is gone and recorded no outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphans:
    """Processes of an attempt that outlived its supervisor and its reaper."""

    ended: tuple[int, ...] = ()  #: pids of those that the engine killed
    left: tuple[int, ...] = ()  #: pids of those that it can't kill


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedAttempt:
    """The state of one attempt as its engine reports it."""

    phase: AttemptPhase
    started_us: int | None = None  #: first start of the replica that started last
    ended_us: int | None = None
    outcome: JobState | None = None  #: with ENDED: SUCCEEDED, FAILED or CANCELLED
    failure: Failure | None = None  #: with ENDED: why it failed or was cancelled
    orphans: Orphans | None = None  #: with LOST: the result of the engine's search. None: it did not search


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Slots for replicas on one machine. Some may be kept for jobs of one replica."""

    slots: int
    taken: int  #: by gangs that were admitted already
    singles: int = 0  #: of these, by jobs of one replica
    kept: int = 0  #: for jobs of one replica

    @property
    def free(self) -> int:
        return max(0, self.slots - self._by_gangs - self.singles)

    @property
    def free_for_gangs(self) -> int:
        return max(0, self.slots - self.kept - self._taken_from_gangs)

    @property
    def _by_gangs(self) -> int:
        """Slots that gangs of several replicas take. One that is larger than what they may have leaves the rest."""
        return min(self.taken - self.singles, self.slots - self.kept)

    @property
    def _taken_from_gangs(self) -> int:
        """Taken slots that are not kept. Jobs of one replica take the kept ones first."""
        return self._by_gangs + max(0, self.singles - self.kept)

    def fits(self, size: int) -> bool:
        """Whether a gang of this size may start. A larger one than gangs may have gets all slots but the kept ones."""
        if size == 1:
            return self.free > 0 or self.taken == 0
        return size <= self.free_for_gangs or self._taken_from_gangs == 0


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


def reconcile(job: Job, observed: ObservedAttempt, *, now_us: int) -> Action:
    """The next action for a job that was admitted. A pure function."""
    match job.state, observed.phase:
        case JobState.CANCELLING, AttemptPhase.PREPARING | AttemptPhase.RUNNING:
            return CancelAttempt()
        case JobState.CANCELLING, _:
            is_limit = job.failure is not None and job.failure.cause is FailureCause.BUCKET_LIMIT
            return _end(job, JobState.FAILED if is_limit else JobState.CANCELLED, observed, now_us, None)
        case JobState.PREPARING, AttemptPhase.ABSENT:
            return StartAttempt()
        case JobState.PREPARING, AttemptPhase.RUNNING:
            started_us = observed.started_us or now_us
            return Transition(job.to(JobState.RUNNING, now_us=now_us, started_us=started_us), ())
        case JobState.PREPARING | JobState.RUNNING, AttemptPhase.LOST | AttemptPhase.ENDED if _starts_again(
            job, observed
        ):
            message = f"Trial {job.trial} was lost with its machine or its supervisor. It starts again."
            return Transition(job.requeued(), (JobEvent(kind=JobEventKind.QUEUED, message=message, time_us=now_us),))
        case JobState.PREPARING | JobState.RUNNING, AttemptPhase.ENDED:
            return _end(job, observed.outcome or JobState.FAILED, observed, now_us, observed.failure)
        case (JobState.PREPARING | JobState.RUNNING, AttemptPhase.LOST) | (JobState.RUNNING, AttemptPhase.ABSENT):
            return _end(job, JobState.FAILED, observed, now_us, _supervisor_lost(observed.orphans))
    return NoAction()


def _starts_again(job: Job, observed: ObservedAttempt) -> bool:
    """Whether another attempt follows a lost one: only of a trial, and only if its processes are known to be gone."""
    if not job.trial or job.attempt >= MAX_TRIAL_ATTEMPTS:
        return False
    if observed.phase is AttemptPhase.LOST:
        return observed.orphans is not None and not observed.orphans.left
    return observed.failure is not None and observed.failure.cause in _LOSSES


def _supervisor_lost(orphans: Orphans | None) -> Failure:
    if orphans is None:
        return Failure(cause=FailureCause.SUPERVISOR_LOST)
    ended, left = (", ".join(map(str, pids[:MAX_PIDS])) for pids in (orphans.ended, orphans.left))
    facts: dict[str, str | int | float] = {
        "ended": len(orphans.ended),
        "ended_pids": ended,
        "left": len(orphans.left),
        "left_pids": left,
    }
    return Failure(cause=FailureCause.SUPERVISOR_LOST, facts=facts)


_END_MESSAGES = {
    JobState.SUCCEEDED: ("INFO", "Job completed successfully."),
    JobState.FAILED: ("ERROR", "Job failed."),
    JobState.CANCELLED: ("INFO", "Job cancelled."),
}


def _end(job: Job, state: JobState, observed: ObservedAttempt, now_us: int, failure: Failure | None) -> Transition:
    ended_us = observed.ended_us or now_us
    ended_job = job.to(state, now_us=ended_us, started_us=observed.started_us, failure=failure)
    return Transition(ended_job, end_events(ended_job, failure, now_us=now_us))


def end_events(job: Job, failure: Failure | None, *, now_us: int) -> tuple[JobEvent, ...]:
    """The last events of a job: why it failed, unless an earlier event says so, and its end."""
    severity, message = _END_MESSAGES[job.state]
    end = JobEvent(kind=JobEventKind.ENDED, message=message, time_us=now_us, severity=severity)
    if failure is None:
        return (end,)
    reason = error_message(failure, job.id)
    return (JobEvent(kind=JobEventKind.FAILED, message=reason, time_us=now_us, severity="ERROR"), end)


def cancelled(job: Job, failure: Failure, *, now_us: int) -> tuple[Job, tuple[JobEvent, ...]] | None:
    """Return the job after a request to cancel it, with its events. Returns None if it is CANCELLING already.

    Raises `FailedPreconditionError` if it has ended.
    """
    requested = JobEvent(kind=JobEventKind.CANCEL_REQUESTED, message=error_message(failure, job.id), time_us=now_us)
    if job.state is JobState.CANCELLING:
        return None
    if job.ended:
        raise FailedPreconditionError(f"Job {job.id} has ended ({job.state}) and can't be cancelled any more.")
    if job.state is JobState.QUEUED:
        ended = job.to(JobState.CANCELLED, now_us=now_us, failure=failure)
        return ended, (requested, *end_events(ended, None, now_us=now_us))
    return job.to(JobState.CANCELLING, now_us=now_us, failure=failure), (requested,)
