"""The engine that runs gangs on this machine: each under a supervisor of its own that lives on without the server."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import stat
import struct
import subprocess
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from trainshed.attempts.journal import read_lines
from trainshed.config import Home
from trainshed.domain.jobs.job import TERMINAL_STATES
from trainshed.domain.jobs.reconcile import AttemptPhase, ObservedAttempt, Slots
from trainshed.engines.base import AttemptSpec, GangRequest, Outage, Pending, Replica, Reserved
from trainshed.engines.local.warm import OFF, WarmProcesses
from trainshed.engines.shipping import ship
from trainshed.errors import EngineUnavailableError
from trainshed.node.containers.replica import remove_containers
from trainshed.node.process.spawn import inherited_environment
from trainshed.node.process.tree import stat_fields

LOG = logging.getLogger("trainshed.engines.local.engine")

FORMAT = 1
SLOTS_PER_CORE = 4
_START_LIMIT_S = 60.0


class LocalEngine:
    """Starts supervisors and reads what they write. Holds nothing that another engine on the same folder would need."""

    def __init__(
        self, home: Home, uv: Path, warm: Mapping[Path, tuple[str, ...]] | None = None, *, slots: int = 0
    ) -> None:
        """`warm`: what is imported beforehand for jobs that run on an interpreter. None: every job starts cold.

        `slots` is how many replicas may run at once. 0: four for each core.
        """
        self._home = home
        self._uv = uv
        self._slots = slots or SLOTS_PER_CORE * (os.cpu_count() or 1)
        self.warm = WarmProcesses(home, modules=warm or {}, ship=self.ship)
        self._node: Path | None = None
        self._views: dict[Path, _View] = {}
        self._guard = threading.Lock()

    def reserve(self, gang: GangRequest, others: Sequence[GangRequest]) -> Reserved | Pending:
        """A gang starts whole or waits whole. What is taken is what the others have: nothing is kept here."""
        return Reserved() if self._room(others).fits(len(gang.machines)) else Pending()

    def pending_reason(self, gang: GangRequest, others: Sequence[GangRequest]) -> str:
        room = self._room(others)
        return f"{room.free} of this machine's {room.slots} places are free"

    def _room(self, others: Sequence[GangRequest]) -> Slots:
        return Slots(slots=self._slots, taken=sum(len(each.machines) for each in others))

    def reservations(self) -> Collection[Path]:
        """None: whose room it is, the rows of jobs say."""
        return ()

    def release(self, attempt: Path) -> None:
        """Nothing to do: the room of a job that ended is free."""

    def outage(self) -> Outage | None:
        """This machine is here."""
        return None

    def launch(self, launch: AttemptSpec) -> None:
        """Write the spec and start the supervisor; returns when it is at work, and was started no more than once."""
        self.supervise(launch)

    def supervise(self, launch: AttemptSpec, *, cluster: Mapping[str, Any] | None = None) -> None:
        """As `launch`. With `cluster`, what the supervisor starts are stand-ins for replicas that run there."""
        try:
            if _size(launch.folder / "journal.jsonl"):
                return
            launch.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            spec = render(launch, uv=self._uv, cluster=cluster)
            _write(launch.folder / "spec.json", orjson.dumps(spec, default=str))
            why_cold = self.warm.launch(launch) if launch.warm else OFF
            if why_cold is None:
                return
            run = self.ship() / "run.py"
            done = subprocess.run(
                [launch.python, "-I", "-S", run, "supervise", launch.folder, why_cold],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
                timeout=_START_LIMIT_S,
                cwd="/",
                env=inherited_environment(),
                check=False,
            )
        except OSError as exc:
            raise EngineUnavailableError(
                f"The supervisor of job {launch.job} can't be started: {exc.filename or launch.folder}: {exc.strerror}."
            ) from exc
        except subprocess.TimeoutExpired as exc:
            raise EngineUnavailableError(
                f"The supervisor of job {launch.job} was not ready within {_START_LIMIT_S:g} s."
            ) from exc
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}"
            raise EngineUnavailableError(f"The supervisor of job {launch.job} can't be started: {said}")

    def observe(self, attempts: Collection[Path]) -> Mapping[Path, ObservedAttempt]:
        """Look at the attempts' folders. What was read before is not read again."""
        with self._guard:
            if len(self._views) > 2 * len(attempts) + 1000:
                asked = set(attempts)
                self._views = {path: view for path, view in self._views.items() if path in asked}
            for path in attempts:
                before = self._views.get(path, _View())
                try:
                    self._views[path] = _look(path, before)
                except (
                    OSError,
                    EngineUnavailableError,
                ) as exc:  # what can't be looked at is as it was; others are not held up
                    LOG.warning("attempt.unreadable folder=%s reason=%s", path, exc)
                    self._views[path] = before
                if (
                    self._views[path].sighting.phase is AttemptPhase.LOST
                    and before.sighting.phase is not AttemptPhase.LOST
                ):
                    _clear_containers(path)
            return {path: self._views[path].sighting for path in attempts}

    def cancel(self, attempt: Path) -> None:
        """Tell the supervisor, if there is one, to end the attempt."""
        _tell(attempt, b"cancel\n")

    def kill(self, attempt: Path, replica: str, number: int) -> None:
        """Tell the supervisor, if there is one, to send a signal to the first process of a replica."""
        _tell(attempt, f"kill {replica} {number}\n".encode())

    def ship(self) -> Path:
        """The folder with the node's code, for Pythons that have no Trainshed. Written once for each version of it."""
        if self._node is None or not self._node.is_dir():
            self._node = ship(self._home.node)
        return self._node


def _clear_containers(attempt: Path) -> None:
    """End the containers of an attempt whose supervisor and guardian were both killed, if it had any."""
    left = remove_containers(str(attempt))
    if left is not None:
        LOG.warning("attempt.containers_left folder=%s reason=%s", attempt, left)


def _tell(attempt: Path, command: bytes) -> None:
    """Write a command to the supervisor of the attempt. One that ended, or never was, is told nothing."""
    try:
        fd = os.open(attempt / "control", os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno in (errno.ENXIO, errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return
        raise EngineUnavailableError(f"{attempt / 'control'} can't be written to: {exc.strerror}.") from exc
    try:
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.write(fd, command)
    except (BlockingIOError, BrokenPipeError):
        return  # full of earlier requests, or ended since
    finally:
        os.close(fd)


def render(launch: AttemptSpec, *, uv: Path, cluster: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The spec that a supervisor works by."""
    spec = {
        "format": FORMAT,
        "project": launch.project,
        "job": launch.job,
        "attempt": launch.attempt,
        "python": str(launch.python),
        "uv": str(uv),
        "module": launch.module,
        "args": list(launch.args),
        "packages": [
            {"uri": package.uri, "path": str(package.path), "sha256": package.sha256} for package in launch.packages
        ],
        "site": str(launch.site),
        "replicas": [_replica(each) for each in launch.replicas],
        "containers": launch.containers and asdict(launch.containers),
        "env": dict(launch.env),
        "grace_s": launch.grace_s,
        "max_running_s": launch.max_running_s,
        "log_limit_bytes": launch.log_limit_bytes,
    }
    return spec if cluster is None else spec | {"cluster": dict(cluster)}


def _replica(each: Replica) -> dict[str, Any]:
    told = {"name": each.name, "type": each.type, "index": each.index, "primary": each.primary, "env": dict(each.env)}
    return told | ({"container": asdict(each.container)} if each.container else {})


_ABSENT = ObservedAttempt(phase=AttemptPhase.ABSENT)
_ENDS = {state.value: state for state in TERMINAL_STATES}


@dataclass(frozen=True, slots=True)
class _View:
    """How far a journal was read, and what it said."""

    offset: int = 0
    sighting: ObservedAttempt = _ABSENT
    supervisor: tuple[str, int, int] | None = None  #: boot, pid and start time: a process, and no other


def _look(attempt: Path, before: _View) -> _View:
    if before.sighting.phase in (AttemptPhase.ENDED, AttemptPhase.LOST):
        return before
    # The lock first: if it was free, then what the journal says now is its last word. A trainer can take the lock's
    # file away, but not the process that holds it.
    alive = _held(attempt / "lock") or _lives(before.supervisor)
    size = _size(attempt / "journal.jsonl")
    view = before if size == before.offset else _read(attempt, before)
    if view.sighting.phase in (AttemptPhase.ENDED, AttemptPhase.LOST):
        return view
    if not alive:
        return replace(view, sighting=replace(view.sighting, phase=AttemptPhase.LOST if size else AttemptPhase.ABSENT))
    if view.sighting.phase is AttemptPhase.ABSENT:
        return replace(view, sighting=ObservedAttempt(phase=AttemptPhase.PREPARING))
    return view


def _read(attempt: Path, before: _View) -> _View:
    lines, offset = read_lines(attempt, before.offset)
    view = replace(before, offset=offset)
    for line in lines:
        view = _follow(view, line)
    return view


def _follow(view: _View, line: bytes) -> _View:
    """What is known after one more event. One that its writer did not live to finish says nothing."""
    try:
        event = json.loads(line)
        if event["event"] == "supervisor_started" and view.supervisor is None:
            identity = (str(event["boot_id"]), int(event["pid"]), int(event["started"]))
            return replace(view, sighting=replace(view.sighting, phase=AttemptPhase.PREPARING), supervisor=identity)
        return replace(view, sighting=_after(view.sighting, event))
    except (ValueError, LookupError, TypeError):
        return view  # a trainer can write here too, but nothing that we would stumble over


def _after(seen: ObservedAttempt, event: dict[str, Any]) -> ObservedAttempt:
    match event["event"]:
        case "ended":
            outcome, message = _ENDS[event["outcome"]], str(event["message"])
            return replace(seen, phase=AttemptPhase.ENDED, ended_us=int(event["t"]), outcome=outcome, message=message)
        case "lost":
            return replace(seen, phase=AttemptPhase.LOST, ended_us=int(event["t"]))
        case "running":
            return replace(seen, phase=AttemptPhase.RUNNING, started_us=int(event["t"]))
    return seen


def _lives(supervisor: tuple[str, int, int] | None) -> bool:
    """Whether that very process is there: its number may have gone to another one since, or since another boot."""
    if supervisor is None:
        return False
    boot, pid, started = supervisor
    fields = stat_fields(pid)
    return bool(fields) and fields[0] != b"Z" and int(fields[19]) == started and boot == _boot_id()


@cache
def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _held(lock: Path) -> bool:
    """Whether a process holds the lock. Only asks: a question must not keep a supervisor from starting."""
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as exc:
        if exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            return False
        raise
    try:
        question = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, question)
        return bool(struct.unpack("hhqqi4x", answer)[0] != fcntl.F_UNLCK)
    finally:
        os.close(fd)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _write(path: Path, content: bytes) -> None:
    draft = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}")
    draft.write_bytes(content)
    draft.rename(path)
