"""What must hold when a load has come to rest: the history, the processes, the files and the logs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from trainshed.config import Home
from trainshed.domain.jobs.states import JobState
from trainshed.node.files import DRAFT_PREFIX
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.reliability.checker import Violation, check_history
from trainshed.testing.reliability.history import OperationOutcome
from trainshed.testing.reliability.load import PROJECT, Load
from trainshed.testing.reliability.models import JobSeen
from trainshed.testing.reliability.stamps import check_ends, check_lives, processes_of, read_lives

GRACE_S = 2.0  #: of the servers under test
_STAGED = ("put-", "gone-", DRAFT_PREFIX)
_GONE_TIMEOUT_S = 30.0  #: the machine may be busy with other things


def counted(violations: Iterable[Violation]) -> dict[str, int]:
    """The figures of a run: how many violations of each sort, zeros included."""
    counts = Counter(each.count for each in violations)
    return {name: counts[name] for name in ("lost", "doubled", "5xx", "survivors")}


def judge(
    load: Load, jobs: Mapping[str, JobSeen], server: RunningServer, stamps: Path, *, cuts_s: Sequence[float] = ()
) -> list[Violation]:
    """Return all violations. `jobs` is what `Load.quiesce` returned.

    `cuts_s` are the moments at which the power was cut. Without one, nothing but the server was killed, and each job
    has one launch, its own end and its whole log.
    """
    lives = [each for each in read_lives(stamps) if each.job in load.jobs]
    found = check_history(load.history, cuts_s=cuts_s)
    found += check_lives(lives, relaunches=bool(cuts_s))
    found += check_ends(lives, jobs, grace_s=GRACE_S)
    found += _leftovers(server.home)
    found += _secrets(server.home, list(load.tokens.values()))
    if not cuts_s:
        found += _untimely_ends(load, jobs)
        found += _log_gaps(server, [job for job, seen in jobs.items() if seen.state == JobState.SUCCEEDED])
    return found


def _leftovers(home: Path) -> list[Violation]:
    """Files of interrupted writes, processes of jobs that have ended, and zombies of the server."""
    found = [Violation("survivors", f"the file {path}") for path in sorted(staged_files(home))]
    server_pid = int(json.loads(Home(home).server.read_text())["pid"])
    for read, what in (
        (lambda: processes_of(home / "jobs"), "processes of jobs that have ended"),
        (lambda: _zombies(server_pid), "zombies"),
    ):
        try:
            eventually(read, lambda left: not left, within_s=_GONE_TIMEOUT_S)
        except AssertionError as exc:
            found.append(Violation("survivors", f"{what}: {exc}"))
    return found


def staged_files(home: Path) -> list[Path]:
    """Files of writes that did not come to their end. None of them is the user's."""
    folders = Home(home)
    places = (home, folders.uploads, folders.certificates, folders.backups)
    return [path for place in places if place.is_dir() for path in place.iterdir() if path.name.startswith(_STAGED)]


def _zombies(pid: int) -> list[int]:
    children = psutil.Process(pid).children()
    return [child.pid for child in children if child.is_running() and child.status() == psutil.STATUS_ZOMBIE]


def _secrets(home: Path, secrets: Sequence[str]) -> list[Violation]:
    """Tokens in clear in the database or in the server's log."""
    folders = Home(home)
    database = folders.database
    places = (database, database.with_name(f"{database.name}-wal"), folders.server_log)
    contents = {path: path.read_bytes() for path in places if path.exists()}
    return [
        Violation("survivors", f"a token in clear in {path}")
        for path, content in contents.items()
        if any(secret.encode() in content for secret in secrets)
    ]


def _untimely_ends(load: Load, jobs: Mapping[str, JobSeen]) -> list[Violation]:
    """Jobs that did not succeed though nobody asked to cancel them: a killed server is no reason for that."""
    asked = {
        each.key
        for each in load.history.operations
        if each.action == "cancel" and each.outcome != OperationOutcome.FAIL
    }
    return [
        Violation("lost", f"job {job} is {seen.state}: {seen.error}")
        for job, seen in jobs.items()
        if seen.state != JobState.SUCCEEDED and f"job/{PROJECT}/{job}" not in asked
    ]


def _log_gaps(server: RunningServer, jobs: Sequence[str]) -> list[Violation]:
    """Jobs whose numbered lines are not all in their log, once, in order."""
    found = []
    for job in jobs:
        entries = server.call("GET", f"/trainshed/v1/projects/{PROJECT}/jobs/{job}/logs")["entries"]
        messages = [entry["message"] for entry in entries]
        numbers = [int(each.split()[1]) for each in messages if each.startswith("number ")]
        totals = [int(each.split()[1]) for each in messages if each.startswith("numbers ")]
        if totals != [len(numbers)] or numbers != list(range(len(numbers))):
            count = "doubled" if len(set(numbers)) < len(numbers) else "lost"
            found.append(Violation(count, f"lines of job {job}: {numbers}, and the trainer said {totals}"))
    return found
