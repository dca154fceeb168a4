"""The whole server on PostgreSQL: a job, a kill, a second server that is turned away."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.testing.processes.postgresql import Postgresql
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.submitter import Submitter


@pytest.fixture
def url(postgresql: Postgresql) -> str:
    """A database of this test's own."""
    return postgresql.create_database(f"whole_server_{os.urandom(6).hex()}")


@pytest.fixture
def server(url: str, tmp_path: Path) -> Iterator[RunningServer]:
    running = RunningServer(tmp_path / "home", {"database": url}).start()
    yield running
    running.kill()
    running.end_jobs()


@pytest.mark.fault("F07")
def test_a_job_runs_and_what_was_stored_survives_a_kill(server: RunningServer, url: str, tmp_path: Path) -> None:
    jobs = Submitter(server, "on-postgres", tmp_path)
    jobs.submit("first", "print('hello from a job')")
    assert jobs.wait("first")["state"] == "SUCCEEDED"
    assert not (server.home / "state.db").exists()

    with pytest.raises(RuntimeError, match="Another server uses the database"):
        RunningServer(tmp_path / "second", {"database": url}).start()

    server.kill()
    server.start()
    assert jobs.get("first")["state"] == "SUCCEEDED"
    assert "hello from a job" in jobs.lines("first")
    jobs.submit("second", "raise SystemExit(3)")
    failed = jobs.wait("second")
    assert failed["state"] == "FAILED"
    assert "non-zero status of 3" in failed["errorMessage"]


def test_an_empty_database_beside_buckets_is_refused(url: str, tmp_path: Path) -> None:
    (tmp_path / "home" / "buckets" / "someones").mkdir(parents=True)
    with pytest.raises(RuntimeError, match=r"is empty, but .* has buckets of an earlier one"):
        RunningServer(tmp_path / "home", {"database": url}).start()
