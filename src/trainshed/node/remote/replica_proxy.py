"""Represents one remote replica to its supervisor: forwards output, signals and the exit status.

The proxy talks to the Ray bridge, the process beside the server that knows the cluster, over a socket. The proxy owns
the replica: when the proxy is gone, the replica is killed. If the bridge is unreachable, the proxy waits. The node
keeps the replica's output, and the proxy resumes reading at its offset.

The proxies of a gang exchange addresses through files in the attempt's folder. Each writes the address that its
replica's node chose, and sends all of them to its node once all are known.

A host of a version is represented in the same way, as a gang of one. Its stdout carries only the host's own messages.
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

from ..failure import remove_failure, write_failure
from ..files import write_file
from ..process.exit_status import NODE_LOST, STARTED
from ..process.metric_reports import REPORTS_FILE, append_reports
from ..process.tree import signal_pipe
from . import streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

FORWARDED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_RECONNECT_INTERVAL_S = 0.3  #: between two connection attempts to the bridge
_ADDRESS_POLL_INTERVAL_S = 0.05  #: between two checks for the addresses of the gang
_CHUNK_BYTES = 1 << 18
_SEND_TIMEOUT_S = 30.0


def main(folder: str, name: str, incarnation: str) -> int:
    """Represent the replica `name` of the attempt in `folder` until it exits. Does not return if a signal killed it.

    `incarnation` is `ROUND.N`: the Nth start of this replica since the ROUNDth start of the gang.
    """
    with open(os.path.join(folder, "spec.json"), "rb") as file:
        spec = json.loads(file.read().decode())
    remove_failure(folder, name)
    signals = signal_pipe(FORWARDED_SIGNALS)
    return ReplicaProxy(folder, spec, name, incarnation).run(signals)


class ReplicaProxy:
    """The proxy of one replica."""

    def __init__(self, folder: str, spec: dict[str, Any], name: str, incarnation: str) -> None:
        self._folder = folder
        self._spec = spec
        self._name = name
        self._incarnation = incarnation
        self._addresses = GangAddresses(os.path.join(folder, "addresses", incarnation.split(".")[0]))
        self._samples = os.path.join(folder, "samples.jsonl")
        self._is_host = bool(spec["cluster"].get("hosts"))  # it represents a host of a version
        self._running = False  # the replica is started
        self._decoder = streams.StreamDecoder()
        self._bridge: Optional[socket.socket] = None
        self._buffer = b""
        self._frame_bytes = 0  # bytes of the stream that follow the last message
        self._unsent_signals: list[int] = []
        self._wants_addresses = False  # the node waits for the addresses of the gang
        self._addresses_sent = False  # on this connection
        self._status: Optional[int] = None

    def run(self, signals: int) -> int:
        reconnect_at = 0.0
        while self._status is None:
            if self._bridge is None and time.monotonic() >= reconnect_at:
                reconnect_at = time.monotonic() + _RECONNECT_INTERVAL_S
                self._connect()
            self._run_once(signals)
        return self._status

    def _run_once(self, signals: int) -> None:
        fds = [signals] if self._bridge is None else [signals, self._bridge.fileno()]
        wait_s = (
            _RECONNECT_INTERVAL_S
            if self._bridge is None
            else _ADDRESS_POLL_INTERVAL_S
            if self._wants_addresses and not self._addresses_sent
            else None
        )
        ready = select.select(fds, [], [], wait_s)[0]
        if signals in ready:
            self._on_signals(os.read(signals, 4096))
        if self._bridge is not None and self._bridge.fileno() in ready:
            self._receive(self._bridge)
        if self._wants_addresses and not self._addresses_sent:
            self._send_addresses()

    # -- the bridge

    def _connect(self) -> None:
        bridge = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        bridge.settimeout(_SEND_TIMEOUT_S)
        try:
            bridge.connect(self._spec["cluster"]["socket"])
        except OSError:
            bridge.close()  # no bridge: the server is restarting
            return
        self._bridge, self._buffer, self._frame_bytes, self._addresses_sent = bridge, b"", 0, False
        self._decoder.resume()
        self._send(self._request())
        for number in self._unsent_signals:
            self._send({"do": "signal", "number": number})
        self._unsent_signals = []

    def _request(self) -> dict[str, Any]:
        cluster = self._spec["cluster"]
        replica = next(replica for replica in self._spec["replicas"] if replica["name"] == self._name)
        address = self._addresses.of(self._name)
        return {
            "do": "start",
            "gang": cluster["gang"],
            "bundles": cluster["bundles"],
            "strategy": cluster["strategy"],
            "replica": self._name,
            "incarnation": self._incarnation,
            "host": address[0] if address else "",
            "offset": self._decoder.offset,
            "lease_s": cluster["lease_s"],
            "apart": cluster.get("apart", ""),
            "order": {
                "gang": cluster["gang"],
                "replica": self._name,
                "port": int(address[1]) if address else 0,
                "module": self._spec["module"],
                "args": self._spec["args"],
                "env": dict(self._spec["env"], **replica["env"]),
                "runtime": cluster["runtime"],
                "packages": cluster["packages"],
                "files": cluster.get("files", []),
                "credentials": cluster["credentials"],
                "container": replica.get("container"),
                "containers": self._spec.get("containers"),
            },
        }

    def _send(self, message: dict[str, Any]) -> None:
        if self._bridge is None:
            return
        try:
            self._bridge.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._bridge is not None:
            self._bridge.close()
            self._bridge = None

    def _receive(self, bridge: socket.socket) -> None:
        try:
            data = bridge.recv(_CHUNK_BYTES)
        except OSError:
            data = b""
        if not data:
            self._disconnect()
            return
        self._buffer += data
        while self._bridge is not None and self._status is None and self._handle_next():
            pass

    def _handle_next(self) -> bool:
        """Handle the next message. Returns False if it is not complete yet."""
        if self._frame_bytes:
            data = self._buffer[: self._frame_bytes]
            self._buffer = self._buffer[len(data) :]
            self._frame_bytes -= len(data)
            for kind, payload in self._decoder.feed(data):
                self._on_frame(kind, payload)
            return bool(data)
        line, end, rest = self._buffer.partition(b"\n")
        if not end:
            return False
        self._buffer = rest
        message = json.loads(line.decode())
        if "bytes" in message:
            self._frame_bytes = message["bytes"]
        elif "say" in message:
            _write(self._log_fd, message["say"].encode() + b"\n")
        elif "lost" in message:
            self._fail(message["lost"], NODE_LOST if message["node"] else int(signal.SIGKILL))
        elif "error" in message:
            _write(2, message["error"].encode() + b"\n")
            self._status = 1
        return True

    # -- the replica

    def _on_frame(self, kind: int, payload: bytes) -> None:
        if kind == streams.OUT:
            _write(1 if self._running else self._log_fd, payload)
        elif kind == streams.ERR:
            _write(2, payload)
        elif kind == streams.SAMPLE:
            _append(self._samples, payload, alone=self._is_host)
        elif kind == streams.REPORT:
            append_reports(os.path.join(self._folder, REPORTS_FILE), payload)
        elif kind == streams.ADDRESS:
            self._on_address(json.loads(payload.decode()))
        elif kind == streams.STARTED:
            self._wants_addresses, self._running = False, True
            _report_started(self._folder)
        elif kind == streams.EXIT:
            status = json.loads(payload.decode())
            if status["code"] != 0:
                write_failure(self._folder, self._name, status["failure"])
            if status["signal"] is not None:
                exit_by_signal(status["signal"])
            self._status = status["code"]

    def _on_address(self, address: dict[str, Any]) -> None:
        recorded = self._addresses.of(self._name)
        reported = (address["host"], str(address["port"]))
        if recorded is not None and recorded != reported:
            self._fail(
                "%s is at %s:%s now, and the others know another address of it." % (self._name, *reported), NODE_LOST
            )
        self._addresses.enter(self._name, *reported)
        self._wants_addresses = True

    def _send_addresses(self) -> None:
        """Send the addresses of the whole gang to the node, if all are known."""
        addresses = {each["name"]: self._addresses.of(each["name"]) for each in self._spec["replicas"]}
        if self._bridge is not None and all(addresses.values()):
            self._addresses_sent = True
            self._send({"do": "addresses", "addresses": addresses})

    @property
    def _log_fd(self) -> int:
        """Where output goes before the replica itself writes: stderr for a host, else stdout."""
        return 2 if self._is_host else 1

    def _fail(self, reason: str, number: int) -> None:
        _write(2, reason.encode() + b"\n")
        if self._is_host:
            _write(1, json.dumps({"event": "failed", "message": reason}).encode() + b"\n")
        exit_by_signal(number)

    def _on_signals(self, numbers: bytes) -> None:
        for number in numbers:
            if self._decoder.offset == 0:
                exit_by_signal(number)  # the replica has not been started
            elif self._bridge is None:
                self._unsent_signals.append(number)
            else:
                self._send({"do": "signal", "number": number})


class GangAddresses:
    """Addresses of a gang since its last start, one file a replica."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def of(self, name: str) -> Optional[tuple[str, str]]:
        """Host and port. Returns None if they are not known yet."""
        try:
            with open(os.path.join(self._folder, name), encoding="utf-8") as file:
                host, port = file.read().split()
        except FileNotFoundError:
            return None
        return host, port

    def enter(self, name: str, host: str, port: str) -> None:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        write_file(os.path.join(self._folder, name), ("%s %s\n" % (host, port)).encode())


def _report_started(folder: str) -> None:
    """Tell the supervisor that the replica runs."""
    try:
        control = os.open(os.path.join(folder, "control"), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as exc:
        if exc.errno not in (errno.ENOENT, errno.ENXIO):
            raise
        return  # no supervisor is left, so this process ends too
    try:
        os.set_blocking(control, True)
        os.write(control, STARTED.encode() + b"\n")
    finally:
        os.close(control)


def exit_by_signal(number: int) -> None:
    """Exit by this signal, as the replica did. Never returns."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.set_wakeup_fd(-1)
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    time.sleep(1)
    os._exit(128 + number)  # the signal does not end a process


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _append(path: str, lines: bytes, alone: bool) -> None:
    """Append in one write, since the proxies of a gang share the file. A full disk costs the lines.

    `alone` replaces the earlier content. A host may live for years, and its old samples are of no use.
    """
    mode = os.O_TRUNC if alone else os.O_APPEND
    fd = os.open(path, os.O_WRONLY | mode | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(fd, lines)
    except OSError as exc:
        sys.stderr.write("A sample was lost: %s.\n" % exc.strerror)
    finally:
        os.close(fd)
