"""One connection of a gateway to a host: frames in, answers out."""

from __future__ import annotations

import hmac
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence

from ..codec.responses import Answer
from ..frames import ANSWER_HEAD, RAW_HEAD, REQUEST_HEAD, BadFrameError, Frame, FrameReader, auth_frame
from .lifecycle import StopSignal

_PIECE = 1 << 16
_SEND_TIMEOUT = struct.pack("ll", 10, 0)  # seconds: who takes nothing for so long is gone

OnFrame = Callable[["FrameConnection", int, int, bytes], None]  #: connection, id, kind, body
_STRANGERS = 64  #: connections at once that may still have to say the secret
_GREETING_S = 5.0  #: that each of them has for it


class FrameConnection:
    """A connected socket. `read` is for the thread of the connection, `send` for all."""

    def __init__(self, sock: socket.socket, *, body_limit: int) -> None:
        self._socket = sock
        self._lock = threading.Lock()
        self._reader = FrameReader(REQUEST_HEAD, body_limit=body_limit)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_TIMEOUT)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # answers do not wait for company
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # the other machine may be gone for good

    def begins_with(self, expected: bytes, *, within_s: float) -> bool:
        """Whether the first bytes are these. Reads no further; to be called before `read`."""
        deadline, got = time.monotonic() + within_s, b""
        try:
            while len(got) < len(expected):
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                if not (piece := self._socket.recv(len(expected) - len(got))):
                    return False
                got += piece
            self._socket.settimeout(None)
        except OSError:
            return False
        return hmac.compare_digest(got, expected)

    def read(self, on_frame: OnFrame) -> None:
        """Give each frame to `on_frame`; returns when the other side is gone, or sends what makes no sense."""
        try:
            while (frames := self._receive()) is not None:
                for request_id, kind, body in frames:
                    on_frame(self, request_id, kind, body)
        except (OSError, BadFrameError):
            self.close()

    def _receive(self) -> list[Frame] | None:
        """The frames that the next bytes complete; None: there are no more."""
        if (room := self._reader.room) is not None:
            size = self._socket.recv_into(room)
            return self._reader.filled(size) if size else None
        data = self._socket.recv(_PIECE)
        return self._reader.feed(data) if data else None

    def send(self, answers: Sequence[tuple[int, Answer]]) -> None:
        """Ids and answers, written at once. An end of the connection, if it is one, is noticed by `read`."""
        parts: list[bytes] = []
        for request_id, (status, body) in answers:
            parts += (ANSWER_HEAD.pack(len(body), request_id, status), body)
        try:
            with self._lock:
                self._socket.sendall(b"".join(parts))
        except OSError:
            self.close()

    def stop_reading(self) -> None:
        """Let `read` return; what was sent before is not read any more."""
        _shut(self._socket, socket.SHUT_RD)

    def close(self) -> None:
        _shut(self._socket, socket.SHUT_RDWR)


def _shut(sock: socket.socket, how: int) -> None:
    try:
        sock.shutdown(how)
    except OSError:  # it is shut already
        return


class ConnectionListener:
    """Gives each frame to `take`, and to `left` each connection whose other side is gone. Both are called by threads
    of connections, and must not wait for the model."""

    def __init__(
        self, take: OnFrame, left: Callable[[FrameConnection], None], *, body_limit: int, secret: str = ""
    ) -> None:
        """With a `secret`, connections that do not begin with it are closed, and nothing of them is taken."""
        self._greeting = auth_frame(secret)
        self._strangers = 0  # connections that have not said it yet
        self._take = take
        self._left = left
        self._body_limit = body_limit
        self._readers: dict[FrameConnection, threading.Thread] = {}
        self._stopping = False
        self._guard = threading.Lock()

    def serve(self, listener: socket.socket, ending: StopSignal) -> None:
        """Take connections until the end comes; then read no more, and return when all that was read was taken."""
        listener.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(ending, selectors.EVENT_READ)
            while not any(key.fileobj is ending for key, _ in selector.select()):
                self._accept(listener)
        self._stopping = True
        listener.close()
        with self._guard:
            readers = dict(self._readers)
        for connection, reader in readers.items():
            connection.stop_reading()
            reader.join()

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):  # it was given up before it was taken
            return
        connection = FrameConnection(sock, body_limit=self._body_limit + RAW_HEAD)
        if not self._may_try(connection):
            return
        reader = threading.Thread(target=self._attend, args=(connection,), name="connection", daemon=True)
        with self._guard:
            self._readers[connection] = reader
        reader.start()

    def _attend(self, connection: FrameConnection) -> None:
        if self._is_known(connection):
            connection.read(self._take)
            if not self._stopping:
                self._left(connection)
        with self._guard:
            del self._readers[connection]

    def _may_try(self, connection: FrameConnection) -> bool:
        """False, and closed, if so many strangers are there that one more could be one too many."""
        if not self._greeting:
            return True
        with self._guard:
            if self._strangers < _STRANGERS:
                self._strangers += 1
                return True
        connection.close()
        return False

    def _is_known(self, connection: FrameConnection) -> bool:
        """Whether it begins with the secret. If not, it is closed."""
        if not self._greeting:
            return True
        known = connection.begins_with(self._greeting, within_s=_GREETING_S)
        with self._guard:
            self._strangers -= 1
        if not known:
            connection.close()
        return known
