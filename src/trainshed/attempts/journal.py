"""Reading the journal of an attempt. Its folder is the trainer's too, so nothing in it is taken on trust."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from trainshed.errors import EngineUnavailableError
from trainshed.node.supervisor import step_tracker

PIECE = 4 << 20  #: bytes read at once; a supervisor writes a few hundred in the life of a job


def read_lines(attempt: Path, offset: int = 0) -> tuple[list[bytes], int]:
    """The whole lines of the journal after `offset`, at most a piece of them, and the offset behind the last.

    Nothing for an attempt that never was, and for anything but a regular file in its place.
    """
    journal = attempt / "journal.jsonl"
    try:
        fd = os.open(journal, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            return [], offset
        raise EngineUnavailableError(f"{journal} can't be read: {exc.strerror}.") from exc
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return [], offset
        read = os.pread(fd, PIECE, offset)
    finally:
        os.close(fd)
    if len(read) == PIECE and b"\n" not in read:
        return [], offset + PIECE  # no event is that long
    whole, end, _rest = read.rpartition(b"\n")  # what comes after the last line end is not yet whole
    return (whole.split(b"\n"), offset + len(whole) + 1) if end else ([], offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """One word or a few, for people: waiting, running, done, stopped, exit status 1, killed by signal 9."""

    state: str = "waiting"
    restarts: int = 0


def replica_states(attempt: Path, names: Iterable[str]) -> Mapping[str, ReplicaStatus]:
    """Each replica as it is now. Nothing but `waiting` for an attempt that never was."""
    found = dict.fromkeys(names, ReplicaStatus())
    stopping = False
    for line in read_lines(attempt)[0]:
        try:
            event = orjson.loads(line)
            stopping = stopping or event["event"] == "stopping"
            name = event.get("name")
            if name in found:
                found[name] = _after(found[name], event, stopping)
        except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError):
            continue  # its writer did not live to finish it, or was no supervisor
    return found


def _after(seen: ReplicaStatus, event: Mapping[str, Any], stopping: bool) -> ReplicaStatus:
    match event["event"]:
        case "replica_started":
            restarts = seen.restarts if seen.state == "waiting" else seen.restarts + 1
            return ReplicaStatus(state="running", restarts=restarts)
        case "replica_exited":
            return replace(seen, state=_ending(event, stopping))
    return seen


def _ending(event: Mapping[str, Any], stopping: bool) -> str:
    if event["code"] == 0:
        return "done"
    if stopping:
        return "stopped"
    return f"killed by signal {event['signal']}" if event["signal"] else f"exit status {event['code']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRecord:
    """A replica that was started again, or a whole gang because of one."""

    time_us: int
    name: str  #: the replica that was lost
    reason: str  #: such as: killed by signal 9
    whole_gang: bool
    step_before: int | None  #: how far training had come; None if no line told
    step_after: int | None  #: the first step after it; None if none was told yet

    @property
    def sentence(self) -> str:
        """For people, without a full stop: restarted worker-replica-1 (killed by signal 9), resumed at step ..."""
        told = step_tracker.RestartCost(self.name, self.reason, self.whole_gang, self.step_before, self.step_after)
        return told.sentence


def restarts(attempt: Path) -> list[RestartRecord]:
    """All of them so far, the oldest first. None for an attempt that never was."""
    found: list[RestartRecord] = []
    for line in read_lines(attempt)[0]:
        if b"restarted" not in line and b"resumed" not in line:
            continue
        try:
            _follow(found, orjson.loads(line))
        except (orjson.JSONDecodeError, LookupError, TypeError):
            continue  # its writer did not live to finish it, or was no supervisor
    return found


def _follow(found: list[RestartRecord], event: dict[str, Any]) -> None:
    match event["event"]:
        case "replica_restarted" | "gang_restarted" as kind:
            restart = RestartRecord(
                time_us=int(event["t"]),
                name=str(event["name"]),
                reason=str(event["reason"]),
                whole_gang=kind == "gang_restarted",
                step_before=event["step_before"],
                step_after=None,
            )
            found.append(restart)
        case "resumed":
            for index in reversed(range(len(found))):
                if found[index].name == event["name"]:
                    found[index] = replace(found[index], step_after=int(event["step"]))
                    return
