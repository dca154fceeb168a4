"""The engine that runs gangs on this machine, each under a supervisor that does not depend on the server."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from trainshed.attempts.journal import AttemptRecord, fold, read_lines
from trainshed.config import Home
from trainshed.domain.jobs.reconcile import AttemptPhase, ObservedAttempt, Slots
from trainshed.engines.base import AttemptSpec, GangRequest, Outage, Pending, Replica, Reserved
from trainshed.engines.local.orphans import kill_orphans
from trainshed.engines.local.sandbox import Sandbox
from trainshed.engines.local.warm import OFF, WarmProcesses
from trainshed.engines.shipping import ship
from trainshed.errors import EngineUnavailableError
from trainshed.node import crashpoints
from trainshed.node.containers.replica import remove_containers
from trainshed.node.crashpoints import crashpoint
from trainshed.node.files import write_file
from trainshed.node.process import open_files
from trainshed.node.process.environment import build_environment, inherited_environment, user_environment
from trainshed.node.process.tree import stat_fields

LOG = logging.getLogger("trainshed.engines.local.engine")

FORMAT = 1
SLOTS_PER_CORE = 4
_START_TIMEOUT_S = 60.0


class LocalEngine:
    """Starts supervisors and reads their files. Holds no state that another engine on the same folder would need."""

    def __init__(
        self,
        home: Home,
        uv: Path,
        warm: Mapping[Path, tuple[str, ...]] | None = None,
        *,
        slots: int = 0,
        passed: Collection[str] = (),
        single_replica_share: float = 0.0,
        sandbox: Sandbox | None = None,
        warm_idle_s: float = 0.0,
    ) -> None:
        """`warm` has the modules to preload for jobs of an interpreter. None: every job starts cold.

        A warm process that starts nothing for `warm_idle_s` is released. 0: it stays.

        `slots` is the maximum number of replicas that run at once. 0: four for each core. `single_replica_share` of
        them are kept for jobs of one replica. `passed` are variables of the server that user code gets besides those on
        the list. Without `sandbox`, replicas run as the server does.
        """
        self._home = home
        self._uv = uv
        self._slots = slots or SLOTS_PER_CORE * (os.cpu_count() or 1)
        self._passed = passed
        self._kept = int(self._slots * single_replica_share)
        self._sandbox = sandbox
        self.warm = WarmProcesses(home, modules=warm or {}, ship=self.ship, passed=passed, idle_s=warm_idle_s)
        self._node: Path | None = None
        self._views: dict[Path, _JournalView] = {}
        self._lock = threading.Lock()

    def reserve(
        self, gang: GangRequest, others: Sequence[GangRequest], ahead: Sequence[GangRequest] = ()
    ) -> Reserved | Pending:
        """A gang starts as a whole or waits. Slots of the others and of those ahead are taken; nothing is recorded."""
        slots = self._slots_of((*others, *ahead))
        return Reserved() if slots.fits(len(gang.machines)) else Pending(full=slots.free == 0)

    def pending_reason(self, gang: GangRequest, others: Sequence[GangRequest]) -> str:
        slots = self._slots_of(others)
        reason = f"{slots.free} of this machine's {slots.slots} places are free"
        if len(gang.machines) > 1 and slots.free_for_gangs < slots.free:
            reason += f", {slots.free - slots.free_for_gangs} of them only for jobs of one replica"
        return reason

    def _slots_of(self, others: Sequence[GangRequest]) -> Slots:
        sizes = [len(each.machines) for each in others]
        return Slots(slots=self._slots, taken=sum(sizes), singles=sizes.count(1), kept=self._kept)

    def reservations(self) -> Collection[Path]:
        """Empty: the rows of jobs are the only record."""
        return ()

    def release(self, attempt: Path) -> None:
        """Nothing to do: the slots of an ended job are free."""

    def outage(self) -> Outage | None:
        """This machine always responds."""
        return None

    def launch(self, spec: AttemptSpec) -> None:
        """Write the spec and start the supervisor. Blocks until it is ready. Idempotent."""
        self.supervise(spec)

    def supervise(self, attempt: AttemptSpec, *, cluster: Mapping[str, Any] | None = None) -> None:
        """As `launch`. With `cluster`, the supervisor starts proxies of remote replicas."""
        try:
            if _file_size(attempt.folder / "journal.jsonl"):
                return
            attempt.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            spec = render(attempt, uv=self._uv, cluster=cluster)
            if self._sandbox is not None and attempt.containers is None and cluster is None:
                spec["sandbox"] = self._sandbox.render(attempt)
            else:
                spec["isolation"] = _isolation(attempt, cluster)
            write_file(attempt.folder / "spec.json", orjson.dumps(spec, default=str))
            crashpoint("attempt.spec.written")
            cold_reason = self.warm.launch(attempt) if attempt.warm else OFF
            if cold_reason is None:
                return
            run = self.ship() / "run.py"
            process = subprocess.run(
                [attempt.python, "-I", "-S", run, "supervise", attempt.folder, cold_reason],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
                timeout=_START_TIMEOUT_S,
                cwd="/",
                env={
                    **self._supervisor_environment(attempt, cluster),
                    **open_files.variables(),
                    **crashpoints.variables(),
                },
                check=False,
            )
        except OSError as exc:
            raise EngineUnavailableError(
                f"The supervisor of job {attempt.job} can't be started: "
                f"{exc.filename or attempt.folder}: {exc.strerror}."
            ) from exc
        except subprocess.TimeoutExpired as exc:
            raise EngineUnavailableError(
                f"The supervisor of job {attempt.job} was not ready within {_START_TIMEOUT_S:g} s."
            ) from exc
        if process.returncode != 0:
            reason = process.stderr.decode(errors="replace").strip() or f"exit status {process.returncode}"
            raise EngineUnavailableError(f"The supervisor of job {attempt.job} can't be started: {reason}")

    def _supervisor_environment(self, attempt: AttemptSpec, cluster: Mapping[str, Any] | None) -> dict[str, str]:
        """That of its replicas and of builds, unless these run elsewhere: container tools need more."""
        if attempt.containers is not None or cluster is not None:
            return inherited_environment()
        return build_environment(self._passed)

    def user_environment(self) -> dict[str, str]:
        """What user code gets of the server's environment."""
        return user_environment(self._passed)

    def build_environment(self) -> dict[str, str]:
        """What the build of a package gets of the server's environment."""
        return build_environment(self._passed)

    def observe(self, attempts: Collection[Path]) -> Mapping[Path, ObservedAttempt]:
        """Observe the attempts' folders. Each journal line is read once."""
        with self._lock:
            if len(self._views) > 2 * len(attempts) + 1000:
                wanted = set(attempts)
                self._views = {path: view for path, view in self._views.items() if path in wanted}
            for path in attempts:
                before = self._views.get(path, _JournalView())
                try:
                    self._views[path] = self._with_uris(_observe(path, before))
                except (
                    OSError,
                    EngineUnavailableError,
                ) as exc:  # it stays as it was; the others are not delayed
                    LOG.warning("attempt.unreadable folder=%s reason=%s", path, exc)
                    self._views[path] = before
                if self._views[path].status.phase is AttemptPhase.LOST and before.status.phase is not AttemptPhase.LOST:
                    self._views[path] = _end_lost(path, self._views[path])
                    if self._sandbox is not None:
                        self._sandbox.sweep()
            return {path: self._views[path].status for path in attempts}

    def _with_uris(self, view: _JournalView) -> _JournalView:
        """Write paths of buckets in a replica's last output as the gs:// URIs that the user gave."""
        failure, root = view.status.failure, f"{self._home.buckets}/"
        if failure is None or root not in failure.output:
            return view
        shown = replace(failure, output=failure.output.replace(root, "gs://"))
        return replace(view, status=replace(view.status, failure=shown))

    def forget(self, attempts: Collection[Path]) -> None:
        """Forget what was read in these folders: other attempts may have their paths next."""
        with self._lock:
            for path in attempts:
                self._views.pop(path, None)

    def cancel(self, attempt: Path) -> None:
        """Tell the attempt's supervisor, if there is one, to end it."""
        _send_command(attempt, b"cancel\n")

    def kill(self, attempt: Path, replica: str, number: int) -> None:
        """Tell the attempt's supervisor, if there is one, to send a signal to the first process of a replica."""
        _send_command(attempt, f"kill {replica} {number}\n".encode())

    def ship(self) -> Path:
        """The folder with the shipped code, for Pythons without Trainshed. Written once for each version of it."""
        if self._node is None or not self._node.is_dir():
            self._node = ship(self._home.node)
        return self._node


def _end_lost(attempt: Path, view: _JournalView) -> _JournalView:
    """Kill the processes and remove the containers of an attempt whose supervisor and reaper are both gone."""
    orphans = kill_orphans(attempt)
    reason = remove_containers(str(attempt))
    if reason is not None:
        LOG.warning("attempt.containers_left folder=%s reason=%s", attempt, reason)
    return replace(view, status=replace(view.status, orphans=orphans))


def _send_command(attempt: Path, command: bytes) -> None:
    """Write a command to the supervisor of the attempt. Does nothing if it has ended or was never started."""
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
        return  # full of earlier commands, or ended since
    finally:
        os.close(fd)


def _isolation(attempt: AttemptSpec, cluster: Mapping[str, Any] | None) -> str:
    """A line for people about replicas that are not in the sandbox of this server."""
    if attempt.containers is not None:
        return "Its sandbox is that of its containers, which have their machine's network."
    if cluster is not None:
        return "It has no sandbox: on nodes of the cluster it has the rights of the account that Ray runs as."
    return ""


def render(attempt: AttemptSpec, *, uv: Path, cluster: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The spec file of a supervisor."""
    spec = {
        "format": FORMAT,
        "project": attempt.project,
        "job": attempt.job,
        "attempt": attempt.attempt,
        "python": str(attempt.python),
        "uv": str(uv),
        "module": attempt.module,
        "args": list(attempt.args),
        "packages": [
            {"uri": package.uri, "path": str(package.path), "sha256": package.sha256} for package in attempt.packages
        ],
        "site": str(attempt.site),
        "replicas": [_render_replica(each) for each in attempt.replicas],
        "containers": attempt.containers and asdict(attempt.containers),
        "env": dict(attempt.env),
        "grace_s": attempt.grace_s,
        "max_running_s": attempt.max_running_s,
        "log_limit_bytes": attempt.log_limit_bytes,
        "backoff_factor": attempt.backoff_factor,
        "hang_timeout_s": attempt.hang_timeout_s,
        "hang_restart": attempt.hang_restart,
        "py_spy": _find_py_spy(),
    }
    return spec if cluster is None else spec | {"cluster": dict(cluster)}


@cache
def _find_py_spy() -> str:
    """The py-spy of this installation, or the one on the PATH. Empty if there is none: stacks are then not known."""
    bundled = Path(sys.executable).with_name("py-spy")
    return str(bundled) if bundled.is_file() else shutil.which("py-spy") or ""


def _render_replica(replica: Replica) -> dict[str, Any]:
    fields = {
        "name": replica.name,
        "type": replica.type,
        "index": replica.index,
        "primary": replica.primary,
        "env": dict(replica.env),
    }
    return fields | ({"container": asdict(replica.container)} if replica.container else {})


_EMPTY, _ABSENT = AttemptRecord(), ObservedAttempt(phase=AttemptPhase.ABSENT)


@dataclass(frozen=True, slots=True)
class _JournalView:
    """How far a journal was read, what it says, and the status that follows."""

    offset: int = 0
    record: AttemptRecord = _EMPTY
    status: ObservedAttempt = _ABSENT


def _observe(attempt: Path, before: _JournalView) -> _JournalView:
    if before.status.phase in (AttemptPhase.ENDED, AttemptPhase.LOST):
        return before
    # The lock first: if it is free, the journal is final. A trainer can delete the lock's file, but not
    # the process that holds it.
    alive = _is_locked(attempt / "lock") or _is_alive(before.record.supervisor)
    size = _file_size(attempt / "journal.jsonl")
    record, offset = before.record, before.offset
    if size != offset:
        lines, offset = read_lines(attempt, offset)
        record = fold(record, lines)
    return _JournalView(offset, record, _status(record, alive=alive, started=size > 0))


def _status(record: AttemptRecord, *, alive: bool, started: bool) -> ObservedAttempt:
    if record.end is not None:
        return ObservedAttempt(
            phase=AttemptPhase.ENDED,
            started_us=record.running_us,
            ended_us=record.end.time_us,
            outcome=record.end.outcome,
            failure=record.end.failure,
        )
    if not alive:  # the reaper still lives when it writes that the attempt is lost
        phase = AttemptPhase.LOST if started else AttemptPhase.ABSENT
    else:
        phase = AttemptPhase.PREPARING if record.running_us is None else AttemptPhase.RUNNING
    return ObservedAttempt(phase=phase, started_us=record.running_us, ended_us=record.lost_us)


def _is_alive(supervisor: tuple[str, int, int] | None) -> bool:
    """Whether this very process lives. Its pid may have been reused since, or the machine rebooted."""
    if supervisor is None:
        return False
    boot, pid, started = supervisor
    fields = stat_fields(pid)
    return bool(fields) and fields[0] != b"Z" and int(fields[19]) == started and boot == _boot_id()


@cache
def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _is_locked(lock: Path) -> bool:
    """Whether a process holds the lock. Only queries it, because taking it could keep a supervisor from starting."""
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as exc:
        if exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            return False
        raise
    try:
        query = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        result = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, query)
        return bool(struct.unpack("hhqqi4x", result)[0] != fcntl.F_UNLCK)
    finally:
        os.close(fd)


def _file_size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0
