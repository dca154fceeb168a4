"""What projects no longer keep is removed, cut short at any step, and nothing else is. Real rows and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from trainshed.buckets.dirfd import remove_tree
from trainshed.buckets.file_backend import FileBackend
from trainshed.control.retention import RetentionStores, RetentionSweeper
from trainshed.domain.access.quotas import AppliedLimit, Quota, QuotaName, applied
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.domain.models.model import Model
from trainshed.domain.models.version import Version
from trainshed.domain.models.version_details import VersionDetails
from trainshed.domain.operations import Operation
from trainshed.errors import NotFoundError
from trainshed.store.access.quotas import QuotaStore
from trainshed.store.database import Database
from trainshed.store.jobs import JobStore
from trainshed.store.models import ModelStore
from trainshed.store.tuning.trials import TrialStore
from trainshed.testing.fakes.databases import migrated_database
from trainshed.testing.workloads.searches import START_US, write_search

DAY_US = 86_400_000_000
NOW = START_US + 100 * DAY_US
PROJECT = "p-one"
FILES = ("journal.jsonl", "log.jsonl", "samples.jsonl", "work/a/b", "work/c")


class CutError(Exception):
    """The power is gone."""


class World:
    def __init__(self, folder: Path, database: Database) -> None:
        self.attempts = folder / "jobs"
        self.attempts.mkdir()
        self.buckets = folder / "buckets"
        self.backend = FileBackend(self.buckets, folder / "uploads")
        self.backend.make_bucket("mine")
        self.database = database
        self.jobs, self.models = JobStore(database), ModelStore(database)
        self.trials = TrialStore(database, self.jobs)
        self.quotas: list[Quota] = []
        self.woken = 0

    def sweeper(self) -> RetentionSweeper:
        stores = RetentionStores(
            jobs=self.jobs,
            trials=self.trials,
            models=self.models,
            projects=QuotaStore(self.database).projects,
            limits=self.limits,
            owner=self.owner,
        )
        return RetentionSweeper(stores, self.backend, self.attempts, wake_folders=self.wake, clock=lambda: NOW)

    def sweep(self) -> None:
        self.sweeper().sweep()

    def keep(self, name: QuotaName, days: int, project: str = PROJECT) -> None:
        self.quotas.append(Quota(project=project, user="", name=name, value=days))

    def limits(self, project: str) -> Sequence[AppliedLimit]:
        return applied(self.quotas, project)

    def owner(self, bucket: str) -> str:
        if bucket != "mine":
            raise NotFoundError("There is no such bucket.")
        return PROJECT

    def wake(self) -> None:
        self.woken += 1

    def add(self, name: str, *states: JobState, days_ago: int = 50, project: str = PROJECT) -> Job:
        then = NOW - days_ago * DAY_US
        job = self.jobs.add(
            Job(project=project, id=name, workload=Training.parse({}), created_us=then - 1000, replicas=1), ()
        )
        for state in states:
            job = self.jobs.record(job.to(state, now_us=then))
        self.write(project, name)
        return job

    def write(self, project: str, name: str) -> None:
        for attempt in ("1", "2"):
            for each in FILES:
                path = self.attempts / project / name / attempt / each
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(each)

    def files(self, name: str, project: str = PROJECT) -> int:
        return sum(path.is_file() for path in (self.attempts / project / name).rglob("*"))

    def told(self, name: str) -> list[str]:
        return [event.message for event in self.jobs.events(PROJECT, name)]

    def deploy(self, model: str, **body: Any) -> None:
        self.models.add(Model(project=PROJECT, id=model, body={}, created_us=1))
        version = Version(
            project=PROJECT,
            model=model,
            id="v1",
            body=body,
            details=VersionDetails(runtime="2.15"),
            created_us=1,
        )
        self.models.add_version(version, Operation.begin(PROJECT, f"create_{model}_v1-1", {}, now_us=1))


RUNNING = (JobState.PREPARING, JobState.RUNNING)
ENDED = (*RUNNING, JobState.SUCCEEDED)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with closing(migrated_database(tmp_path / "state.db")) as database:
        yield World(tmp_path, database)


def test_without_a_number_of_days_everything_is_kept(world: World) -> None:
    world.add("old", *ENDED)
    world.keep(QuotaName.LOG_DAYS, 10, project="p-other")
    world.sweep()
    assert world.files("old") == 10


def test_only_what_ended_long_ago_loses_its_logs(world: World) -> None:
    world.add("old", *ENDED)
    world.add("young", *ENDED, days_ago=5)
    world.add("runs", *RUNNING)
    world.add("waits")
    world.add("ends", *RUNNING, JobState.CANCELLING)
    world.add("foreign", *ENDED, project="p-two")
    world.write(PROJECT, "unknown")
    world.keep(QuotaName.LOG_DAYS, 10)
    world.sweep()
    assert world.files("old") == 8
    assert not list((world.attempts / PROJECT / "old").rglob("log.jsonl"))
    assert {name: world.files(name) for name in ("young", "runs", "waits", "ends", "unknown")} == dict.fromkeys(
        ("young", "runs", "waits", "ends", "unknown"), 10
    )
    assert world.files("foreign", "p-two") == 10
    assert world.told("old") == [f"Its output is removed: project {PROJECT} keeps it for 10 days (log-days)."]
    world.sweep()
    assert len(world.told("old")) == 1


def test_a_default_for_all_projects_applies(world: World) -> None:
    world.add("old", *ENDED, project="p-two")
    world.add("old", *ENDED)
    world.keep(QuotaName.ATTEMPT_DAYS, 10, project="*")
    world.keep(QuotaName.ATTEMPT_DAYS, 60)
    world.sweep()
    assert (world.files("old"), world.files("old", "p-two")) == (10, 0)


def removals(monkeypatch: pytest.MonkeyPatch, allowed: int) -> Callable[[], None]:
    """Let so many files and folders be removed, and then none. Returns what takes that back."""
    left = [allowed]

    def limited(remove: Callable[..., None]) -> Callable[..., None]:
        def call(*args: Any, **kwargs: Any) -> None:
            if left[0] == 0:
                raise CutError
            left[0] -= 1
            remove(*args, **kwargs)

        return call

    for name in ("unlink", "rmdir"):
        monkeypatch.setattr(os, name, limited(getattr(os, name)))
    return monkeypatch.undo


@pytest.mark.parametrize("allowed", range(18))
def test_a_removal_that_is_cut_short_goes_on(world: World, monkeypatch: pytest.MonkeyPatch, allowed: int) -> None:
    world.add("old", *ENDED)
    world.add("runs", *RUNNING)
    world.keep(QuotaName.ATTEMPT_DAYS, 10)
    restore = removals(monkeypatch, allowed)
    world.sweep()
    restore()
    assert (world.attempts / PROJECT / "old").exists() is (allowed < 17)
    world.sweep()
    assert sorted(path.name for path in (world.attempts / PROJECT).iterdir()) == ["runs"]
    assert world.files("runs") == 10
    assert len(world.told("old")) == 1


def test_links_in_an_attempt_lead_nowhere(world: World, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    world.add("old", *ENDED)
    (world.attempts / PROJECT / "old" / "1" / "work" / "link").symlink_to(outside)
    world.keep(QuotaName.ATTEMPT_DAYS, 10)
    world.sweep()
    assert (outside / "file").exists()
    assert not (world.attempts / PROJECT / "old").exists()


def test_the_best_trial_and_one_that_is_deployed_keep_their_folders(world: World) -> None:
    search = write_search(world.database, PROJECT, "search", trials=6, job_dir="gs://mine/out")
    ran = {trial.number: trial for trial in world.trials.of(PROJECT, "search") if trial.ended and trial.job.attempt}
    best = world.sweeper()._best_trial(PROJECT, "search")
    assert search.tuning is not None
    assert best == max((n for n in ran if ran[n].final), key=lambda n: ran[n].final.value)  # type: ignore[union-attr]
    deployed = next(number for number in sorted(ran) if number != best)
    world.deploy("m", deploymentUri=f"gs://mine/out/{deployed}/export/1/")
    for number in ran:
        world.write(PROJECT, f"search.trial-{number}")
    world.keep(QuotaName.TRIAL_DAYS, 200)
    world.sweep()
    assert {trial.folder for trial in world.trials.of(PROJECT, "search")} == {"KEPT"}
    world.quotas.clear()
    world.keep(QuotaName.TRIAL_DAYS, 10)
    world.keep(QuotaName.ATTEMPT_DAYS, 10)
    world.sweep()
    kept = {trial.number for trial in world.trials.of(PROJECT, "search") if trial.folder == "KEPT"}
    assert kept & set(ran) == {best, deployed}
    assert world.woken == 1
    assert [number for number in sorted(ran) if world.files(f"search.trial-{number}")] == [best]
    world.sweep()
    assert world.woken == 1, "what stays is not marked again"


def test_a_search_that_runs_keeps_the_attempts_of_trials_that_ended(world: World) -> None:
    world.jobs.add(Job(project=PROJECT, id="search", workload=Training.parse({}), created_us=1, replicas=0), ())
    job = Job(project=PROJECT, id="search.trial-1", workload=Training.parse({}), created_us=1, parent="search", trial=1)
    job = world.jobs.add(job, ())
    for state in ENDED:
        job = world.jobs.record(job.to(state, now_us=2))
    world.write(PROJECT, job.id)
    world.keep(QuotaName.ATTEMPT_DAYS, 1)
    world.sweep()
    assert world.files(job.id) == 10


def test_old_request_logs_are_removed_and_other_objects_stay(world: World) -> None:
    logging = {"bigqueryTableName": "gs://mine/logged", "samplingPercentage": 0}
    world.deploy("m", requestLoggingConfig=logging)
    folder = world.buckets / "mine" / "logged" / "m"
    old = [folder / "2020-01-01" / "101010-v1-abc.jsonl", folder / "2020-01-01" / "101011-v1-abc.jsonl"]
    kept = [
        folder / "2020-01-02" / "101010-v1-abc.jsonl",
        folder / "2020-01-01" / "notes.txt",
        folder / "model" / "data.jsonl",
        world.buckets / "mine" / "logged" / "other" / "2020-01-01" / "101010-v1-abc.jsonl",
    ]
    for path in (*old, *kept):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (NOW / 1e6 - 50 * 86_400,) * 2)
    os.utime(kept[0], (NOW / 1e6 - 5 * 86_400,) * 2)
    world.keep(QuotaName.REQUEST_LOG_DAYS, 10)
    world.sweep()
    assert [path.exists() for path in old] == [False, False]
    assert [path.exists() for path in kept] == [True] * 4


def test_what_fails_in_one_project_keeps_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.add("old", *ENDED)
    world.add("old", *ENDED, project="p-two")
    world.keep(QuotaName.ATTEMPT_DAYS, 10, project="*")
    asked: list[str] = []

    def failing(part: str, *, folder: int) -> None:
        asked.append(part)
        if len(asked) == 1:
            raise PermissionError(13, "Permission denied")
        remove_tree(part, folder=folder)

    monkeypatch.setattr("trainshed.control.retention.remove_tree", failing)
    world.sweep()
    assert (world.files("old"), world.files("old", "p-two")) == (10, 0)
