"""A proxy in front of PostgreSQL that cuts connections at COMMIT, so that nobody knows whether it happened."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from trainshed.testing.processes.postgresql import Postgresql

_COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"  #: as psycopg sends it
_COMMITTED = b"C\x00\x00\x00\x0bCOMMIT\x00"
_RESET = struct.pack("ii", 1, 0)  #: SO_LINGER: close with RST
_CHUNK_BYTES = 1 << 16


class Cut(StrEnum):
    """What a cut connection loses."""

    COMMIT = "commit"  #: the transaction is rolled back
    ANSWER = "answer"  #: the transaction is committed


class CommitProxy:
    """Forwards connections. Thread-safe."""

    def __init__(self, postgresql: Postgresql) -> None:
        self._postgresql = postgresql
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._lock = threading.Lock()
        self._due: list[Cut] = []
        self.cuts = 0  #: connections that were cut so far
        threading.Thread(target=self._accept, name="commit-proxy", daemon=True).start()

    def url(self, database_url: str) -> str:
        """The URL of a database, through this proxy."""
        name = database_url.partition("@/")[2].partition("?")[0]
        port = self._listener.getsockname()[1]
        return f"postgresql://trainshed@127.0.0.1:{port}/{name}?sslmode=disable&gssencmode=disable"

    def cut_next(self, cut: Cut) -> None:
        """Cut the connection of the next COMMIT that is not taken yet."""
        with self._lock:
            self._due.append(cut)

    @property
    def due(self) -> int:
        """The number of cuts that still wait for a COMMIT."""
        return len(self._due)

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            upstream = socket.socket(socket.AF_UNIX)
            try:
                upstream.connect(str(self._postgresql.socket))
            except OSError:
                upstream.close()
                _reset(client)
                continue
            link = _Link(self, client, upstream)
            for pump in (link.send, link.receive):
                threading.Thread(target=pump, name="commit-proxy", daemon=True).start()

    def take_cut(self) -> Cut | None:
        with self._lock:
            return self._due.pop(0) if self._due else None

    def count_cut(self) -> None:
        with self._lock:
            self.cuts += 1


class _Link:
    """One connection and its two directions."""

    def __init__(self, proxy: CommitProxy, client: socket.socket, upstream: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._upstream = upstream
        self._cut_at_answer = threading.Event()

    def send(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._client.recv(_CHUNK_BYTES):
                cut = self._proxy.take_cut() if _COMMIT in data else None
                if cut is Cut.COMMIT:
                    self._proxy.count_cut()
                    break
                if cut is Cut.ANSWER:
                    self._cut_at_answer.set()
                self._upstream.sendall(data)
        self._end()

    def receive(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._upstream.recv(_CHUNK_BYTES):
                if self._cut_at_answer.is_set() and _COMMITTED in data:
                    self._proxy.count_cut()
                    break
                self._client.sendall(data)
        self._end()

    def _end(self) -> None:
        _reset(self._client)
        with contextlib.suppress(OSError):
            self._upstream.shutdown(socket.SHUT_RDWR)
        self._upstream.close()


def _reset(connection: socket.socket) -> None:
    """Close a connection with RST, and wake the thread that reads from it."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@contextmanager
def commit_proxy(postgresql: Postgresql) -> Iterator[CommitProxy]:
    proxy = CommitProxy(postgresql)
    try:
        yield proxy
    finally:
        proxy.close()
