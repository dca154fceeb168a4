"""Stamps that trainers write while they live, and what they prove about processes.

Each replica appends lines to one file outside of the state folder: at its start, every few hundredths of a second, and
at its end. A process that is killed writes no end, so its life is what lies between its first and its last stamp.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from trainshed.node.journal import SUPERVISOR_STARTED
from trainshed.testing.reliability.checker import Violation
from trainshed.testing.reliability.models import JobSeen

#: Arguments: the file of stamps, the seconds to live. Prints numbered lines, one for each stamp.
TRAINER = """
import json, os, sys, time
name = [os.environ["TRAINSHED_JOB"], os.path.basename(os.environ["TRAINSHED_ATTEMPT"]), os.getpid()]
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
def stamp(event):
    os.write(fd, (json.dumps([*name, event, time.monotonic(), time.time()]) + "\\n").encode())
stamp("start")
end, number = time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < end:
    print("number", number, flush=True)
    number += 1
    time.sleep(0.05)
    stamp("alive")
print("numbers", number, flush=True)
stamp("stop")
"""

SURVIVAL_LIMIT_S = 1.0  #: that a process may outlive its job, besides the grace period


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What the stamps of one process say."""

    job: str
    attempt: str
    pid: int
    began_s: float  #: monotonic
    last_s: float
    last_wall_s: float
    stopped: bool  #: it ended by itself


def read_lives(path: Path) -> list[Life]:
    """The lives of all processes that wrote to a file of stamps, in the order of their starts."""
    lives: dict[tuple[str, str, int], Life] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        job, attempt, pid, event, monotonic_s, wall_s = json.loads(line)
        first = lives.get((job, attempt, pid))
        lives[job, attempt, pid] = Life(
            job=job,
            attempt=attempt,
            pid=pid,
            began_s=first.began_s if first else monotonic_s,
            last_s=monotonic_s,
            last_wall_s=wall_s,
            stopped=event == "stop",
        )
    return sorted(lives.values(), key=lambda life: life.began_s)


def check_lives(lives: Iterable[Life], *, relaunches: bool) -> list[Violation]:
    """Return a violation for each attempt with two live processes at a time.

    Without `relaunches`, none may have a second process at all: nothing but the server was killed.
    """
    found: list[Violation] = []
    last: dict[tuple[str, str], Life] = {}
    for life in lives:
        before = last.get((life.job, life.attempt))
        if before is not None and (not relaunches or before.last_s >= life.began_s):
            text = f"attempt {life.attempt} of {life.job} runs as pid {before.pid} and as pid {life.pid}"
            found.append(Violation("doubled", text))
        if before is None or life.last_s > before.last_s:
            last[life.job, life.attempt] = life
    return found


def check_ends(lives: Iterable[Life], jobs: Mapping[str, JobSeen], *, grace_s: float) -> list[Violation]:
    """Return a violation for each process that outlived its job, or whose job is not known."""
    found: list[Violation] = []
    for life in lives:
        job = jobs.get(life.job)
        if job is None:
            found.append(Violation("lost", f"pid {life.pid} ran for {life.job}, which is not there"))
        elif job.end_time:
            late_s = life.last_wall_s - datetime.fromisoformat(job.end_time).timestamp()
            if late_s > grace_s + SURVIVAL_LIMIT_S:
                found.append(Violation("survivors", f"pid {life.pid} outlived {life.job} by {late_s:.1f} s"))
    return found


def processes_of(home: Path) -> dict[int, str]:
    """The living processes of a state folder, by pid, with their command lines: those that name it to be called by."""
    needle = os.fsencode(home)
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            command, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
            if (needle in command or needle in environment) and state not in (b"Z", b"X"):
                found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def supervisor_pid(folder: Path) -> int | None:
    """The pid of an attempt's supervisor. Returns None if its journal does not say it yet."""
    for line in (folder / "journal.jsonl").read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):  # the last line is being written
            event = json.loads(line)
            if event["event"] == SUPERVISOR_STARTED:
                return int(event["pid"])
    return None
