"""The processes that serve versions, on this machine: started, watched, drained and killed.

Each runs below a guard of its own (`node.guard`), which ends everything that a model may have started as soon as the
host ends, is killed, or the server is gone. Nothing of a host outlives the server; the next one starts them anew.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import IO, Any

import orjson

from trainshed.config import Home
from trainshed.engines.guarded import guarded, how_it_ended, last_words
from trainshed.errors import EngineDown
from trainshed.node import reap
from trainshed.serving.frames import ANSWER_HEAD, Kind, pack_request

LOG = logging.getLogger("trainshed.engines.hosts")

FORMAT = 1
_KILL_S = 3.0  #: that a guard has to end everything, before it is killed itself
_SOCKET_PATH = 100  #: bytes; the kernel takes 107
_LINE = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """One host of one version, with nothing left to decide."""

    project: str
    model: str
    version: str
    instance: int
    python: Path  #: the runtime's interpreter
    model_dir: Path
    loader: str
    prediction_class: str = ""
    site: str = ""  #: where the version's own packages are installed
    explanation: Mapping[str, Any] = field(default_factory=dict)
    threads: int
    memory_bytes: int = 0  #: 0: as much as there is
    max_batch: int = 32
    queue_limit: int = 256
    body_limit: int


class HostPhase(StrEnum):
    STARTING = "STARTING"
    READY = "READY"
    ENDED = "ENDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSighting:
    """What is known of a host."""

    phase: HostPhase
    socket: Path
    pid: int  #: of its guard
    started_s: float  #: by the monotonic clock
    ready: Mapping[str, Any] = field(default_factory=dict)  #: what it said of itself when it was ready
    message: str = ""  #: why it ended


def render(spec: HostSpec, socket_path: Path) -> dict[str, Any]:
    """What a host works by."""
    return {
        "format": FORMAT,
        "project": spec.project,
        "model": spec.model,
        "version": spec.version,
        "instance": spec.instance,
        "socket": str(socket_path),
        "model_dir": str(spec.model_dir),
        "loader": spec.loader,
        "prediction_class": spec.prediction_class,
        "site": spec.site,
        "explanation": dict(spec.explanation),
        "threads": spec.threads,
        "memory_bytes": spec.memory_bytes,
        "max_batch": spec.max_batch,
        "queue_limit": spec.queue_limit,
        "body_limit": spec.body_limit,
    }


class LocalHosts:
    """Keys name single starts of hosts; one that is unknown or ended is left alone. Safe to use from many threads."""

    def __init__(self, home: Home, *, ship: Callable[[], Path]) -> None:
        self._home = home
        self._ship = ship
        self._numbers = count(1)
        self._guard = threading.Lock()
        self._hosts: dict[str, _Host] = {}
        self._sockets = home.hosts
        self._watch = _Watch()

    def begin(self, news: Callable[[], None]) -> None:
        """Clear what an earlier server left. `news` is called, by a thread of ours, whenever a sighting changes."""
        self._sockets = _socket_folder(self._home.hosts)
        self._watch.begin(news)

    def start(self, spec: HostSpec) -> str:
        """Start a host and return its key at once; `look` tells when it is ready. `EngineDown` if it can't be."""
        key = f"{spec.project}/{spec.model}/{spec.version}/{spec.instance}#{next(self._numbers)}"
        path = self._sockets / f"{key.rpartition('#')[2]}.sock"
        try:
            folder = self.folder(spec.project, spec.model, spec.version)
            work = folder / "work"
            work.mkdir(mode=0o700, parents=True, exist_ok=True)
            written = folder / f"{spec.instance}.json"
            written.write_bytes(orjson.dumps(render(spec, path)))
            process = guarded(spec.python, self._ship(), ("host", str(written)), log=log_of(folder, spec), work=work)
        except OSError as exc:
            raise EngineDown(
                f"A host of version {spec.version} of model {spec.model} can't be started: "
                f"{exc.filename or self._home.hosts}: {exc.strerror}."
            ) from exc
        host = _Host(process, log_of(folder, spec), path)
        with self._guard:
            self._hosts[key] = host
        self._watch.add(host)
        LOG.info("host.started key=%s pid=%d loader=%s", key, process.pid, spec.loader)
        return key

    def folder(self, project: str, model: str, version: str) -> Path:
        return self._home.hosts / project / model / version

    def look(self, key: str) -> HostSighting | None:
        """None if it was forgotten."""
        host = self._hosts.get(key)
        return host.sighting if host is not None else None

    def processes(self, key: str) -> tuple[int, int]:
        """The pid of the host itself, 0 if there is none, and the bytes that it and all it started hold alone."""
        host = self._hosts.get(key)
        pids = reap.descendants(host.sighting.pid) if host is not None else []
        return pids[0] if pids else 0, sum(map(_resident, pids))

    def drain(self, key: str) -> None:
        """Let it answer what it has and end. Returns at once."""
        if host := self._hosts.get(key):
            host.send(signal.SIGTERM)

    def kill(self, key: str, *, reason: str = "") -> None:
        """End it, and all that it started, now. Returns at once. `reason` is what its sighting will say."""
        if host := self._hosts.get(key):
            host.end(reason)
            self._watch.hurry()

    def forget(self, key: str) -> None:
        """Drop a host that ended."""
        with self._guard:
            host = self._hosts.get(key)
            if host is not None and host.sighting.phase is HostPhase.ENDED:
                del self._hosts[key]

    def discard(self, key: str) -> None:
        """End it now, and know nothing of it any more."""
        self.kill(key)
        with self._guard:
            self._hosts.pop(key, None)

    def compare(self, key: str, reference: Path, *, timeout_s: float) -> Mapping[str, Any]:
        """How far the host's answers are from those in the file: `difference`, `within`, `text`. `EngineDown` if it
        can't tell.
        """
        status, body = self.ask(key, Kind.PARITY, str(reference).encode(), timeout_s=timeout_s)
        if status != 200:
            raise EngineDown(body.decode(errors="replace"))
        return {str(name): value for name, value in orjson.loads(body).items()}

    def ask(self, key: str, kind: Kind, body: bytes, *, timeout_s: float) -> tuple[int, bytes]:
        """Send one request to a host and wait. `EngineDown` if it does not answer."""
        sighting = self.look(key)
        if sighting is None:
            raise EngineDown("The host is gone.")
        try:
            with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
                connection.settimeout(timeout_s)
                connection.connect(str(sighting.socket))
                connection.sendall(pack_request(1, kind, body))
                with connection.makefile("rb") as file:
                    return _answer(file)
        except OSError as exc:
            raise EngineDown(f"The host does not answer: {exc}.") from exc

    def close(self) -> None:
        """End all of them; returns when none is left."""
        with self._guard:
            hosts = list(self._hosts.values())
        for host in hosts:
            host.end("The server stops.")
        self._watch.close()


def log_of(folder: Path, spec: HostSpec) -> Path:
    return folder / f"{spec.instance}.log"


class _Host:
    """One start of a host. Its sighting is changed by the watching thread alone."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, path: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._log = log
        self._life = process.stdin
        self.output = process.stdout
        os.set_blocking(self.output.fileno(), False)
        self.pidfd = os.pidfd_open(process.pid)
        self._said = b""
        self._lock = threading.Lock()
        self._reason = ""
        self.kill_at = float("inf")
        self.ended = threading.Event()
        self.sighting = HostSighting(phase=HostPhase.STARTING, socket=path, pid=process.pid, started_s=time.monotonic())

    def send(self, number: int) -> None:
        with self._lock, contextlib.suppress(ProcessLookupError):
            if not self.ended.is_set():
                signal.pidfd_send_signal(self.pidfd, number)

    def end(self, reason: str) -> None:
        with self._lock:
            if not self._life.closed:
                self._reason = reason
                self._life.close()
                self.kill_at = time.monotonic() + _KILL_S

    def kill_guard(self) -> None:
        """Its guard did not do its work."""
        for pid in (*reap.descendants(self.sighting.pid), self.sighting.pid):
            reap.send(pid, signal.SIGKILL)
        self.kill_at = float("inf")

    def read(self) -> bool:
        """Take what it says of itself. False if there is nothing more to come."""
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self.output.fileno(), 1 << 16):
                self._said = (self._said + piece)[:_LINE]
            self._understand()
            return False
        return not self._understand()

    def _understand(self) -> bool:
        line, end, _ = self._said.partition(b"\n")
        if not end:
            return False
        try:
            said = orjson.loads(line)
            if said["event"] == "ready":
                self.sighting = replace(self.sighting, phase=HostPhase.READY, ready=said)
            else:
                self._reason = self._reason or str(said["message"])
        except (ValueError, LookupError, TypeError) as exc:
            self._reason = f"The host said what makes no sense: {exc}."
            self._life.close()
        return True

    def collect(self) -> None:
        """After its end."""
        status = self._process.wait()
        if self.sighting.phase is HostPhase.STARTING and not self._reason:
            self.read()
        message = self._reason or f"The host {how_it_ended(status)}. {last_words(self._log)}".strip()
        with self._lock:
            self.sighting = replace(self.sighting, phase=HostPhase.ENDED, message=message)
            self.ended.set()
            os.close(self.pidfd)
        self.sighting.socket.unlink(missing_ok=True)
        self.output.close()
        self._life.close()


class _Watch:
    """The thread that hears of everything: ready lines and ends."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._nudge_r, self._nudge_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._selector.register(self._nudge_r, selectors.EVENT_READ)
        self._added: list[_Host] = []
        self._hosts: set[_Host] = set()
        self._closing = False
        self._news: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="hosts", daemon=True)

    def begin(self, news: Callable[[], None]) -> None:
        self._news = news
        self._thread.start()

    def add(self, host: _Host) -> None:
        self._added.append(host)
        self.hurry()

    def hurry(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._nudge_w, b"x")

    def close(self) -> None:
        """Returns when all that were told to end have ended."""
        self._closing = True
        self.hurry()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._closing or self._hosts or self._added:
            late = min((host.kill_at for host in self._hosts), default=float("inf")) - time.monotonic()
            events = self._selector.select(None if late == float("inf") else max(0.0, late))
            try:
                self._take(events)
            except Exception:  # the others must still be watched
                LOG.exception("host.watch_failed")

    def _take(self, events: list[tuple[selectors.SelectorKey, int]]) -> None:
        while self._added:
            self._register(self._added.pop())
        changed = False
        for key, _ in events:
            if key.data is None:
                os.read(self._nudge_r, 1024)
                continue
            host, ended = key.data
            changed = True
            if ended:
                self._collect(host)
            elif host in self._hosts and not host.read():
                self._selector.unregister(host.output)
        for host in self._hosts:
            if host.kill_at <= time.monotonic():
                host.kill_guard()
        if changed:
            self._news()

    def _register(self, host: _Host) -> None:
        self._hosts.add(host)
        self._selector.register(host.output, selectors.EVENT_READ, (host, False))
        self._selector.register(host.pidfd, selectors.EVENT_READ, (host, True))

    def _collect(self, host: _Host) -> None:
        self._hosts.discard(host)
        self._selector.unregister(host.pidfd)
        with contextlib.suppress(KeyError):
            self._selector.unregister(host.output)
        host.collect()


def _socket_folder(hosts: Path) -> Path:
    """A folder for sockets, empty. Where the state folder's own path is too long for them, it is one in /tmp."""
    hosts.mkdir(mode=0o700, parents=True, exist_ok=True)
    link = hosts / "sockets"
    if link.is_symlink():
        shutil.rmtree(link.readlink(), ignore_errors=True)
        link.unlink()
    elif link.is_dir():
        shutil.rmtree(link)
    if len(os.fsencode(link / "1234567.sock")) <= _SOCKET_PATH:
        link.mkdir(mode=0o700)
        return link
    short = Path(tempfile.mkdtemp(prefix="trainshed-"))
    link.symlink_to(short)
    return short


def _answer(file: IO[bytes]) -> tuple[int, bytes]:
    head = file.read(ANSWER_HEAD.size)
    if len(head) < ANSWER_HEAD.size:
        raise ConnectionError("it closed the connection")
    length, _, status = ANSWER_HEAD.unpack(head)
    body = file.read(length)
    if len(body) < length:
        raise ConnectionError("it closed the connection")
    return status, body


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            _, resident, shared = file.read().split()[:3]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
