"""Real servers for the tests of a session, and one that a test may break."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from trainshed.runtimes.catalogue import DEFAULT_RUNTIME
from trainshed.store import sqlite
from trainshed.store.database import Database
from trainshed.testing import cache
from trainshed.testing.budget import StepTime, order, summary, work_unit
from trainshed.testing.clusters.containers import Docker, Podman
from trainshed.testing.fakes.databases import migrated_database
from trainshed.testing.processes.postgresql import Postgresql, running_postgresql
from trainshed.testing.processes.servers import RunningServer

settings.register_profile("patient", deadline=None)  # a slow machine is not a failure
settings.load_profile("patient")

# Some machines turn off the writing of bytecode. Then each process that a test starts compiles all that it imports.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A suite in the background has SIGINT ignored, and with it every process that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# gcsfs reads this when it is first imported, by whichever test. Without it, it asks a gRPC service for each bucket's
# type, for a minute, before it asks for anything else.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"

# Many threads that write at once, on a disk that others use too, may wait for each other for longer than a server lets
# its callers wait.
sqlite.BUSY_TIMEOUT_S = 90.0

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """An empty database with all tables."""
    database = migrated_database(tmp_path / "state.db")
    yield database
    database.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server shared by all tests that do not break it. Use names of your own for projects, buckets and jobs."""
    running = RunningServer(tmp_path_factory.mktemp("home"), _sandbox(tmp_path_factory)).start()
    yield running
    assert running.close() == 0


def _sandbox(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The sandbox as users have it. User code waits for files that tests make, and some runs the interpreter of the
    tests for its packages."""
    seen = (tmp_path_factory.getbasetemp(), ROOT, sys.prefix, sys.base_prefix)
    return {"sandbox": "auto", "sandbox_paths": ",".join(map(str, seen))}


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RunningServer]:
    """A server that one test has for itself, to kill and to start again."""
    running = RunningServer(tmp_path / "home").start()
    yield running
    running.kill()
    running.end_jobs()


@pytest.fixture(scope="session")
def runtime_python() -> Path:
    """The interpreter of the newest runtime, for programs that make models. Built on first use."""
    return cache.runtime_python(DEFAULT_RUNTIME)


@pytest.fixture(scope="session")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Podman:
    """Images outlive the test run, as runtimes do."""
    return Podman(cache.CONTAINERS, tmp_path_factory.mktemp("podman"))


@pytest.fixture(scope="session", params=[Podman.kind, pytest.param(Docker.kind, marks=pytest.mark.soak)])
def runner(
    request: pytest.FixtureRequest, podman: Podman, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Podman | Docker]:
    """Each of the two that run containers."""
    if request.param == Podman.kind:
        yield podman
        return
    with Docker(tmp_path_factory.mktemp("docker"), podman) as docker:
        yield docker


@pytest.fixture(scope="session")
def framework_server(tmp_path_factory: pytest.TempPathFactory, podman: Podman) -> Iterator[RunningServer]:
    """For jobs that need a framework."""
    home = cache.link_runtimes(tmp_path_factory.mktemp("framework") / "home")
    own = {"container_network": "host", **_sandbox(tmp_path_factory)}  # the first is what every machine has
    running = RunningServer(home, own, environment=podman.env).start()
    yield running
    assert running.close() == 0


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Postgresql]:
    """A fresh PostgreSQL server. Use a database of your own."""
    with running_postgresql() as server:
        yield server


class FileScheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Each process takes the next file when it is free. Files that share a cluster go to one process."""

    def _split_scope(self, nodeid: str) -> str:
        return work_unit(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling | None:
    return FileScheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests by file."""
    items.sort(key=lambda item: order(item.path.relative_to(ROOT).as_posix()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """With --durations: what the tests of each folder took, set-up and teardown included, in all processes together."""
    if terminalreporter.config.getoption("durations") is None:
        return
    reports = (each for reports in terminalreporter.stats.values() for each in reports)
    steps = (
        StepTime(test=each.nodeid, step=each.when, seconds=each.duration, long="long" in each.keywords)
        for each in reports
        if isinstance(each, pytest.TestReport)
    )
    terminalreporter.write_sep("=", "time by folder")
    for line in summary(steps):
        terminalreporter.write_line(line)
