"""TensorBoards of the server: one a job, few at a time, ended when nobody looks. The processes are fakes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import Message

from trainshed.api.console.tensorboards import ROUTES, start
from trainshed.buckets.backend import BackendRouter
from trainshed.buckets.file_backend import FileBackend
from trainshed.config import Home
from trainshed.domain.jobs.batch_prediction import BatchPrediction
from trainshed.domain.jobs.board_folder import BoardFolder
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.errors import EngineUnavailableError, FailedPreconditionError, NotFoundError, UnavailableError
from trainshed.services.console.tensorboards import IDLE_TTL_S, MAX_CONCURRENT_BOARDS, TensorBoards
from trainshed.services.runtimes import RuntimeService
from trainshed.services.storage.mirrors import Mirrors
from trainshed.store.jobs import JobStore

PREDICTION = BatchPrediction.parse(
    {"inputPaths": ["gs://mine/rows"], "outputPath": "gs://mine/out", "dataFormat": "JSON"}
)


@dataclass
class Process:
    logdir: Path
    prefix: str
    looks: int = 0
    ended: bool = False
    broken: bool = False

    def address(self) -> int:
        if self.broken:
            raise EngineUnavailableError("TensorBoard ended with the exit status 1: no such thing")
        self.looks += 1
        return 6006 if self.looks > 1 else 0

    def end(self) -> None:
        self.ended = True


@dataclass
class FakeDependencies:
    """A `TensorBoardLauncher` that also has runtimes, and knows jobs."""

    started: list[Process] = field(default_factory=list)
    python: Path | None = Path("/python")
    broken: bool = False
    now: float = 0.0

    def begin(self) -> None:
        return None

    def start(self, python: Path, events: BoardFolder, *, number: int, prefix: str) -> Process:
        self.started.append(Process(events.path, prefix, broken=self.broken))
        return self.started[-1]

    def ready(self, name: str) -> Path | None:
        return self.python

    def install(self, name: str) -> dict[str, Any]:
        return {"name": name, "fraction": 0.25}

    def get(self, project: str, job_id: str) -> Job:
        training = {"jobDir": f"gs://{project}-bucket/{job_id}"} if job_id.startswith("job") else {}
        workload = PREDICTION if job_id == "batch" else Training.parse(training | {"args": ["--x", "y"]})
        return Job(project=project, id=job_id, workload=workload, state=JobState.RUNNING, created_us=1, attempt=2)


@pytest.fixture
def dependencies() -> FakeDependencies:
    return FakeDependencies()


@pytest.fixture
def boards(dependencies: FakeDependencies, tmp_path: Path) -> Iterator[TensorBoards]:
    made = TensorBoards(
        cast(JobStore, dependencies),
        Home(tmp_path),
        dependencies,
        cast(RuntimeService, dependencies),
        Mirrors(tmp_path / "mirrors", BackendRouter(FileBackend(tmp_path / "buckets", tmp_path / "uploads"), {})),
        owner=lambda bucket: bucket.removesuffix("-bucket"),
        clock=lambda: dependencies.now,
    )
    yield made
    made.close()


def key_of(path: str) -> str:
    assert path.startswith("/tensorboard/")
    assert path.endswith("/")
    return path.split("/")[2]


def test_a_job_has_one_under_an_address_that_cannot_be_guessed(
    boards: TensorBoards, dependencies: FakeDependencies, tmp_path: Path
) -> None:
    path = boards.open("p-one", "job1")
    assert len(key_of(path)) >= 32
    assert boards.open("p-one", "job1") == path
    assert boards.open("p-two", "job1") != path
    assert [process.logdir for process in dependencies.started] == [
        tmp_path / "buckets" / "p-one-bucket" / "job1",
        tmp_path / "buckets" / "p-two-bucket" / "job1",
    ]
    assert dependencies.started[0].prefix == path.rstrip("/")
    assert boards.address(key_of(path)) == 6006


def test_a_job_without_a_folder_shows_where_it_runs(
    boards: TensorBoards, dependencies: FakeDependencies, tmp_path: Path
) -> None:
    boards.open("p-one", "other")
    assert dependencies.started[0].logdir == tmp_path / "jobs" / "p-one" / "other" / "2" / "work"


def test_a_prediction_has_none(boards: TensorBoards) -> None:
    with pytest.raises(FailedPreconditionError, match="prediction"):
        boards.open("p-one", "batch")


def test_the_one_that_nobody_asked_for_longest_gives_way(boards: TensorBoards, dependencies: FakeDependencies) -> None:
    keys = []
    for number in range(MAX_CONCURRENT_BOARDS):
        dependencies.now = float(number)
        keys.append(key_of(boards.open("p-one", f"job{number}")))
    dependencies.now = 100.0
    boards.address(keys[0])
    boards.open("p-one", "job9")
    assert [process.ended for process in dependencies.started] == [False, True, *[False] * (MAX_CONCURRENT_BOARDS - 1)]
    with pytest.raises(NotFoundError, match="Open it again"):
        boards.address(keys[1])
    assert boards.address(keys[0])


def test_one_that_nobody_looks_at_ends(boards: TensorBoards, dependencies: FakeDependencies) -> None:
    seen, unseen = key_of(boards.open("p-one", "job1")), key_of(boards.open("p-one", "job2"))
    dependencies.now = IDLE_TTL_S
    boards.address(seen)
    dependencies.now = IDLE_TTL_S + 1
    boards.sweep()
    assert [process.ended for process in dependencies.started] == [False, True]
    with pytest.raises(NotFoundError):
        boards.address(unseen)
    assert boards.address(seen) == 6006


def test_those_of_a_project_end_when_somebody_loses_its_token(
    boards: TensorBoards, dependencies: FakeDependencies
) -> None:
    one, two = boards.open("p-one", "job1"), boards.open("p-two", "job1")
    boards.end_of("p-one")
    with pytest.raises(NotFoundError):
        boards.address(key_of(one))
    assert boards.address(key_of(two)) == 6006
    assert boards.open("p-one", "job1") != one
    boards.end_of("*")
    assert all(process.ended for process in dependencies.started)


class Slow:
    """A TensorBoard that is not ready for as long as it is told."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def open(self, project: str, job: str) -> str:
        self.go_on.wait(120)
        return "/tensorboard/key/"


def test_those_who_wait_for_a_start_leave_threads_to_all_others() -> None:
    slow = Slow()
    scope = {
        "type": "http",
        "path_params": {"job": "j"},
        "trainshed.project": "p-one",
        "headers": [],
        "trainshed.body_limit": 1 << 20,
        "trainshed.route": next(route for route in ROUTES if route.handler is start),
        "trainshed.services": SimpleNamespace(tensorboards=slow),
    }

    async def no_body() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def others_are_answered() -> bool:
        starts = [asyncio.create_task(start(Request(scope, no_body))) for _ in range(100)]
        await asyncio.sleep(0.2)
        try:
            async with asyncio.timeout(90):
                return await run_in_threadpool(lambda: True)
        finally:
            slow.go_on.set()
            await asyncio.gather(*starts)

    assert asyncio.run(others_are_answered())


def test_all_end_with_the_server(boards: TensorBoards, dependencies: FakeDependencies) -> None:
    boards.open("p-one", "job1")
    boards.close()
    assert dependencies.started[0].ended


def test_one_that_fails_says_so_and_the_next_starts_anew(boards: TensorBoards, dependencies: FakeDependencies) -> None:
    dependencies.broken = True
    with pytest.raises(EngineUnavailableError, match="no such thing"):
        boards.open("p-one", "job1")
    assert dependencies.started[0].ended
    dependencies.broken = False
    path = boards.open("p-one", "job1")
    dependencies.started[1].broken = True
    with pytest.raises(NotFoundError):
        boards.address(key_of(path))


def test_without_a_runtime_one_is_built(boards: TensorBoards, dependencies: FakeDependencies) -> None:
    dependencies.python = None
    with pytest.raises(UnavailableError, match=r"being built now \(25%\)"):
        boards.open("p-one", "job1")
