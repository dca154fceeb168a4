"""Gangs of remote replicas for tests: a spec without a server, its supervisor, trainers that follow a script."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from trainshed.engines.shipping import ship
from trainshed.services.access.tokens import Tokens
from trainshed.store.database import Database
from trainshed.store.tokens import TokenStore
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.job_logs import records

WAIT_S = 180.0  #: for any condition: the machine may be slow
_END_EVENTS = ("ended", "lost")
KEY = "test-0"  #: of the runtime of the replicas: the Python of the tests

#: Each replica records its pid and the addresses of the gang, then waits for a file with its exit status.
TRAINER = """
import json, os, signal, subprocess, sys, time
SIGNS, NAME = os.environ["SIGNS"], os.environ["REPLICA"]
def note(file, *words):
    fd = os.open(os.path.join(SIGNS, file), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, (json.dumps(words) + "\\n").encode())
    os.close(fd)
note("starts", NAME, os.getpid(), json.loads(os.environ["TF_CONFIG"])["cluster"])
def wait():
    while True:
        for sign in (NAME, "all"):
            path = os.path.join(SIGNS, "end-" + sign)
            if os.path.exists(path):
                how = int(open(path).read())
                if how < 0:
                    os.kill(os.getpid(), -how)
                sys.exit(how)
        time.sleep(0.01)
"""


class GangRun:
    """One attempt of a gang. Its replicas write files below `root`, which the nodes must see too."""

    def __init__(self, root: Path, bridge: Path, *, name: str = "j") -> None:
        """`bridge` is the bridge's socket."""
        self.gang = f"trainshed/p/{name}/1"
        self._bridge = bridge
        self.folder = root / "attempt"
        self.signs = root / "signs"
        self._trainers = root / "trainers"
        for path in (self.folder, self.signs, self._trainers):
            path.mkdir()

    def launch(self, source: str, *replicas: str, **options: Any) -> None:
        (self._trainers / "task.py").write_text(TRAINER + source)
        spec = cluster_spec(self._bridge, self.gang, replicas, **options)
        spec["env"] = {"PYTHONPATH": str(self._trainers), "SIGNS": str(self.signs)}
        (self.folder / "spec.json").write_text(json.dumps(spec))
        run = ship(self.folder.parent / "node") / "run.py"
        subprocess.run([sys.executable, "-I", "-S", run, "supervise", self.folder], check=True, timeout=WAIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the attempt and waits for its end."""
        if (self.folder / "journal.jsonl").exists():
            self.end(0)
            if not self._has_ended():
                self.cancel()
            self.ended()

    def cancel(self) -> None:
        self._write_command("cancel")

    def kill(self, replica: str, number: int) -> None:
        self._write_command(f"kill {replica} {number}")

    def _write_command(self, command: str) -> None:
        with (self.folder / "control").open("w") as control:
            control.write(f"{command}\n")

    def end(self, status: int, replica: str = "all") -> None:
        draft = self.signs / f"draft-{replica}"
        draft.write_text(str(status))
        draft.rename(self.signs / f"end-{replica}")  # atomic: a reader sees the whole file

    def starts(self) -> list[tuple[str, int, dict[str, list[str]]]]:
        return [(name, number, cluster) for name, number, cluster in records(self.signs / "starts")]

    def started(self, count: int) -> list[tuple[str, int, dict[str, list[str]]]]:
        wait_until(lambda: len(self.starts()) >= count, self)
        return self.starts()

    def journal(self) -> list[dict[str, Any]]:
        return records(self.folder / "journal.jsonl")

    def ended(self) -> dict[str, Any]:
        wait_until(self._has_ended, self)
        return self.journal()[-1]

    def _has_ended(self) -> bool:
        return any(each["event"] in _END_EVENTS for each in self.journal()[-1:])

    def lines(self, replica: str = "") -> list[str]:
        return [line["m"] for line in records(self.folder / "log.jsonl") if line["r"] == replica or not replica]

    def samples(self) -> list[dict[str, Any]]:
        return records(self.folder / "samples.jsonl")

    def replica_proxy(self, replica: str) -> int:
        started = [event for event in self.journal() if event["event"] == "replica_started"]
        return int([event["pid"] for event in started if event["name"] == replica][-1])


def wait_until(condition: Callable[[], object], attempt: GangRun, timeout_s: float = WAIT_S) -> None:
    """Wait for a condition. A failure shows the attempt's log."""
    eventually(condition, within_s=timeout_s, describe=lambda: "\n".join(attempt.lines()))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it exits between open and read
        return False


def make_runtime(folder: Path) -> None:
    """Create a runtime that is this Python, among those of a node."""
    (folder / KEY / "bin").mkdir(parents=True)
    (folder / KEY / "bin" / "python").symlink_to(sys.executable)
    (folder / KEY / "complete.json").write_text("{}")


def cluster_spec(
    bridge: Path,
    gang_name: str,
    replicas: Sequence[str],
    *,
    grace_s: float = 5.0,
    python: str = "3.11",
    strategy: str = "PACK",
    resources: Mapping[str, float] | None = None,
    lease_s: float = 600.0,
    max_running_s: float = 3600.0,
) -> dict[str, Any]:
    """Return the spec of an attempt of a gang, such as master-replica-0 and ps-replica-0, whose module is `task`."""
    gang = [(name, *_parts(name)) for name in replicas]
    cluster: dict[str, list[str]] = {}
    for name, kind, _ in gang:
        if kind != "evaluator":
            cluster.setdefault(kind, []).append(f"@host:{name}@:@port:{name}@")
    return {
        "format": 1,
        "project": "p",
        "job": "j",
        "attempt": 1,
        "python": sys.executable,
        "uv": "uv",
        "module": "task",
        "args": [],
        "packages": [],
        "site": "/nowhere",
        "replicas": [
            {
                "name": name,
                "type": kind,
                "index": index,
                "primary": kind == "master",
                "env": {
                    "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}}),
                    "REPLICA": name,
                },
            }
            for name, kind, index in gang
        ],
        "env": {},
        "grace_s": grace_s,
        "max_running_s": max_running_s,
        "log_limit_bytes": 1 << 24,
        "cluster": {
            "socket": str(bridge),
            "gang": gang_name,
            "strategy": strategy,
            "bundles": {name: {"CPU": 1, **(resources or {})} for name in replicas},
            "runtime": {"name": "test", "key": KEY, "python": python, "lock": "", "stands_for": []},
            "packages": [],
            "credentials": {"files": {}, "sidecar_proxy": None, "ca": ""},
            "lease_s": lease_s,
        },
    }


def _parts(name: str) -> tuple[str, int]:
    kind, _, index = name.split("-")
    return kind, int(index)


HOUR_S = 3600.0


@contextmanager
def tokens_of(server: RunningServer) -> Iterator[Tokens]:
    """Yield tokens on the server's own database. The server accepts them."""
    database = Database(server.home / "state.db")
    try:
        yield Tokens(TokenStore(database))
    finally:
        database.close()


def fetch_token_of(server: RunningServer, project: str, job: str) -> str:
    """Return a token that downloads the packages of a job while the job runs."""
    with tokens_of(server) as tokens:
        return tokens.issue_job_fetch_token(project, job, ttl_s=HOUR_S)
