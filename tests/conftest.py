"""Real servers for the tests of a session, and one that a test may break."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from trainshed.runtimes.catalogue import DEFAULT_RUNTIME
from trainshed.runtimes.environments import Runtimes
from trainshed.runtimes.uv import find_uv
from trainshed.store import sqlite
from trainshed.testing.clusters.containers import Docker, Podman
from trainshed.testing.processes.servers import RunningServer

settings.register_profile("patient", deadline=None)  # a slow machine is not a failure
settings.load_profile("patient")

# A suite in the background has SIGINT ignored, and with it every process that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# gcsfs reads this when it is first imported, by whichever test. Without it, it asks a gRPC service for each bucket's
# type, for a minute, before it asks for anything else.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"

# Many threads that write at once, on a disk that others use too, may wait for each other for longer than a server lets
# its callers wait.
sqlite.BUSY_TIMEOUT_S = 90.0

#: Outlives the test run: TensorFlow is installed once for a checkout.
CACHE = Path(__file__).resolve().parents[1] / ".cache" / "runtimes"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server shared by all tests that do not break it. Use names of your own for projects, buckets and jobs."""
    running = RunningServer(tmp_path_factory.mktemp("home")).start()
    yield running
    assert running.close() == 0


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
    return Runtimes(CACHE, find_uv()).ensure(DEFAULT_RUNTIME, lambda fraction, text: None)


@pytest.fixture(scope="session")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Podman:
    """Images outlive the test run, as runtimes do."""
    return Podman(CACHE.with_name("containers"), tmp_path_factory.mktemp("podman"))


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
    CACHE.mkdir(parents=True, exist_ok=True)
    home = tmp_path_factory.mktemp("framework") / "home"
    home.mkdir()
    (home / "runtimes").symlink_to(CACHE)
    own = {"container_network": "host"}  # which every machine has
    running = RunningServer(home, own, environment=podman.env).start()
    yield running
    assert running.close() == 0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """With --durations: what the tests of each folder took, set-up and teardown included, in all processes together."""
    if terminalreporter.config.getoption("durations") is None:
        return
    seconds: dict[str, float] = {}
    tests: dict[str, set[str]] = {}
    for report in (each for reports in terminalreporter.stats.values() for each in reports):
        if isinstance(report, pytest.TestReport):
            folder = "/".join(report.nodeid.split("/")[:2])
            seconds[folder] = seconds.get(folder, 0.0) + report.duration
            tests.setdefault(folder, set()).add(report.nodeid)
    terminalreporter.write_sep("=", "time by folder")
    for folder in sorted(seconds, key=lambda each: -seconds[each]):
        terminalreporter.write_line(f"{seconds[folder]:9.1f}s {len(tests[folder]):6} tests  {folder}")
