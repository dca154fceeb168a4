"""Reads the journal of an attempt and folds its events into a record. The trainer can write to the folder,
so nothing in it is trusted."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from trainshed.domain.jobs.failure import Failure
from trainshed.domain.jobs.job import HangKind
from trainshed.domain.jobs.states import TERMINAL_STATES, JobState
from trainshed.errors import EngineUnavailableError
from trainshed.node import journal
from trainshed.node.process.exit_status import ExitStatus
from trainshed.node.supervisor.hang_report import HangReport
from trainshed.node.supervisor.step_tracker import RestartCost

_TIME_MAX_US = 253_402_300_799_999_999  #: the end of the year 9999, the last one that RFC 3339 can name
MAX_HANGS = 100  #: the latest are kept
_NAME_MAX = 128
_TEXT_MAX = 64 << 10
READ_MAX_BYTES = 4 << 20  #: of one read; a supervisor writes a few hundred bytes in the life of a job


def read_lines(attempt: Path, offset: int = 0) -> tuple[list[bytes], int]:
    """The complete lines of the journal after `offset`, within one read, and the offset behind the last of them.

    Empty if the attempt was never started, or if the journal is not a regular file.
    """
    path = attempt / "journal.jsonl"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            return [], offset
        raise EngineUnavailableError(f"{path} can't be read: {exc.strerror}.") from exc
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


class ReplicaState(StrEnum):
    """State of a replica."""

    WAITING = "waiting"  #: not started yet
    RUNNING = "running"
    DONE = "done"  #: exited with 0
    EXITED = "exited"  #: with another exit code
    KILLED = "killed"  #: by a signal
    STOPPED = "stopped"  #: ended because the job ends


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """State of a replica, with how it ended if it did."""

    state: ReplicaState = ReplicaState.WAITING
    exit_code: int | None = None
    signal: int | None = None
    restarts: int = 0

    @property
    def text(self) -> str:
        """For people: waiting, running, done, stopped, exit status 1, killed by signal 9."""
        match self.state:
            case ReplicaState.EXITED:
                return f"exit status {self.exit_code}"
            case ReplicaState.KILLED:
                return f"killed by signal {self.signal}"
        return self.state.value


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRecord:
    """A restart of a replica, or of a whole gang because of one."""

    time_us: int
    name: str  #: the replica that exited
    exit_code: int | None
    signal: int | None
    hung: bool  #: the supervisor killed it for that
    after_loss_of: str  #: the replica whose loss made it exit; empty if it was lost itself
    whole_gang: bool
    step_before: int | None  #: the last step before it; None if unknown
    step_after: int | None  #: the first step after it; None if there is none yet

    @property
    def sentence(self) -> str:
        """For people, without a full stop: restarted worker-replica-1 (killed by signal 9), resumed at step ..."""
        status = ExitStatus(self.exit_code, self.signal)
        cost = RestartCost(
            self.name, status, self.whole_gang, self.after_loss_of, self.step_before, self.step_after, self.hung
        )
        return cost.sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class HangRecord:
    """A hang of a replica."""

    time_us: int  #: when it was noticed
    name: str
    kind: HangKind
    seconds: float  #: its length until then
    pid: int  #: 0 if the replica is on a node
    working: tuple[str, ...]  #: active replicas that it may wait for
    suspect: str  #: the replica that its group seems to wait for; empty if none can be named
    restart: bool  #: whether it was killed for it
    sentence: str  #: for people
    stack: str  #: for people; its threads, or why they are not known
    ended_us: int | None = None  #: when it was active again or exited


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """How an attempt ended."""

    time_us: int
    outcome: JobState  #: a terminal state
    failure: Failure | None  #: why it failed or was cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """What a journal says of its attempt so far."""

    supervisor: tuple[str, int, int] | None = None  #: boot id, pid and start time, which identify a process
    running_us: int | None = None  #: when all replicas had been started
    replicas: Mapping[str, ReplicaStatus] = field(default_factory=dict)  #: those that were started
    restarts: tuple[RestartRecord, ...] = ()  #: the oldest first
    hangs: tuple[HangRecord, ...] = ()  #: the oldest first; a replica has at most one that has not ended
    stopping: bool = False
    lost_us: int | None = None  #: when the reaper found the supervisor killed
    end: AttemptEnd | None = None


def fold(record: AttemptRecord, lines: Iterable[bytes]) -> AttemptRecord:
    """The record after more lines of the journal. Lines that are no events of a supervisor change nothing."""
    for line in lines:
        event = journal.parse_event(line)
        if event is not None:
            try:
                record = _apply(record, event)
            except (ValueError, LookupError, TypeError, AttributeError):
                continue  # a trainer wrote it
    return record


def read_record(attempt: Path) -> AttemptRecord:
    """The record of an attempt. Empty if it was never started."""
    return fold(AttemptRecord(), read_lines(attempt)[0])


def _apply(record: AttemptRecord, event: Mapping[str, Any]) -> AttemptRecord:
    time_us = int(event["t"])
    if not 0 <= time_us <= _TIME_MAX_US:
        raise ValueError(time_us)
    match event["event"]:
        case journal.SUPERVISOR_STARTED if record.supervisor is None:
            return replace(
                record, supervisor=(str(event["boot_id"]), _integer(event["pid"]), _integer(event["started"]))
            )
        case journal.RUNNING:
            return replace(record, running_us=time_us)
        case journal.REPLICA_STARTED | journal.REPLICA_EXITED:
            name = str(event["name"])
            status = _replica_status(record.replicas.get(name, ReplicaStatus()), event, stopping=record.stopping)
            hangs = _hang_ended(record.hangs, name, time_us)
            return replace(record, replicas={**record.replicas, name: status}, hangs=hangs)
        case journal.REPLICA_RESTARTED | journal.GANG_RESTARTED:
            return replace(record, restarts=(*record.restarts, _restart(event, time_us)))
        case journal.RESUMED:
            return replace(record, restarts=_resumed(record.restarts, str(event["name"]), _integer(event["step"])))
        case journal.REPLICA_HUNG:
            hangs = _hang_ended(record.hangs, str(event["name"]), time_us)
            return replace(record, hangs=(*hangs, _hang(event, time_us))[-MAX_HANGS:])
        case journal.HANG_ENDED:
            return replace(record, hangs=_hang_ended(record.hangs, str(event["name"]), time_us))
        case journal.STOPPING:
            return replace(record, stopping=True)
        case journal.LOST:
            return replace(record, lost_us=time_us)
        case journal.ENDED if record.end is None:
            return replace(record, end=_end(event, time_us))
    return record


def _replica_status(status: ReplicaStatus, event: Mapping[str, Any], *, stopping: bool) -> ReplicaStatus:
    if event["event"] == journal.REPLICA_STARTED:
        again = status.state is not ReplicaState.WAITING
        return ReplicaStatus(state=ReplicaState.RUNNING, restarts=status.restarts + again)
    code, signal = _number(event["code"]), _number(event["signal"])
    if code == 0:
        state = ReplicaState.DONE
    elif stopping:
        state = ReplicaState.STOPPED
    else:
        state = ReplicaState.EXITED if signal is None else ReplicaState.KILLED
    return replace(status, state=state, exit_code=code, signal=signal)


def _restart(event: Mapping[str, Any], time_us: int) -> RestartRecord:
    return RestartRecord(
        time_us=time_us,
        name=str(event["name"]),
        exit_code=_number(event["code"]),
        signal=_number(event["signal"]),
        hung=event["hung"] is True,
        after_loss_of=str(event["after_loss_of"]),
        whole_gang=event["event"] == journal.GANG_RESTARTED,
        step_before=_number(event["step_before"]),
        step_after=None,
    )


def _resumed(restarts: tuple[RestartRecord, ...], name: str, step: int) -> tuple[RestartRecord, ...]:
    """The restarts with the first step after the last one of this replica."""
    for index in reversed(range(len(restarts))):
        if restarts[index].name == name:
            return (*restarts[:index], replace(restarts[index], step_after=step), *restarts[index + 1 :])
    return restarts


def _hang(event: Mapping[str, Any], time_us: int) -> HangRecord:
    report = HangReport(dict(event))
    return HangRecord(
        time_us=time_us,
        name=str(report.name)[:_NAME_MAX],
        kind=HangKind(report.kind),
        seconds=float(report.seconds),
        pid=_integer(report.pid),
        working=tuple(str(name)[:_NAME_MAX] for name in report.working),
        suspect=str(report.suspect)[:_NAME_MAX],
        restart=report.restart is True,
        sentence=_text(report.sentence),
        stack=_text("\n".join(report.stack_lines)),
    )


def _text(value: str) -> str:
    return value[:_TEXT_MAX].encode(errors="backslashreplace").decode()


def _hang_ended(hangs: tuple[HangRecord, ...], name: str, time_us: int) -> tuple[HangRecord, ...]:
    """The hangs after that of this replica, if there is one, has ended."""
    return tuple(
        replace(each, ended_us=time_us) if each.name == name and each.ended_us is None else each for each in hangs
    )


def _end(event: Mapping[str, Any], time_us: int) -> AttemptEnd:
    outcome = JobState(event["outcome"])
    if outcome not in TERMINAL_STATES:
        raise ValueError(outcome)
    failure = event["failure"]
    return AttemptEnd(time_us=time_us, outcome=outcome, failure=None if failure is None else Failure.parse(failure))


def _number(value: object) -> int | None:
    return None if value is None else _integer(value)


def _integer(value: object) -> int:
    """An integer that a column and JSON can hold. Raises `ValueError` for any other."""
    number = int(str(value))
    if not -(2**63) <= number < 2**63:
        raise ValueError(number)
    return number
