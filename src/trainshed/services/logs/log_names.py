"""The names of a project's logs: those of its jobs' replicas, and those that clients of Cloud Logging wrote."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from trainshed.attempts.log_file import MAX_TIME_US
from trainshed.config import Home
from trainshed.domain import names
from trainshed.domain.jobs.gang import gang
from trainshed.domain.jobs.job import Job
from trainshed.domain.logs import SERVICE
from trainshed.domain.page_tokens import bad_page_token, decode_page_token, encode_page_token
from trainshed.store.jobs import JobStore

MAX_WRITTEN = 1000  #: names of a project that are kept of what clients wrote
MAX_JOBS = 5000  #: of a project, from the newest on, whose replicas are named
DEFAULT_PAGE, MAX_PAGE = 50, 1000
_JOBS_PER_READ = 500
_WRITTEN = ".written_logs"  #: no job has this name


@dataclass(frozen=True, slots=True)
class LogNamePage:
    """Names in order. Empty token: these are the last."""

    names: list[str]
    next_token: str


class WrittenLogs:
    """Remembers which logs clients wrote to, one name on each line of a file. Thread-safe."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._lock = threading.Lock()

    def of(self, project: str) -> set[str]:
        path = self._home.jobs / names.project_id(project) / _WRITTEN
        try:
            return set(path.read_text().splitlines())
        except FileNotFoundError:
            return set()

    def add(self, project: str, logs: Iterable[str]) -> None:
        """Keep the names of logs. What is beyond `MAX_WRITTEN` is not listed."""
        with self._lock:
            known = self.of(project)
            new = sorted(set(logs) - known)[: MAX_WRITTEN - len(known)]
            if new:
                with open(self._home.jobs / names.project_id(project) / _WRITTEN, "a") as file:
                    file.writelines(f"{name}\n" for name in new)


class LogNames:
    """Names the logs of projects. Read-only."""

    def __init__(self, jobs: JobStore, home: Home) -> None:
        self._jobs = jobs
        self._written = WrittenLogs(home)

    def of(self, project: str) -> set[str]:
        """Return the logs of a project's newest jobs, and those that clients wrote, without the project's name."""
        logs = self._written.of(project)
        before, seen = (MAX_TIME_US, ""), 0
        while seen < MAX_JOBS and (jobs := self._jobs.page(project, before=before, limit=_JOBS_PER_READ)):
            for job in jobs:
                logs |= _logs_of(job)
            before, seen = (jobs[-1].order_us, jobs[-1].id), seen + len(jobs)
        return logs


def _logs_of(job: Job) -> set[str]:
    """Return the names of a job's logs: that of the service, and those of replicas once they may have written."""
    started = job.attempt > 0 or job.tuning is not None
    return {SERVICE, *(replica.name for replica in gang(job.workload))} if started else {SERVICE}


def page_of_names(names: Iterable[str], *, size: int, token: str) -> LogNamePage:
    """Return a page of names in order. Raises `InvalidArgumentError` for a token of something else."""
    after = ""
    if token:
        match decode_page_token(token):
            case [str(name)]:
                after = name
            case _:
                raise bad_page_token()
    rest = [name for name in sorted(set(names)) if name > after]
    count = min(size or DEFAULT_PAGE, MAX_PAGE)
    return LogNamePage(rest[:count], encode_page_token((rest[count - 1],)) if len(rest) > count else "")
