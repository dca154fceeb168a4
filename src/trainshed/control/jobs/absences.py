"""What the history of a job says about a place that does not answer: once that it is away, and once that it is back."""

from __future__ import annotations

from collections.abc import Sequence

from trainshed.domain.jobs.job import Job, JobEvent
from trainshed.domain.times import clock_time
from trainshed.engines.base import Outage
from trainshed.store.jobs import JobStore

_AWAY = " has not answered since "
_BACK = " answers again."


def outage_message(away: Outage) -> str:
    """For people who look at a job that runs there."""
    return f"{away.engine}{_AWAY}{clock_time(away.since_us)}. The job goes on when it does."


class OutageNotices:
    """Remembers whom it told what. What an earlier server told is read in the job's history."""

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs
        self._told: dict[tuple[str, str], bool] = {}  # whether the last word to a job was that its place is away

    def tell(self, away: Outage | None, active: Sequence[Job], *, now_us: int) -> None:
        """Say it to those active jobs of one engine that don't know yet."""
        for job in active:
            key = (job.project, job.id)
            if key not in self._told:
                self._told[key] = self._was_told(job)
            if self._told[key] and away is None:
                self._jobs.tell(job, JobEvent(message=f"{self._what(job)}{_BACK}", time_us=now_us))
            elif away is not None and not self._told[key]:
                self._jobs.tell(job, JobEvent(message=outage_message(away), time_us=now_us))
            self._told[key] = away is not None

    def forget(self, active: Sequence[Job]) -> None:
        """Keep nothing of jobs that are not among these."""
        alive = {(job.project, job.id) for job in active}
        self._told = {key: told for key, told in self._told.items() if key in alive}

    def _was_told(self, job: Job) -> bool:
        return bool(self._what(job))

    def _what(self, job: Job) -> str:
        """The place that the job was last told to be away, if it was not told since that it is back."""
        for event in reversed(self._jobs.events(job.project, job.id)):
            if event.message.endswith(_BACK):
                return ""
            if _AWAY in event.message:
                return event.message.partition(_AWAY)[0]
        return ""
