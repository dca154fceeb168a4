"""Attempts in the sandbox, as root or as an ordinary user, at any level, started as the engine does: no server."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from trainshed.attempts.journal import AttemptRecord, fold, read_lines
from trainshed.config import Home
from trainshed.engines.base import AttemptSpec, Replica
from trainshed.engines.local.engine import render
from trainshed.engines.local.networks import Networks
from trainshed.engines.local.sandbox import FIRST_UID, FULL, Sandbox, SandboxLevel
from trainshed.engines.shipping import ship
from trainshed.node.process.environment import build_environment
from trainshed.testing.eventually import eventually
from trainshed.testing.workloads.job_logs import records

USER = 54_321  #: an ordinary user who has no account
SYSTEM_PYTHON = Path("/usr/bin/python3")  #: an ordinary user may not reach the interpreter of the tests
_MASTER = Replica(name="master-replica-0", type="master", index=0, primary=True)


@dataclass(frozen=True)
class Cellblock:
    """A state folder of root, or of an ordinary user, and attempts on it."""

    path: Path
    user: int  #: 0 for root
    attempts: list[Path] = field(default_factory=list)

    @property
    def home(self) -> Home:
        return Home(self.path / "home")

    @property
    def site(self) -> Path:
        return self.path / "site"

    @property
    def node(self) -> Path:
        return ship(self.home.node)

    @property
    def python(self) -> Path:
        return SYSTEM_PYTHON if self.user else Path(sys.executable)

    def level(self, level: str) -> SandboxLevel:
        return SandboxLevel(level=level, uid=0 if self.user else FIRST_UID)

    def sandbox(self, level: str, access: str = "all", ports: tuple[int, ...] = ()) -> Sandbox:
        """The sandbox at a level. At the full one, it has this network, with these ports of loopback."""
        networks = Networks(
            access=lambda project: access, ports=tuple(("127.0.0.1", port) for port in ports), redirects=True
        )
        return Sandbox(home=self.home, level=self.level(level), networks=networks if level == FULL else None)

    def spec(self, name: str, code: str, *args: str) -> AttemptSpec:
        """An attempt with this code as its trainer."""
        self.site.mkdir(exist_ok=True)
        (self.site / f"{name}.py").write_text(code)
        return AttemptSpec(
            project="p",
            job=name,
            attempt=1,
            folder=self.home.jobs / "p" / name / "1",
            python=self.python,
            module=name,
            args=args,
            packages=(),
            site=self.site,
            replicas=(_MASTER,),
            env={"PYTHONPATH": str(self.site), "PYTHONDONTWRITEBYTECODE": "1"},
            grace_s=5.0,
            max_running_s=600.0,
            log_limit_bytes=8 << 20,
        )

    def start(self, spec: AttemptSpec, level: str, *, sandbox: Sandbox | None = None, **changes: Any) -> None:
        """Start the supervisor of an attempt, as this user."""
        spec.folder.mkdir(mode=0o700, parents=True)
        sandbox = sandbox or self.sandbox(level)
        body = {**render(spec, uv=Path("uv")), "sandbox": sandbox.render(spec), **changes}
        (spec.folder / "spec.json").write_bytes(orjson.dumps(body))
        run = self.node / "run.py"
        self.give(self.path)
        self.attempts.append(spec.folder)
        subprocess.run(
            [self.python, "-I", "-S", run, "supervise", spec.folder],
            check=True,
            cwd="/",
            env={**build_environment(), "HOME": str(self.path / "account")},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            umask=0o077,  # as the server's
            **self.credentials(),
        )

    def credentials(self) -> dict[str, Any]:
        """Arguments of `subprocess` that make a process this user's."""
        return {"user": self.user, "group": self.user, "extra_groups": []} if self.user else {}

    def give(self, path: Path) -> None:
        """Give all that is in a folder to this user."""
        if self.user:
            for folder, names, files in os.walk(path):
                for name in (".", *names, *files):
                    os.chown(Path(folder) / name, self.user, self.user, follow_symlinks=False)

    def end(self, spec: AttemptSpec) -> Mapping[str, Any]:
        """Wait for the end of an attempt. Returns the last event of its journal."""
        return eventually(lambda: self.events(spec)[-1:], lambda last: bool(last) and last[0]["event"] == "ended")[0]

    def run(self, spec: AttemptSpec, level: str, **changes: Any) -> list[str]:
        """Run an attempt. Returns the lines of its log."""
        self.start(spec, level, **changes)
        self.end(spec)
        return self.lines(spec)

    def events(self, spec: AttemptSpec) -> list[dict[str, Any]]:
        return records(spec.folder / "journal.jsonl")

    def lines(self, spec: AttemptSpec) -> list[str]:
        return [str(line["m"]) for line in records(spec.folder / "log.jsonl")]

    def close(self) -> None:
        """Cancel what still runs."""
        for folder in self.attempts:
            record = fold(AttemptRecord(), read_lines(folder, 0)[0])
            if record.end is None and record.supervisor is not None:
                with contextlib.suppress(OSError):  # it was killed
                    send_command(folder, b"cancel\n")


def send_command(attempt: Path, command: bytes) -> None:
    """Send a command to the supervisor of an attempt."""
    fd = os.open(attempt / "control", os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(fd, command)
    finally:
        os.close(fd)


@contextmanager
def cellblock(path: Path, *, user: int) -> Iterator[Cellblock]:
    """A state folder in `path`. With a `user`, all of it belongs to that one, and it is elsewhere: each session of
    pytest closes the folder of all of them to others."""
    if user:
        path = Path(tempfile.mkdtemp(prefix="trainshed-block-"))
    block = Cellblock(path, user)
    for folder in (block.home.path, path / "account"):
        folder.mkdir(mode=0o700, parents=True)
    try:
        yield block
    finally:
        block.close()
        if user:
            shutil.rmtree(path, ignore_errors=True)
