"""Loss and return: a server is backed up, its state folder is lost, and a restore brings everything back."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.backup.contents import FILES
from trainshed.testing import cache
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.workloads.deployer import Deployer
from trainshed.testing.workloads.submitter import PACKAGE, Submitter


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    running = RunningServer(cache.link_runtimes(tmp_path / "home")).start()
    yield running
    running.kill()
    running.end_jobs()


def trainshed(server: RunningServer, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainshed.cli", *words]
    return subprocess.run(command, env=server.env(), capture_output=True, text=True, check=False)


def test_what_was_lost_returns(server: RunningServer, tmp_path: Path) -> None:
    deployer = Deployer(server, "returning", tmp_path / "models")
    deployer.deploy_routine("v1", answer="return [len(open(self.model_dir + '/weights.txt').read())]")
    assert deployer.predict("v1", 1) == [2]
    jobs = Submitter(server, "returning", tmp_path / "jobs", bucket=deployer.bucket)
    jobs.submit("done", "print('a line to keep')")
    assert jobs.wait("done")["state"] == "SUCCEEDED"
    request = {"user": "alice", "project": "returning", "role": "viewer", "label": "laptop"}
    alice = server.call("POST", "/trainshed/v1/tokens", request)["token"]
    metadata = server.call("GET", f"/storage/v1/b/{deployer.bucket}/o/done%2F{PACKAGE}")
    owner, authority = server.token, server.authority.read_bytes()

    archive = tmp_path / "backup.tar"
    made = trainshed(server, "backup", "--buckets", "--logs", "--format", "json", str(archive))
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["skipped"] == []
    unclassed = {path.name for path in server.home.iterdir()} - set(FILES)
    assert unclassed <= {"faults.txt"}, "each part of the state folder is backed up, rebuilt or thrown away"

    server.stop()
    shutil.rmtree(server.home)
    cache.link_runtimes(server.home)
    restored = trainshed(server, "restore", "--format", "json", str(archive))
    assert restored.returncode == 0, restored.stderr
    assert json.loads(restored.stdout)["replaced"] == ""
    server.start()

    assert (server.token, server.authority.read_bytes()) == (owner, authority)
    as_alice = Caller(server.url)
    path = f"/storage/v1/b/{deployer.bucket}/o/done%2F{PACKAGE}"
    assert as_alice("GET", path, token=alice) == (200, metadata)
    assert as_alice("GET", f"{path}?alt=media", token=alice)[0] == 200
    assert jobs.get("done")["state"] == "SUCCEEDED"
    assert "a line to keep" in jobs.lines("done")
    deployer.until_answers("v1", 1)
    assert deployer.predict("v1", 1) == [2]


def test_a_lost_database_is_said_and_a_copy_of_the_timer_returns(server: RunningServer, tmp_path: Path) -> None:
    jobs = Submitter(server, "timed", tmp_path)
    jobs.submit("done", "print('hello')")
    jobs.wait("done")
    server.stop()
    for path in server.home.glob("state.db*"):
        path.unlink()
    [first] = server.home.glob("backups/state-*.db")
    with pytest.raises(RuntimeError, match=f"trainshed restore {first}"):
        server.start()
    assert not (server.home / "state.db").exists(), "no empty one was begun"
    assert (server.home / "buckets" / jobs.bucket).is_dir()
    assert trainshed(server, "restore", str(first)).returncode == 0
    server.start()
    server.stop()


def test_copies_are_made_while_the_server_runs(tmp_path: Path) -> None:
    server = RunningServer(tmp_path / "home", {"backup_interval_s": 0.2, "backup_count": 2}).start()
    try:
        [first, *_] = eventually(lambda: sorted(server.home.glob("backups/state-*.db")), bool)
        server.call("POST", "/storage/v1/b?project=copied", {"name": "copied-bucket"})
        eventually(lambda: not first.exists() or len(list(server.home.glob("backups/state-*.db"))) > 1, bool)
    finally:
        server.kill()
    assert 1 <= len(list(server.home.glob("backups/state-*.db"))) <= 2
