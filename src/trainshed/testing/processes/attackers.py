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

OPENED_PER_S = 400.0  #: at first
REOPENING_S = 5.0  #: for all sockets: a fifth of them each second at most is opened again
TRICKLE_INTERVAL_S = 3.0
_POLL_INTERVAL_S = 0.02


@dataclass(frozen=True)
class Attack:
    """What each socket sends at first, and then every few seconds. A socket that is closed is opened again."""

    host: str
    port: int
    number: int
    first: str = ""  #: ISO 8859-1
    then: str = ""
    source: str = ""  #: the address that the sockets are bound to


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
        self._poll = select.epoll()
        self._poll.register(sys.stdin, select.EPOLLIN)
        self._opened = 0

    def run(self) -> None:
        began = last = time.monotonic()
        allowance = 0.0
        while True:
            now = time.monotonic()
            is_first = self._opened < self._attack.number
            allowance += (now - last) * (OPENED_PER_S if is_first else self._attack.number / REOPENING_S)
            last = now
            allowance = min(allowance, self._attack.number - len(self._sockets))
            while allowance >= 1:
                self._open(now)
                allowance -= 1
            self._trickle(now)
            if now - began > 0.1:
                began = now
                sys.stdout.write(f"{self._opened} {len(self._sockets)}\n")
                sys.stdout.flush()
            for number, _ in self._poll.poll(_POLL_INTERVAL_S):
                if number == sys.stdin.fileno():
                    return
                self._receive(number)

    def _open(self, now: float) -> None:
        source = (self._attack.source, 0) if self._attack.source else None
        client = socket.create_connection((self._attack.host, self._attack.port), timeout=60, source_address=source)
        client.setblocking(False)
        self._sockets[client.fileno()] = client
        self._poll.register(client, select.EPOLLIN | select.EPOLLRDHUP)
        with contextlib.suppress(OSError):
            client.send(self._first)
        if self._then:
            self._due.append((now + TRICKLE_INTERVAL_S, client))
        self._opened += 1

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
        self._poll.unregister(number)
        self._sockets.pop(number).close()


if __name__ == "__main__":
    _Sockets(Attack(**json.loads(sys.argv[1]))).run()
