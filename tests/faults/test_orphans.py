"""Attempts that run for jobs which the database has lost, as after the return to an older copy of it."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.workloads.job_logs import records
from trainshed.testing.workloads.submitter import Submitter

WAITING = """
import os, sys, time
print("pid", os.getpid(), flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
"""


def copy_rows(source: Path, target: Path) -> None:
    with contextlib.closing(sqlite3.connect(source)) as rows, contextlib.closing(sqlite3.connect(target)) as copy:
        rows.backup(copy)


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def go_back(server: RunningServer, older: Path) -> None:
    server.kill()
    for suffix in ("", "-wal", "-shm"):
        server.home.joinpath(f"state.db{suffix}").unlink(missing_ok=True)
    copy_rows(older, server.home / "state.db")
    server.start()


def pid_of(attempt: Path) -> int:
    [started] = [e for e in records(attempt / "journal.jsonl") if e["event"] == "replica_started"]
    return int(str(started["pid"]))


def test_an_attempt_whose_job_is_lost_is_ended_and_one_whose_job_is_there_goes_on(
    own_server: RunningServer, tmp_path: Path
) -> None:
    jobs, enough, older = Submitter(own_server, "going-back", tmp_path), tmp_path / "enough", tmp_path / "older.db"
    jobs.submit("kept", WAITING, args=[str(enough)])
    jobs.wait("kept", {"RUNNING"})
    copy_rows(own_server.home / "state.db", older)
    jobs.submit("lost", WAITING, args=[str(enough)])
    jobs.wait("lost", {"RUNNING"})
    kept, lost = (pid_of(jobs.attempt(job)) for job in ("kept", "lost"))

    go_back(own_server, older)
    assert Caller(own_server.url)("GET", "/v1/projects/going-back/jobs/lost", token=own_server.token)[0] == 404
    eventually(lambda: is_alive(lost), False.__eq__)
    log = own_server.log.read_text()
    assert f"attempt.orphaned folder={jobs.attempt('lost')}" in log
    assert f"attempt.orphan_ended folder={jobs.attempt('lost')}" in log
    assert is_alive(kept)
    assert jobs.get("kept")["state"] == "RUNNING"
    aside = own_server.home / "jobs" / "going-back" / "lost.lost-1"
    assert (aside / "1" / "log.jsonl").is_file(), "its log stays"

    again = Submitter(own_server, "going-back", tmp_path / "again", bucket=jobs.bucket)
    again.submit("lost", "print('a new one of the same id')")
    assert again.wait("lost")["state"] == "SUCCEEDED"
    assert "a new one of the same id" in again.lines("lost")
    enough.touch()
    assert jobs.wait("kept")["state"] == "SUCCEEDED"
