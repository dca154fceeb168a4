"""Another process holds the write lock of the database: writes are refused, and all else goes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer, ask
from trainshed.testing.workloads.submitter import COUNT_UNTIL, Submitter

HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
connection.execute("begin exclusive")
print("held", flush=True)
sys.stdin.read()
connection.execute("rollback")
"""


@contextmanager
def write_lock(database: Path) -> Iterator[None]:
    """Hold the write lock of a SQLite database in another process."""
    command = [sys.executable, "-c", HOLD, str(database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield
        finally:
            holder.communicate("")


@pytest.mark.fault("F04")
def test_a_write_lock_of_another_process_refuses_writes_and_nothing_else(
    own_server: RunningServer, tmp_path: Path
) -> None:
    jobs = Submitter(own_server, "locked-out", tmp_path)
    steady = jobs.submit("steady", COUNT_UNTIL, args=[str(tmp_path / "enough")])
    jobs.wait("steady", {"RUNNING"})
    headers = {"authorization": f"Bearer {own_server.token}"}
    path = "/v1/projects/locked-out/jobs"
    body = {"jobId": "refused", "trainingInput": steady["trainingInput"]}
    with write_lock(own_server.home / "state.db"):
        # The lock is held until this is answered: the server does not wait for it.
        refused = ask(own_server.url, "POST", path, body=body, headers=headers)
        assert (refused.status, refused.json["error"]["status"]) == (503, "UNAVAILABLE")
        assert int(refused.headers["retry-after"]) > 0
        before = len(jobs.lines("steady"))
        assert jobs.get("steady")["state"] == "RUNNING"
        assert [job["jobId"] for job in own_server.call("GET", path)["jobs"]] == ["steady"]
        eventually(lambda: len(jobs.lines("steady")), (before + 5).__lt__)
    (tmp_path / "enough").touch()
    assert ask(own_server.url, "POST", path, body=body, headers=headers).status == 200
    assert jobs.wait("steady")["state"] == "SUCCEEDED"
    assert jobs.wait("refused")["state"] == "SUCCEEDED"
