"""A real server for the tests of a session, and one that a test may break."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.testing.servers import RunningServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server shared by all tests that do not break it. Use names of your own for projects, buckets and jobs."""
    running = RunningServer(tmp_path_factory.mktemp("home")).start()
    yield running
    assert running.stop() == 0


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RunningServer]:
    """A server that one test has for itself, to kill and to start again."""
    running = RunningServer(tmp_path / "home").start()
    yield running
    running.kill()
