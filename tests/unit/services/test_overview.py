"""A project at a glance, on a real database."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainshed.attempts.batch_progress import BatchProgress
from trainshed.attempts.journal import HangRecord, RestartRecord
from trainshed.config import Home
from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.job import HangKind, Job
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.domain.models.hosting import ServingState
from trainshed.domain.models.model import read_model
from trainshed.domain.models.version import Version, VersionState
from trainshed.domain.models.version_details import VersionDetails
from trainshed.domain.operations import Operation
from trainshed.gateway.metrics import VersionMetrics
from trainshed.gateway.routes import ModelRoute, Routes, VersionRoute
from trainshed.services.console.machine_metrics import MachineMetrics, MachineSample, sample_machine
from trainshed.services.console.overview import MAX_JOBS, LiveState, Overview, OverviewStores
from trainshed.services.jobs.failures import Failures
from trainshed.services.jobs.reports import JobReports
from trainshed.store.database import Database
from trainshed.store.job_search import JobSearchStore
from trainshed.store.jobs import JobStore
from trainshed.store.models import ModelStore
from trainshed.testing.fakes.attempts import FakeAttempts
from trainshed.testing.fakes.databases import migrated_database
from trainshed.testing.fakes.queues import job_queue

HOUR_US = 3_600_000_000
NOW_US = 1_763_000_000_000_000
MACHINE = MachineSample(
    time_us=NOW_US,
    cpu=0.5,
    memory_used_bytes=3 << 30,
    memory_bytes=8 << 30,
    disk_free_bytes=100 << 30,
    disk_bytes=200 << 30,
)
JOB = Job(project="shed", id="j", workload=Training.parse({"pythonModule": "trainer.task"}), created_us=NOW_US)

MEMORY = Failure(cause=FailureCause.OUT_OF_MEMORY, replica="master-replica-0", signal=9)


SUMMARY = {
    "step": 7,
    "totalSteps": 10,
    "epoch": None,
    "totalEpochs": None,
    "fraction": 0.7,
    "loss": 0.5,
    "accuracy": None,
    "globalStepsPerSecond": 2.0,
    "leftSeconds": 1.5,
}


class FullMachine:
    """A `QueueStatus` of a machine without a free slot."""

    def __init__(self, jobs: JobStore) -> None:
        self._queue = job_queue(jobs)

    def positions(self, jobs: Iterable[Job]) -> Mapping[tuple[str, str], int]:
        return self._queue.positions(jobs)

    def next_of(self, project: str, *, limit: int) -> Sequence[tuple[str, int]]:
        return self._queue.next_of(project, ("local",), limit=limit)

    def quota_reason(self, job: Job) -> str:
        return ""

    def pending_reason(self, job: Job) -> str:
        return "0 of this machine's 8 places are free"

    def outage(self, job: Job) -> str:
        return ""


class Project:
    """A project whose jobs, versions and machine a test sets, and what is told of it."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.jobs = JobStore(database)
        self.models = ModelStore(database)
        self.routes, self.metrics = Routes(), VersionMetrics()
        self.machine = MACHINE
        self.attempts = FakeAttempts()
        self.attempts.progress = SUMMARY | {"time": None, "ageSeconds": 1.5, "evaluation": None}
        self.now_us = NOW_US
        live = LiveState(
            machine=MachineMetrics(lambda: self.machine, cpus=4),
            routes=self.routes,
            metrics=self.metrics,
            queue_status=FullMachine(self.jobs),
        )
        reports = JobReports(attempts=self.attempts, progress=self.attempts, failures=Failures(Home(folder)))
        rows = OverviewStores(jobs=self.jobs, job_search=JobSearchStore(database), models=self.models)
        self.overview = Overview(rows, live, reports, clock=lambda: self.now_us, cache_ttl_s=0.0)
        self.patient = Overview(rows, live, reports, clock=lambda: self.now_us, cache_ttl_s=3600.0)

    def add(self, job_id: str, state: JobState, *, age_us: int = 0, project: str = "shed") -> None:
        stored = self.jobs.add(replace(JOB, id=job_id, project=project, created_us=NOW_US - age_us), [])
        ended = state in (JobState.SUCCEEDED, JobState.FAILED)
        if state is not JobState.QUEUED:
            ended_us = NOW_US - age_us + 1 if ended else None
            failure = MEMORY if state is JobState.FAILED else None
            self.jobs.record(replace(stored, state=state, ended_us=ended_us, failure=failure))

    def add_version(self, name: str, state: VersionState, *, error: str = "") -> None:
        version = Version(
            project="shed", model="digits", id=name, body={}, details=VersionDetails(runtime="2.21"), created_us=NOW_US
        )
        begun = Operation.begin("shed", f"create_digits_{name}-1", {}, now_us=NOW_US)
        stored, _ = self.models.add_version(version, begun)
        if state is not VersionState.CREATING:
            self.models.record_version(stored.to(state, error=error))

    def told(self) -> dict[str, Any]:
        return self.overview.of("shed")

    def alerts(self) -> list[tuple[str, str]]:
        return [(item["severity"], item["message"]) for item in self.told()["alerts"]]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    database = migrated_database(tmp_path / "state.db")
    yield Project(database, tmp_path)
    database.close()


def test_an_empty_project_needs_nothing(project: Project) -> None:
    told = project.told()
    assert told["jobs"] == {"queued": 0, "running": 0, "succeeded24h": 0, "failed24h": 0}
    assert (told["running"], told["queued"], told["models"], told["alerts"]) == ([], [], [], [])
    assert told["machine"] == {
        "cpus": 4,
        "cpu": 0.5,
        "memoryBytes": 8 << 30,
        "memoryUsedBytes": 3 << 30,
        "diskBytes": 200 << 30,
        "diskFreeBytes": 100 << 30,
        "history": [],
    }


def test_jobs_are_counted_and_those_that_run_and_wait_are_shown(project: Project) -> None:
    project.add("runs", JobState.RUNNING)
    project.add("starts", JobState.PREPARING)
    project.add("waits", JobState.QUEUED)
    project.add("waits_too", JobState.QUEUED)
    project.add("done", JobState.SUCCEEDED)
    project.add("done_long_ago", JobState.SUCCEEDED, age_us=25 * HOUR_US)
    project.add("bad_long_ago", JobState.FAILED, age_us=25 * HOUR_US)
    project.add("foreign", JobState.RUNNING, project="other")
    told = project.told()
    assert told["jobs"] == {"queued": 2, "running": 2, "succeeded24h": 1, "failed24h": 0}
    assert [(row["jobId"], row["progress"]) for row in told["running"]] == [
        ("starts", SUMMARY),
        ("runs", SUMMARY),
    ]
    assert [row["jobId"] for row in told["queued"]] == ["waits", "waits_too"]
    assert told["queued"][0]["waiting"].startswith("It is next.")
    assert told["queued"][1]["waiting"].startswith("It waits in the queue at position 2")
    assert told["alerts"] == []


def test_a_batch_prediction_tells_how_much_it_has_read(project: Project) -> None:
    project.add("predicts", JobState.RUNNING)
    project.attempts.predicted = BatchProgress(predictions=10, errors=0, read=1, bytes=4)
    [row] = project.told()["running"]
    assert (row["progress"]["fraction"], row["progress"]["step"]) == (0.25, None)


def test_a_look_is_kept_small(project: Project) -> None:
    for number in range(30):
        project.add(f"r{number}", JobState.RUNNING)
    told = project.told()
    assert (len(told["running"]), told["jobs"]["running"], project.attempts.reads) == (MAX_JOBS, 30, MAX_JOBS)


def test_many_who_ask_cost_one_look(project: Project) -> None:
    project.add("runs", JobState.RUNNING)
    threads = [threading.Thread(target=project.patient.of, args=("shed",)) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert project.attempts.reads == 1
    assert project.patient.of("other")["running"] == []


def test_models_are_told_with_their_traffic(project: Project) -> None:
    project.models.add(read_model({"name": "idle"}, "shed", now_us=NOW_US - 1))
    project.models.add(read_model({"name": "digits"}, "shed", now_us=NOW_US))
    project.add_version("v1", VersionState.READY)
    project.add_version("v2", VersionState.CREATING)
    project.metrics.of(("shed", "digits", "v1")).add(0.010, ok=True)
    project.metrics.of(("shed", "digits", "v2")).add(0.500, ok=False)
    busy, idle = project.told()["models"]
    assert (busy["name"], busy["defaultVersion"], busy["versions"]) == ("digits", "v1", 2)
    assert (busy["requests1h"], busy["errors1h"]) == (2, 1)
    assert busy["p50Ms"] == pytest.approx(10, rel=0.1)
    assert busy["p99Ms"] == pytest.approx(500, rel=0.1)
    assert (idle["versions"], idle["requests1h"], idle["p50Ms"]) == (0, 0, None)


def test_failed_jobs_are_told_with_cause_and_remedy(project: Project) -> None:
    project.add("bad", JobState.FAILED, age_us=HOUR_US)
    [item] = project.told()["alerts"]
    assert item == {
        "severity": "error",
        "message": "Job bad failed. master-replica-0 ran out of memory.",
        "remedy": "Use a smaller batch size, read the data in parts, or run fewer jobs at once.",
        "link": "#/p/shed/jobs/bad",
    }
    for number in range(6):
        project.add(f"bad{number}", JobState.FAILED)
    items = project.told()["alerts"]
    assert len(items) == 6
    assert items[-1]["message"] == "2 more jobs failed in the last 24 hours."
    assert items[-1]["link"] == "#/p/shed/jobs?state=FAILED"


def test_versions_that_failed_or_do_not_answer(project: Project) -> None:
    project.models.add(read_model({"name": "digits"}, "shed", now_us=NOW_US))
    project.add_version("v1", VersionState.READY)
    project.add_version("v2", VersionState.FAILED, error="Create Version failed. Bad model.\nMore.")
    routes = {
        name: VersionRoute(
            project="shed", model="digits", version=name, state=ServingState.UNHEALTHY, reason="It died."
        )
        for name in ("v1", "v2", "v3")
    }
    project.routes.publish(ModelRoute(project="shed", model="digits", versions=routes))
    assert project.alerts() == [
        ("error", "Version v1 of model digits does not answer. It died."),
        ("warning", "Version v2 of model digits could not be created. Create Version failed. Bad model."),
    ]
    assert {item["link"] for item in project.told()["alerts"]} == {"#/p/shed/models/digits"}


@pytest.mark.parametrize(
    ("free", "total", "said"),
    [
        (100 << 30, 200 << 30, []),
        (40 << 30, 1000 << 30, []),  # 4 % of a large disk is a lot
        (5 << 30, 100 << 30, [("warning", "The disk is nearly full: 5.0 GiB are free.")]),
        (1 << 29, 100 << 30, [("error", "The disk is full: 0.5 GiB are free.")]),
    ],
)
def test_a_disk_that_fills_up(project: Project, free: int, total: int, said: list[tuple[str, str]]) -> None:
    project.machine = replace(MACHINE, disk_free_bytes=free, disk_bytes=total)
    assert project.alerts() == said


def test_jobs_that_wait_for_long(project: Project) -> None:
    project.add("waits", JobState.QUEUED, age_us=25 * 60_000_000)
    project.add("builds", JobState.PREPARING, age_us=3 * HOUR_US)
    project.add("new", JobState.QUEUED)
    waits, builds = project.alerts()
    assert waits[1].startswith("Job waits has waited for 25 minutes. It is next.")
    assert builds == ("warning", "Job builds has been made ready for 3 hours.")


def test_replicas_that_were_started_again(project: Project) -> None:
    project.add("runs", JobState.RUNNING)
    restart = RestartRecord(
        time_us=NOW_US,
        name="worker-replica-1",
        exit_code=None,
        signal=9,
        hung=False,
        after_loss_of="",
        whole_gang=False,
        step_before=None,
        step_after=None,
    )
    project.attempts.restarted = [restart]
    assert project.alerts() == [
        ("warning", "Job runs lost a replica once: restarted worker-replica-1 (killed by signal 9).")
    ]


def _hang(name: str, **changed: Any) -> HangRecord:
    hang = HangRecord(
        time_us=NOW_US,
        name=name,
        kind=HangKind.IDLE,
        seconds=600.0,
        pid=7,
        working=(),
        suspect="",
        restart=False,
        sentence=f"{name} hangs.",
        stack="",
    )
    return replace(hang, **changed)


def test_a_job_that_hangs_is_an_alert_until_it_does_not_any_more(project: Project) -> None:
    project.add("runs", JobState.RUNNING)
    project.attempts.hung = [_hang("worker-replica-0"), _hang("worker-replica-1", ended_us=NOW_US)]
    assert project.alerts() == [("error", "Job runs: worker-replica-0 hangs.")]
    project.attempts.hung = [_hang("worker-replica-0", working=("master-replica-0",))]
    assert project.alerts() == [("warning", "Job runs: worker-replica-0 hangs.")]
    project.attempts.hung = [_hang("worker-replica-0", ended_us=NOW_US)]
    assert project.alerts() == []


def test_of_a_group_that_hangs_the_one_that_the_others_wait_for_is_shown(project: Project) -> None:
    project.add("runs", JobState.RUNNING)
    names = ("master-replica-0", "worker-replica-0", "worker-replica-1")
    project.attempts.hung = [_hang(name, suspect="worker-replica-0") for name in names]
    assert project.alerts() == [("error", "Job runs: worker-replica-0 hangs. 2 more replicas hang.")]
    project.attempts.hung = [_hang(names[0]), _hang(names[1], kind=HangKind.STOPPED)]
    assert project.alerts() == [("error", "Job runs: worker-replica-0 hangs. 1 more replica hangs.")]


def test_the_machine_is_looked_at_and_its_past_is_bounded(tmp_path: Path) -> None:
    enough = threading.Event()
    seen: list[MachineSample] = []

    def look() -> MachineSample:
        seen.append(sample_machine(tmp_path))
        if len(seen) > 8:
            enough.set()
        return seen[-1]

    history = MachineMetrics(look, cpus=2, interval_s=0.01)
    history.begin()
    assert enough.wait(90)
    history.close()
    body = history.body()
    assert len(body["history"]) == len(seen) - 1, "the first look has no share of the cores yet"
    assert [each["time"] for each in body["history"]] == sorted(each["time"] for each in body["history"])
    assert 0 <= body["cpu"] <= 1
    assert 0 < body["memoryUsedBytes"] < body["memoryBytes"]
    assert 0 <= body["diskFreeBytes"] <= body["diskBytes"]
    assert MachineMetrics(look, cpus=2, interval_s=300)._samples.maxlen == 2


def test_a_look_that_fails_ends_nothing(tmp_path: Path) -> None:
    enough = threading.Event()
    looks = 0

    def look() -> MachineSample:
        nonlocal looks
        looks += 1
        if looks == 2:
            raise OSError("the disk is away")
        if looks == 4:
            enough.set()
        return MACHINE

    history = MachineMetrics(look, cpus=2, interval_s=0.01)
    history.begin()
    assert enough.wait(90)
    history.close()
    assert len(history.body()["history"]) == looks - 2
