"""Sockets that are held without a token, in a process of their own: callers in a test do not share its interpreter.

python -m trainshed.testing.processes.attackers ATTACK, as JSON. It writes to stdout how many sockets it has opened and
how many of them are open, and ends with its stdin.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass

OPENED_PER_S = 400.0  #: at first, and at most that many again
TRICKLE_INTERVAL_S = 3.0
_POLL_INTERVAL_S = 0.02
_MAX_BURST_S = 0.1  #: so many seconds' worth of sockets at once


@dataclass(frozen=True)
class Attack:
    """What each socket sends at first, and then every few seconds. A socket that is closed is opened again.

    The process is one loop that sends and receives little, so that it competes with the server for next to no CPU time.
    """

    host: str
    port: int
    number: int
    first: str = ""  #: ISO 8859-1
    then: str = ""
    source: str = ""  #: the address that the sockets are bound to
    opened_per_s: float = OPENED_PER_S
    held_s: float = 0.0  #: after which a socket is closed; 0 keeps it until the server closes it


class Attackers:
    """The process, for the time of a `with` block."""

    def __init__(self, attack: Attack) -> None:
        self._attack = attack
        self.opened = 0
        self.held = 0

    def __enter__(self) -> Attackers:
        command = [sys.executable, "-m", __name__, json.dumps(asdict(self._attack))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        status = self._process.wait()
        assert status == 0, f"the attackers ended with {status}"

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.opened, self.held = (int(word) for word in line.split())


class _Sockets:
    def __init__(self, attack: Attack) -> None:
        self._attack = attack
        self._first, self._then = attack.first.encode("latin-1"), attack.then.encode("latin-1")
        self._sockets: dict[int, socket.socket] = {}
        self._due: deque[tuple[float, socket.socket]] = deque()  #: when each sends next
        self._ends: deque[tuple[float, socket.socket]] = deque()  #: when each is closed
        self._poll = select.epoll()
        self._poll.register(sys.stdin, select.EPOLLIN)
        self._opened = 0

    def run(self) -> None:
        began = last = time.monotonic()
        allowance = 0.0
        while True:
            now = time.monotonic()
            allowance += (now - last) * self._attack.opened_per_s
            last = now
            self._let_go(now)
            most = max(1.0, _MAX_BURST_S * self._attack.opened_per_s)  # after a pause, as on a busy machine
            allowance = min(allowance, self._attack.number - len(self._sockets), most)
            while allowance >= 1:
                self._open(now)
                allowance -= 1
            self._trickle(now)
            if now - began > 0.1:
                began = now
                sys.stdout.write(f"{self._opened} {len(self._sockets)}\n")
                sys.stdout.flush()
            for number, events in self._poll.poll(_POLL_INTERVAL_S):
                if number == sys.stdin.fileno():
                    return
                if events & select.EPOLLOUT:
                    self._begin(number)
                else:
                    self._receive(number)

    def _open(self, now: float) -> None:
        client = socket.socket()
        client.setblocking(False)
        if self._attack.source:
            client.bind((self._attack.source, 0))
        with contextlib.suppress(BlockingIOError):
            client.connect((self._attack.host, self._attack.port))
        self._sockets[client.fileno()] = client
        self._poll.register(client, select.EPOLLOUT)
        if self._then:
            self._due.append((now + TRICKLE_INTERVAL_S, client))
        if self._attack.held_s:
            self._ends.append((now + self._attack.held_s, client))

    def _begin(self, number: int) -> None:
        """Send the first bytes: the socket is connected, or has failed."""
        self._poll.modify(number, select.EPOLLIN | select.EPOLLRDHUP)
        with contextlib.suppress(OSError):
            self._sockets[number].send(self._first)
        self._opened += 1

    def _let_go(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, client = self._ends.popleft()
            if client.fileno() >= 0:
                self._close(client.fileno())

    def _trickle(self, now: float) -> None:
        while self._due and self._due[0][0] <= now:
            _, client = self._due.popleft()
            if client.fileno() >= 0:  # it is not closed
                with contextlib.suppress(OSError):
                    client.send(self._then)
                self._due.append((now + TRICKLE_INTERVAL_S, client))

    def _receive(self, number: int) -> None:
        try:
            if self._sockets[number].recv(65_536):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._close(number)

    def _close(self, number: int) -> None:
        self._poll.unregister(number)
        self._sockets.pop(number).close()


if __name__ == "__main__":
    _Sockets(Attack(**json.loads(sys.argv[1]))).run()
