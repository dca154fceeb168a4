"""Folders of trials that are removed: on real rows and files, cut short at any step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainshed.buckets.file_backend import FileBackend
from trainshed.control.tuning.trial_folders import IDLE_INTERVAL_S, RETRY_INTERVAL_S, TrialFolders
from trainshed.domain.jobs.job import Job, JobEvent, JobEventKind
from trainshed.domain.tuning.trial import FolderState, Trial
from trainshed.errors import NotFoundError
from trainshed.store.database import Database
from trainshed.store.jobs import JobStore
from trainshed.store.tuning.trials import TrialStore
from trainshed.testing.fakes.databases import migrated_database
from trainshed.testing.workloads.searches import write_search

BUCKET = "models"
FILES = 5
EVENT = JobEvent(kind=JobEventKind.TRIAL, message="They are removed.", time_us=1)


class CutError(Exception):
    """The disk is gone."""


class CutBackend(FileBackend):
    """Fails after some deletions."""

    deletions = 10**9

    def delete(self, *args: Any, **kwargs: Any) -> None:
        if not self.deletions:
            raise CutError
        self.deletions -= 1
        super().delete(*args, **kwargs)


class World:
    """A search whose trials have folders of FILES files."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.buckets = folder / "buckets"
        (folder / "uploads").mkdir()
        self.backend = CutBackend(self.buckets, folder / "uploads")
        self.owners = {BUCKET: "p"}
        self.store = TrialStore(database, JobStore(database))
        self.jobs = JobStore(database)
        self.job = write_search(database, "p", "j", trials=4, job_dir=f"gs://{BUCKET}/out")
        for name in ("1", "2", "3", "4", "10", "other"):
            for number in range(FILES):
                path = self.buckets / BUCKET / "out" / name / f"step-{number}" / "weights"
                path.parent.mkdir(parents=True)
                path.touch()

    def remover(self, owner: Callable[[str], str] | None = None) -> TrialFolders:
        return TrialFolders(self.store, self.backend, owner=owner or self.owner)

    def owner(self, bucket: str) -> str:
        if bucket not in self.owners:
            raise NotFoundError("There is no such bucket.")
        return self.owners[bucket]

    def trials(self) -> list[Trial]:
        return list(self.store.of("p", "j"))

    def mark(self, *numbers: int) -> None:
        self.store.mark_folders(self.job, [each for each in self.trials() if each.number in numbers], EVENT)

    def folders(self) -> list[str]:
        return sorted(path.name for path in (self.buckets / BUCKET / "out").iterdir())

    def states(self) -> list[FolderState]:
        return [trial.folder for trial in self.trials()]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with closing(migrated_database(tmp_path / "state.db")) as database:
        yield World(tmp_path, database)


def test_marked_folders_are_removed_and_no_others(world: World) -> None:
    world.mark(1, 3)
    assert world.states() == ["REMOVING", "KEPT", "REMOVING", "KEPT"]
    assert world.remover().step() == IDLE_INTERVAL_S
    assert world.folders() == ["10", "2", "4", "other"]
    assert world.states() == ["REMOVED", "KEPT", "REMOVED", "KEPT"]
    assert [event.message for event in world.jobs.events("p", "j")] == [EVENT.message]
    assert world.remover().step() == IDLE_INTERVAL_S


@pytest.mark.parametrize("deletions", range(2 * FILES + 1))
def test_a_removal_that_is_cut_short_goes_on(world: World, deletions: int) -> None:
    world.mark(1, 3)
    world.backend.deletions = deletions
    pause_s = world.remover().step()
    assert pause_s == (IDLE_INTERVAL_S if deletions == 2 * FILES else RETRY_INTERVAL_S)
    world.backend.deletions = 10**9
    world.remover().step()
    assert world.folders() == ["10", "2", "4", "other"]
    assert world.states() == ["REMOVED", "KEPT", "REMOVED", "KEPT"]


def test_a_mark_is_written_once(world: World) -> None:
    world.mark(1)
    world.remover().step()
    world.store.mark_folders(world.job, [replace(world.trials()[0], folder=FolderState.KEPT)], EVENT)
    assert world.states()[0] == "REMOVED"


@pytest.mark.parametrize("owners", [{}, {BUCKET: "somebody-else"}])
def test_a_bucket_that_is_another_project_s_now_is_left_alone(world: World, owners: dict[str, str]) -> None:
    world.owners = owners
    world.mark(1)
    world.remover().step()
    assert world.folders() == ["1", "10", "2", "3", "4", "other"]
    assert world.states()[0] == "REMOVED"


def test_an_error_of_one_folder_stops_no_other(world: World) -> None:
    world.mark(1, 2)
    asked: list[str] = []

    def owner(bucket: str) -> str:
        asked.append(bucket)
        if len(asked) == 1:
            raise CutError
        return "p"

    assert world.remover(owner).step() == RETRY_INTERVAL_S
    assert world.states()[:2] == ["REMOVING", "REMOVED"]
    jobs: list[Job] = list(world.store.folders_to_remove())
    assert [job.trial for job in jobs] == [1]
