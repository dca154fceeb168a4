"""Jobs of a project whose buckets have too much: they are ended, with the reason as a fact. On real rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.control.jobs.running_limits import RunningLimits
from trainshed.control.jobs.storage_watch import StorageWatch
from trainshed.domain.access.quotas import AppliedLimit, QuotaName
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.reconcile import AttemptPhase, CancelAttempt, ObservedAttempt, Transition, reconcile
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.errors import UnavailableError
from trainshed.store.jobs import JobStore
from trainshed.testing.fakes.databases import migrated_database

GB = 10**9


class Shed:
    def __init__(self, store: JobStore) -> None:
        self.store = store
        self.used = {"p-one": 12 * GB, "p-two": 10**6}
        self.scanned: list[str] = []
        self.woken = 0
        self.watch = StorageWatch(store, self, wake=self.wake, clock=lambda: 100)

    def limit(self, project: str) -> AppliedLimit | None:
        if project == "p-three":
            return None
        return AppliedLimit(name=QuotaName.BUCKET_BYTES, value=10 * GB, project=project)

    def rescan(self, project: str) -> int:
        self.scanned.append(project)
        if project == "p-broken":
            raise UnavailableError("The folder was moved.")
        return self.used[project]

    def wake(self) -> None:
        self.woken += 1

    def add(self, project: str, name: str, *states: JobState, replicas: int = 1) -> None:
        job = self.store.add(
            Job(project=project, id=name, workload=Training.parse({}), created_us=1, replicas=replicas), ()
        )
        for state in states:
            job = self.store.record(job.to(state, now_us=50))


@pytest.fixture
def shed(tmp_path: Path) -> Iterator[Shed]:
    database = migrated_database(tmp_path / "state.db")
    yield Shed(JobStore(database))
    database.close()


def test_what_runs_is_ended_with_the_reason_and_what_waits_stays(shed: Shed) -> None:
    running = (JobState.PREPARING, JobState.RUNNING)
    shed.add("p-one", "runs", *running)
    shed.add("p-one", "starts", JobState.PREPARING)
    shed.add("p-one", "waits")
    shed.add("p-one", "ends", *running, JobState.CANCELLING)
    shed.add("p-two", "within", *running)
    shed.add("p-three", "unlimited", *running)
    shed.watch.step()
    assert shed.scanned == ["p-one", "p-two"]
    assert shed.woken == 1
    states = {job.id: job.state for job in shed.store.active()}
    assert states == {
        "runs": JobState.CANCELLING,
        "starts": JobState.CANCELLING,
        "ends": JobState.CANCELLING,
        "within": JobState.RUNNING,
        "unlimited": JobState.RUNNING,
    }
    assert shed.store.get("p-one", "waits").state is JobState.QUEUED
    failure = shed.store.get("p-one", "runs").failure
    assert failure is not None
    assert (failure.cause, dict(failure.facts)) == ("bucket_limit", {"used": 12 * GB, "limit": 10 * GB})
    assert failure.message == (
        "The job was ended: Project p-one is beyond a limit: 12 GB of 10 GB of objects in buckets are in use "
        "(bucket-bytes). Delete what is no longer needed. An owner of all projects can raise it: `trainshed quotas set "
        "bucket-bytes NUMBER --project p-one`."
    )
    assert shed.store.get("p-one", "ends").failure is None
    shed.watch.step()  # what is being ended is not ended again
    assert len(shed.store.events("p-one", "runs")) == 1


def test_the_job_fails_when_its_processes_are_gone(shed: Shed) -> None:
    shed.add("p-one", "runs", JobState.PREPARING, JobState.RUNNING)
    shed.watch.step()
    job = shed.store.get("p-one", "runs")
    assert reconcile(job, ObservedAttempt(phase=AttemptPhase.RUNNING), now_us=200) == CancelAttempt()
    after = reconcile(job, ObservedAttempt(phase=AttemptPhase.ENDED, outcome=JobState.CANCELLED), now_us=200)
    assert isinstance(after, Transition)
    assert (after.job.state, after.job.failure) == (JobState.FAILED, job.failure)
    shed.store.record(after.job, after.events)
    assert shed.store.get("p-one", "runs").failure == job.failure


def test_a_project_that_cannot_be_scanned_keeps_no_other(shed: Shed) -> None:
    for project in ("p-broken", "p-one"):
        shed.add(project, "runs", JobState.PREPARING, JobState.RUNNING)
    shed.watch.step()
    assert shed.store.get("p-broken", "runs").state is JobState.RUNNING
    assert shed.store.get("p-one", "runs").state is JobState.CANCELLING


def test_a_queued_job_waits_while_its_project_has_too_much(shed: Shed) -> None:
    def limits(project: str, user: str) -> list[AppliedLimit]:
        limit = shed.limit(project)
        return [limit] if limit else []

    running = RunningLimits(limits, {}, lambda project: shed.used.get(project, 0))
    assert "waits for a limit: project p-one has 12 GB of 10 GB" in running.reason("p-one", "ada", 1)
    assert running.reason("p-two", "ada", 1) == ""
    assert running.reason("p-three", "ada", 1) == ""
