"""Attempts of jobs that the database does not know, as after a restore of an older one: ended, and moved aside."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Set
from pathlib import Path
from typing import Protocol

from trainshed.domain import names
from trainshed.domain.jobs.reconcile import AttemptPhase, ObservedAttempt
from trainshed.errors import InvalidArgumentError

LOG = logging.getLogger("trainshed.control.jobs.orphans")

POLL_INTERVAL_S = 0.05
LOST_SUFFIX = ".lost-"  #: no id of a job has a full stop
_LIVE_PHASES = (AttemptPhase.PREPARING, AttemptPhase.RUNNING)


class Supervisors(Protocol):
    """What ends supervisors: an engine that finds them by the folder of their attempt."""

    def observe(self, attempts: Collection[Path]) -> Mapping[Path, ObservedAttempt]: ...

    def cancel(self, attempt: Path) -> None: ...

    def forget(self, attempts: Collection[Path]) -> None: ...


def end_orphans(
    root: Path, supervisors: Supervisors, known: Callable[[], Set[tuple[str, str]]], *, timeout_s: float
) -> None:
    """End the attempts below `root` of jobs that are not `known` (project and id), and move their folders aside.

    Blocks until they have ended, for at most `timeout_s`. No file is removed. A later job of the same id starts with
    its own folder, and does not take the earlier one's attempt for its own. Call it before any attempt is launched.
    """
    orphans = _unknown_jobs(root, known)
    attempts = [attempt for folder in orphans for attempt in folder.iterdir() if attempt.name.isdigit()]
    live = _live(supervisors, attempts)
    for attempt in live:
        LOG.warning("attempt.orphaned folder=%s reason=%r", attempt, "The database has no such job. It is ended.")
        supervisors.cancel(attempt)
    deadline = time.monotonic() + timeout_s
    while live and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL_S)
        ended = [attempt for attempt in live if attempt not in (still := _live(supervisors, live))]
        for attempt in ended:
            LOG.warning("attempt.orphan_ended folder=%s", attempt)
        live = still
    for attempt in live:
        LOG.error("attempt.orphan_left folder=%s reason='It has not ended within %g s.'", attempt, timeout_s)
    for folder in orphans:
        _move_aside(folder)
    supervisors.forget(attempts)


def _unknown_jobs(root: Path, known: Callable[[], Set[tuple[str, str]]]) -> list[Path]:
    folders = [folder for folder in sorted(root.glob("*/*")) if folder.is_dir() and _is_job(folder.name)]
    if not folders:
        return []
    rows = known()
    return [folder for folder in folders if (folder.parent.name, folder.name) not in rows]


def _is_job(name: str) -> bool:
    try:
        return names.job_id(name) == name
    except InvalidArgumentError:
        return False


def _live(supervisors: Supervisors, attempts: Collection[Path]) -> list[Path]:
    return [path for path, seen in supervisors.observe(attempts).items() if seen.phase in _LIVE_PHASES]


def _move_aside(folder: Path) -> None:
    number = 1
    while (aside := folder.with_name(f"{folder.name}{LOST_SUFFIX}{number}")).exists():
        number += 1
    try:
        folder.rename(aside)
    except OSError as exc:
        LOG.warning("job.unknown folder=%s reason=%s", folder, exc)
        return
    LOG.warning("job.unknown folder=%s moved_to=%s reason=%r", folder, aside, "The database has no such job.")
