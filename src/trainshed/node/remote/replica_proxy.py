"""A stand-in: the local process that stands for one replica of a gang that runs elsewhere.

To its supervisor it is the replica: it prints what the replica prints, passes signals on, and ends as the replica ends.
It speaks to the link, the process beside the server that knows the cluster, by a socket. While it is connected, the
replica is its own; when it is gone, the replica is killed. A link that is away is waited for: what the replica printed
meanwhile is kept on its node, and is read from where this process left off.

Where the members of the gang listen is settled among the stand-ins, by files in the attempt's folder: each writes down
what its replica's node chose, and passes all of them on when all are there.

A host of a version is stood for in the same way, as a gang of one. Its stdout is for what it says of itself alone.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import select
import signal
import socket
import sys
import time

from ..process.exit_status import NODE_LOST, STARTED
from ..process.tree import signal_pipe
from . import streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

FORWARDED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_AGAIN_S = 0.3  #: between two tries to reach the link
_LOOK_S = 0.05  #: between two looks for the addresses of the others
_PIECE = 1 << 18
_SEND_S = 30.0


def main(folder: str, name: str, incarnation: str) -> int:
    """Stand for the replica `name` of the attempt in `folder` until it ends. Does not return if that was by a signal.

    `incarnation` is `ROUND.N`: the Nth copy of this replica since the gang was started for the ROUNDth time.
    """
    with open(os.path.join(folder, "spec.json"), "rb") as file:
        spec = json.loads(file.read().decode())
    signals = signal_pipe(FORWARDED_SIGNALS)
    return ReplicaProxy(folder, spec, name, incarnation).run(signals)


class ReplicaProxy:
    """One replica, seen from here."""

    def __init__(self, folder: str, spec: dict[str, Any], name: str, incarnation: str) -> None:
        self._folder = folder
        self._spec = spec
        self._name = name
        self._incarnation = incarnation
        self._book = GangAddresses(os.path.join(folder, "addresses", incarnation.split(".")[0]))
        self._samples = os.path.join(folder, "samples.jsonl")
        self._hosts = bool(spec["cluster"].get("hosts"))  # what it stands for is the host of a version
        self._runs = False  # the replica was started
        self._frames = streams.StreamDecoder()
        self._link: Optional[socket.socket] = None
        self._received = b""
        self._waiting_for = 0  # bytes of the stream that belong to the last message
        self._unsent: list[int] = []  # signals
        self._asks = False  # the replica's node waits for the addresses of all
        self._told = False  # they were sent by this connection
        self._status: Optional[int] = None

    def run(self, signals: int) -> int:
        again_at = 0.0
        while self._status is None:
            if self._link is None and time.monotonic() >= again_at:
                again_at = time.monotonic() + _AGAIN_S
                self._connect()
            self._step(signals)
        return self._status

    def _step(self, signals: int) -> None:
        watched = [signals] if self._link is None else [signals, self._link.fileno()]
        wait_s = _AGAIN_S if self._link is None else _LOOK_S if self._asks and not self._told else None
        ready = select.select(watched, [], [], wait_s)[0]
        if signals in ready:
            self._on_signals(os.read(signals, 4096))
        if self._link is not None and self._link.fileno() in ready:
            self._receive(self._link)
        if self._asks and not self._told:
            self._tell_addresses()

    # -- the link

    def _connect(self) -> None:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(_SEND_S)
        try:
            link.connect(self._spec["cluster"]["socket"])
        except OSError:
            link.close()  # no link is there: its server is being started again
            return
        self._link, self._received, self._waiting_for, self._told = link, b"", 0, False
        self._frames.again()
        self._send(self._request())
        for number in self._unsent:
            self._send({"do": "signal", "number": number})
        self._unsent = []

    def _request(self) -> dict[str, Any]:
        cluster = self._spec["cluster"]
        each = next(each for each in self._spec["replicas"] if each["name"] == self._name)
        known = self._book.of(self._name)
        return {
            "do": "start",
            "gang": cluster["gang"],
            "bundles": cluster["bundles"],
            "strategy": cluster["strategy"],
            "replica": self._name,
            "incarnation": self._incarnation,
            "host": known[0] if known else "",
            "offset": self._frames.offset,
            "lease_s": cluster["lease_s"],
            "apart": cluster.get("apart", ""),
            "order": {
                "gang": cluster["gang"],
                "replica": self._name,
                "port": int(known[1]) if known else 0,
                "module": self._spec["module"],
                "args": self._spec["args"],
                "env": dict(self._spec["env"], **each["env"]),
                "runtime": cluster["runtime"],
                "packages": cluster["packages"],
                "files": cluster.get("files", []),
                "kit": cluster["kit"],
                "container": each.get("container"),
                "containers": self._spec.get("containers"),
            },
        }

    def _send(self, message: dict[str, Any]) -> None:
        if self._link is None:
            return
        try:
            self._link.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self._leave()

    def _leave(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _receive(self, link: socket.socket) -> None:
        try:
            data = link.recv(_PIECE)
        except OSError:
            data = b""
        if not data:
            self._leave()
            return
        self._received += data
        while self._link is not None and self._status is None and self._take():
            pass

    def _take(self) -> bool:
        """Do what the next message says. False: it is not whole yet."""
        if self._waiting_for:
            data = self._received[: self._waiting_for]
            self._received = self._received[len(data) :]
            self._waiting_for -= len(data)
            for kind, payload in self._frames.feed(data):
                self._on_frame(kind, payload)
            return bool(data)
        line, end, rest = self._received.partition(b"\n")
        if not end:
            return False
        self._received = rest
        message = json.loads(line.decode())
        if "bytes" in message:
            self._waiting_for = message["bytes"]
        elif "say" in message:
            _write(self._talk, message["say"].encode() + b"\n")
        elif "lost" in message:
            self._lose(message["lost"], NODE_LOST if message["node"] else int(signal.SIGKILL))
        elif "error" in message:
            _write(2, message["error"].encode() + b"\n")
            self._status = 1
        return True

    # -- the replica

    def _on_frame(self, kind: int, payload: bytes) -> None:
        if kind == streams.OUT:
            _write(1 if self._runs else self._talk, payload)
        elif kind == streams.ERR:
            _write(2, payload)
        elif kind == streams.SAMPLE:
            _append(self._samples, payload, alone=self._hosts)
        elif kind == streams.ADDRESS:
            self._on_address(json.loads(payload.decode()))
        elif kind == streams.STARTED:
            self._asks, self._runs = False, True
            _tell_started(self._folder)
        elif kind == streams.EXIT:
            end = json.loads(payload.decode())
            if end["signal"] is not None:
                exit_by_signal(end["signal"])
            self._status = end["code"]

    def _on_address(self, address: dict[str, Any]) -> None:
        known = self._book.of(self._name)
        found = (address["host"], str(address["port"]))
        if known is not None and known != found:
            self._lose(
                "%s is at %s:%s now, and the others know another address of it." % (self._name, *found), NODE_LOST
            )
        self._book.enter(self._name, *found)
        self._asks = True

    def _tell_addresses(self) -> None:
        """Pass on where all members of the gang listen, if all have said so."""
        addresses = {each["name"]: self._book.of(each["name"]) for each in self._spec["replicas"]}
        if self._link is not None and all(addresses.values()):
            self._told = True
            self._send({"do": "addresses", "addresses": addresses})

    @property
    def _talk(self) -> int:
        """Where it goes what is said before the replica says something itself."""
        return 2 if self._hosts else 1

    def _lose(self, why: str, number: int) -> None:
        _write(2, why.encode() + b"\n")
        if self._hosts:
            _write(1, json.dumps({"event": "failed", "message": why}).encode() + b"\n")
        exit_by_signal(number)

    def _on_signals(self, numbers: bytes) -> None:
        for number in numbers:
            if self._frames.offset == 0:
                exit_by_signal(number)  # nothing of the replica is there that could hear it
            elif self._link is None:
                self._unsent.append(number)
            else:
                self._send({"do": "signal", "number": number})


class GangAddresses:
    """Where the members of a gang listen, since it was last started: one file a member."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def of(self, name: str) -> Optional[tuple[str, str]]:
        """Host and port; None if they are not known yet."""
        try:
            with open(os.path.join(self._folder, name), encoding="utf-8") as file:
                host, port = file.read().split()
        except FileNotFoundError:
            return None
        return host, port

    def enter(self, name: str, host: str, port: str) -> None:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        path = os.path.join(self._folder, name)
        draft = path + ".new"
        with open(draft, "w", encoding="utf-8") as file:
            file.write("%s %s\n" % (host, port))
        os.rename(draft, path)


def _tell_started(folder: str) -> None:
    """Let the supervisor know that the replica runs."""
    try:
        control = os.open(os.path.join(folder, "control"), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as exc:
        if exc.errno not in (errno.ENOENT, errno.ENXIO):
            raise
        return  # there is none, or it has ended; then so do we
    try:
        os.set_blocking(control, True)
        os.write(control, STARTED.encode() + b"\n")
    finally:
        os.close(control)


def exit_by_signal(number: int) -> None:
    """End by this signal, as the replica did. Never returns."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.set_wakeup_fd(-1)
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    time.sleep(1)
    os._exit(128 + number)  # a signal that does not end a process


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _append(path: str, lines: bytes, alone: bool) -> None:
    """All at once: the stand-ins of a gang share the file. A full disk costs the lines.

    `alone`: in the place of those before. A host may live for years, and nobody asks what it was like last year.
    """
    how = os.O_TRUNC if alone else os.O_APPEND
    fd = os.open(path, os.O_WRONLY | how | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(fd, lines)
    except OSError as exc:
        sys.stderr.write("A sample was lost: %s.\n" % exc.strerror)
    finally:
        os.close(fd)
