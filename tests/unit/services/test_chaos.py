"""Fault injection: which requests reach the job's engine, and which are refused."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from trainshed.services.jobs.chaos import Chaos
from trainshed.store.jobs import JobStore
from trainshed.testing.fakes.databases import migrated_database


@dataclass
class RecordingKiller:
    """A `ReplicaKiller` that notes what it was asked for."""

    kills: list[tuple[str, str, signal.Signals]] = field(default_factory=list)

    def kill_replica(self, job: Job, replica: str, number: signal.Signals) -> None:
        self.kills.append((job.id, replica, number))


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[JobStore]:
    database = migrated_database(tmp_path / "state.db")
    yield JobStore(database)
    database.close()


def test_a_signal_reaches_the_replica_of_a_job_that_runs(jobs: JobStore) -> None:
    workload = Training.parse({"pythonModule": "trainer.task"})
    job = jobs.add(Job(project="p", id="j", workload=workload, created_us=1), ())
    killer = RecordingKiller()
    chaos = Chaos(jobs, killer)
    with pytest.raises(FailedPreconditionError, match="QUEUED"):
        chaos.kill("p", "j", {"kill": "master-replica-0"})
    jobs.record(jobs.record(job.to(JobState.PREPARING, now_us=2)).to(JobState.RUNNING, now_us=3))
    with pytest.raises(NotFoundError, match="master-replica-0"):
        chaos.kill("p", "j", {"kill": "worker-replica-7"})
    for body in ({}, {"kill": "master-replica-0", "signal": "NOSUCH"}):
        with pytest.raises(InvalidArgumentError):
            chaos.kill("p", "j", body)
    assert killer.kills == []
    assert chaos.kill("p", "j", {"kill": "master-replica-0"}) == {"replica": "master-replica-0", "signal": "SIGKILL"}
    assert chaos.kill("p", "j", {"kill": "master-replica-0", "signal": "term"})["signal"] == "SIGTERM"
    assert killer.kills == [
        ("j", "master-replica-0", signal.SIGKILL),
        ("j", "master-replica-0", signal.SIGTERM),
    ]
