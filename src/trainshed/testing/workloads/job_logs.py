"""A job whose row and log a test writes, line by line, as the server and a supervisor would."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainshed.config import Home
from trainshed.domain.jobs.job import Job, JobEvent, JobEventKind
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.store.database import Database
from trainshed.store.jobs import JobStore

RUN_US = 3_600_000_000  #: an hour: lines are written within it


def open_jobs(home: Home) -> JobStore:
    """Open the jobs of a state folder. Creates the database if it is missing, and closes it with the store."""
    home.path.mkdir(parents=True, exist_ok=True)
    database = Database(home.database)
    database.migrate()
    jobs = JobStore(database)
    weakref.finalize(jobs, database.close)
    return jobs


class WrittenJob:
    """One job in its only attempt. It stays unchanged: no controller acts on its state."""

    def __init__(self, jobs: JobStore, home: Home, *, project: str, job_id: str, created_us: int) -> None:
        job = Job(
            project=project,
            id=job_id,
            workload=Training.parse({"pythonModule": "trainer.task"}),
            created_us=created_us,
            attempt=1,
            state=JobState.SUCCEEDED,
            started_us=created_us,
            ended_us=created_us + RUN_US,
        )
        self._jobs = jobs
        self.job = jobs.add(job, [JobEvent(kind=JobEventKind.QUEUED, message="Job queued.", time_us=created_us)])
        self.folder = home.jobs / project / job_id
        self.path = self.attempt(1)

    def attempt(self, number: int) -> Path:
        """Return the log of an attempt. Creates its folder."""
        folder = self.folder / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        return folder / "log.jsonl"

    def set_state(self, state: JobState, *, attempt: int = 1) -> None:
        """Set any state, without checks: tests need jobs in every state."""
        ended_us = self.job.created_us + RUN_US if state in (JobState.SUCCEEDED, JobState.FAILED) else None
        self.job = self._jobs.record(replace(self.job, state=state, attempt=attempt, ended_us=ended_us))

    def say(
        self,
        lines: Iterable[tuple[int, str]],
        *,
        replica: str = "master-replica-0",
        severity: str = "INFO",
        kind: str = "",
    ) -> None:
        """Append lines: each a time and a text."""
        lines_ = ({"t": time_us, "r": replica, "s": severity, "m": text, "k": kind} for time_us, text in lines)
        self.append("".join(json.dumps(line) + "\n" for line in lines_).encode())

    def append(self, data: bytes) -> None:
        with open(self.path, "ab") as file:
            file.write(data)

    def tell(self, text: str, time_us: int) -> None:
        """Append an event of the service."""
        self._jobs.tell(self.job, JobEvent(kind=JobEventKind.PREPARING, message=text, time_us=time_us))


def records(path: Path) -> list[Any]:
    """Return the complete records of a file, without a partial last one. Empty if there is no file yet."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]
