"""One connection of a gateway to a host: frames in, answers out."""

from __future__ import annotations

import hmac
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence

from ..codec.responses import Answer
from ..frames import ANSWER_HEAD, REQUEST_HEAD, BadFrameError, Frame, FrameReader

_PIECE = 1 << 16
_SEND_TIMEOUT = struct.pack("ll", 10, 0)  # seconds: who takes nothing for so long is gone

OnFrame = Callable[["FrameConnection", int, int, bytes], None]  #: connection, id, kind, body


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
