"""A server whose runtimes outlive the test run: TensorFlow is installed once for a checkout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.testing.servers import RunningServer

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "runtimes"


@pytest.fixture(scope="session")
def framework_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """For jobs that need a framework."""
    CACHE.mkdir(parents=True, exist_ok=True)
    home = tmp_path_factory.mktemp("framework") / "home"
    home.mkdir()
    (home / "runtimes").symlink_to(CACHE)
    running = RunningServer(home).start()
    yield running
    assert running.stop() == 0
