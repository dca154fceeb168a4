"""Reads the journal of an attempt: events, replica states and restarts. The trainer can write to the folder,
so nothing in it is trusted."""

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

READ_MAX_BYTES = 4 << 20  #: of one read; a supervisor writes a few hundred bytes in the life of a job


def read_lines(attempt: Path, offset: int = 0) -> tuple[list[bytes], int]:
    """The complete lines of the journal after `offset`, within one read, and the offset behind the last of them.

    Empty if the attempt was never started, or if the journal is not a regular file.
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
        data = os.pread(fd, READ_MAX_BYTES, offset)
    finally:
        os.close(fd)
    if len(data) == READ_MAX_BYTES and b"\n" not in data:
        return [], offset + READ_MAX_BYTES  # no event is that long
    lines, end, _rest = data.rpartition(b"\n")  # an unterminated last line is not complete yet
    return (lines.split(b"\n"), offset + len(lines) + 1) if end else ([], offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """State of a replica, for people: waiting, running, done, stopped, exit status 1, killed by signal 9."""

    state: str = "waiting"
    restarts: int = 0


def replica_states(attempt: Path, names: Iterable[str]) -> Mapping[str, ReplicaStatus]:
    """The current state of each replica. All are `waiting` if the attempt was never started."""
    states = dict.fromkeys(names, ReplicaStatus())
    stopping = False
    for line in read_lines(attempt)[0]:
        try:
            event = orjson.loads(line)
            stopping = stopping or event["event"] == "stopping"
            name = event.get("name")
            if name in states:
                states[name] = _apply(states[name], event, stopping)
        except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError):
            continue  # its writer was killed before it finished the line, or was no supervisor
    return states


def _apply(status: ReplicaStatus, event: Mapping[str, Any], stopping: bool) -> ReplicaStatus:
    match event["event"]:
        case "replica_started":
            restarts = status.restarts if status.state == "waiting" else status.restarts + 1
            return ReplicaStatus(state="running", restarts=restarts)
        case "replica_exited":
            return replace(status, state=_exit_state(event, stopping))
    return status


def _exit_state(event: Mapping[str, Any], stopping: bool) -> str:
    if event["code"] == 0:
        return "done"
    if stopping:
        return "stopped"
    return f"killed by signal {event['signal']}" if event["signal"] else f"exit status {event['code']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRecord:
    """A restart of a replica, or of a whole gang because of one."""

    time_us: int
    name: str  #: the replica that was lost
    reason: str  #: such as: killed by signal 9
    whole_gang: bool
    step_before: int | None  #: the last step before it; None if unknown
    step_after: int | None  #: the first step after it; None if there is none yet

    @property
    def sentence(self) -> str:
        """For people, without a full stop: restarted worker-replica-1 (killed by signal 9), resumed at step ..."""
        cost = step_tracker.RestartCost(self.name, self.reason, self.whole_gang, self.step_before, self.step_after)
        return cost.sentence


def restarts(attempt: Path) -> list[RestartRecord]:
    """All restarts so far, the oldest first. Empty if the attempt was never started."""
    records: list[RestartRecord] = []
    for line in read_lines(attempt)[0]:
        if b"restarted" not in line and b"resumed" not in line:
            continue
        try:
            _apply_restart(records, orjson.loads(line))
        except (orjson.JSONDecodeError, LookupError, TypeError):
            continue  # its writer was killed before it finished the line, or was no supervisor
    return records


def _apply_restart(records: list[RestartRecord], event: dict[str, Any]) -> None:
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
            records.append(restart)
        case "resumed":
            for index in reversed(range(len(records))):
                if records[index].name == event["name"]:
                    records[index] = replace(records[index], step_after=int(event["step"]))
                    return
