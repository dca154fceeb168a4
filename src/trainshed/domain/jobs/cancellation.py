"""How a job is cancelled: a queued one immediately, another one through CANCELLING."""

from __future__ import annotations

from trainshed.domain.jobs.failure import Failure
from trainshed.domain.jobs.failure_text import error_message
from trainshed.domain.jobs.job import Job, JobEvent, JobEventKind
from trainshed.domain.jobs.reconcile import end_events
from trainshed.domain.jobs.states import JobState
from trainshed.errors import FailedPreconditionError


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
