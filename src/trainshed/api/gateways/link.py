"""The server's end of one gateway process: messages with acknowledgement, and the process itself."""

from __future__ import annotations

import json
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace

from trainshed.api.gateways.channel import MessageChannel
from trainshed.api.gateways.messages import Done, GatewayConfig, OpenConnections, ToGateway, ToServer

LOG = logging.getLogger("trainshed.gateways")
ANSWER_TIMEOUT_S = 5.0  #: for a message to take effect; then the process is killed, so that it has
KILL_TIMEOUT_S = 5.0


class GatewayLink:
    """One gateway process. Thread-safe."""

    def __init__(self, config: GatewayConfig, on_message: Callable[[GatewayLink, ToServer], None]) -> None:
        """Start the process. `on_message` runs on a thread of this object; `on_end` too, once."""
        control, own_control = socket.socketpair()
        connections, self.connections = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        config = replace(config, control_fd=control.fileno(), connections_fd=connections.fileno())
        with control, connections:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "trainshed.api.gateways.process", json.dumps(asdict(config))],
                stdin=subprocess.DEVNULL,
                pass_fds=(config.listener_fd, config.control_fd, config.connections_fd),
            )
        self.number = config.number
        self.open = OpenConnections(0, {})
        self.closings = 0  #: messages `CloseConnections` that were sent
        self.started_s = time.monotonic()
        self.is_ready = threading.Event()
        self._sock = own_control
        self._channel = MessageChannel(own_control, timeout_s=int(ANSWER_TIMEOUT_S))
        self._on_message = on_message
        self._changed = threading.Condition()
        self._numbers = 0
        self._pending: set[int] = set()
        self._results: dict[int, int] = {}
        self._ended = False

    def begin(self, on_end: Callable[[GatewayLink], None]) -> None:
        """Receive messages until the process has ended, on a thread."""
        threading.Thread(target=self._receive, args=(on_end,), name=f"gateway-{self.number}", daemon=True).start()

    def send(self, message: ToGateway) -> None:
        """Send a message that nobody waits for. A process that does not read is killed."""
        self._send(message, 0)

    def request(self, message: ToGateway) -> int:
        """Send a message, for `wait`. Returns its number."""
        with self._changed:
            self._numbers += 1
            number = self._numbers
            self._pending.add(number)
        self._send(message, number)
        return number

    def wait(self, number: int) -> int:
        """Wait until a message has taken effect, or the process is dead. Returns the result; 0 if it is dead.

        A process that is not ready has nothing to lose: it applies all messages before it accepts connections.
        """
        with self._changed:
            if not self.is_ready.is_set():
                self._pending.discard(number)
                return 0
            if not self._changed.wait_for(lambda: self._ended or number not in self._pending, ANSWER_TIMEOUT_S):
                LOG.error("gateway.hangs number=%d pid=%d It is killed.", self.number, self.process.pid)
                self.kill()
                self._changed.wait_for(lambda: self._ended, KILL_TIMEOUT_S)
            self._pending.discard(number)
            return self._results.pop(number, 0)

    def set_open(self, changed: OpenConnections) -> None:
        """Apply a report of open connections."""
        numbers: Mapping[str, int] = {**self.open.by_address, **changed.by_address}
        self.open = replace(changed, by_address={each: number for each, number in numbers.items() if number})

    def passed(self, address: str) -> None:
        """Count a connection no longer, which came from this process."""
        number = max(0, self.open.by_address.get(address, 0) - 1)
        counted = {**self.open.by_address, address: number}
        self.open = replace(self.open, total=max(0, self.open.total - 1), by_address=counted)

    def kill(self) -> None:
        """Kill the process. Idempotent."""
        if self.process.returncode is None:
            self.process.kill()

    @property
    def ended(self) -> bool:
        return self._ended

    def _send(self, message: ToGateway, number: int) -> None:
        try:
            self._channel.send(message, number)
        except OSError:  # it is gone, or hangs; half a message may be sent
            self.kill()

    def _receive(self, on_end: Callable[[GatewayLink], None]) -> None:
        try:
            while True:
                for _, message in self._channel.receive():
                    self._handle(message)
        except EOFError:
            self.kill()  # its sockets are closed, so it serves nobody
        finally:
            status = self.process.wait()
            if status not in (0, -signal.SIGKILL):
                LOG.error("gateway.ended number=%d pid=%d status=%d", self.number, self.process.pid, status)
            with self._changed:
                self._ended = True
                self._changed.notify_all()
            self.is_ready.set()
            self._sock.close()
            on_end(self)

    def _handle(self, message: object) -> None:
        if isinstance(message, Done):
            with self._changed:
                if message.number in self._pending:  # somebody waits for it
                    self._results[message.number] = message.result
                self._pending.discard(message.number)
                self._changed.notify_all()
        else:
            self._on_message(self, message)  # type: ignore[arg-type]  # what the process sends
