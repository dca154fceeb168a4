"""Connections of gateways to a host: frames in, responses out."""

from __future__ import annotations

import hmac
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence

from ..codec.responses import Answer
from ..frames import ANSWER_HEAD, MAX_RAW_HEAD_BYTES, REQUEST_HEAD, BadFrameError, Frame, FrameReader, auth_frame
from .lifecycle import StopSignal

_CHUNK_BYTES = 1 << 16
_SEND_TIMEOUT = struct.pack("ll", 10, 0)  #: seconds and microseconds without progress, then the connection is closed

OnFrame = Callable[["FrameConnection", int, int, bytes], None]  #: connection, id, kind, body
_MAX_UNAUTHENTICATED = 64  #: connections at a time that have not sent the secret yet
_AUTH_TIMEOUT_S = 5.0  #: for the secret


class FrameConnection:
    """A connected socket. `read` is for the thread of the connection; `send` is thread-safe."""

    def __init__(self, sock: socket.socket, *, body_limit: int) -> None:
        self._socket = sock
        self._lock = threading.Lock()
        self._reader = FrameReader(REQUEST_HEAD, body_limit=body_limit)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_TIMEOUT)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # responses are sent immediately
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # notices a peer that is gone

    def begins_with(self, expected: bytes, *, within_s: float) -> bool:
        """Whether the first bytes are `expected`. Reads no further. To be called before `read`."""
        deadline, received = time.monotonic() + within_s, b""
        try:
            while len(received) < len(expected):
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                if not (chunk := self._socket.recv(len(expected) - len(received))):
                    return False
                received += chunk
            self._socket.settimeout(None)
        except OSError:
            return False
        return hmac.compare_digest(received, expected)

    def read(self, on_frame: OnFrame) -> None:
        """Call `on_frame` for each frame. Returns when the peer closes the connection or sends a bad frame."""
        try:
            while (frames := self._receive()) is not None:
                for request_id, kind, body in frames:
                    on_frame(self, request_id, kind, body)
        except (OSError, BadFrameError):
            self.close()

    def _receive(self) -> list[Frame] | None:
        """The frames that the next bytes complete. Returns None at the end of the stream."""
        if (buffer := self._reader.buffer) is not None:
            size = self._socket.recv_into(buffer)
            return self._reader.filled(size) if size else None
        data = self._socket.recv(_CHUNK_BYTES)
        return self._reader.feed(data) if data else None

    def send(self, answers: Sequence[tuple[int, Answer]]) -> None:
        """Send responses with their request ids, in one write. If the connection is closed, `read` returns."""
        parts: list[bytes] = []
        for request_id, (status, body) in answers:
            parts += (ANSWER_HEAD.pack(len(body), request_id, status), body)
        try:
            with self._lock:
                self._socket.sendall(b"".join(parts))
        except OSError:
            self.close()

    def stop_reading(self) -> None:
        """Let `read` return. Unread frames are dropped."""
        _shutdown(self._socket, socket.SHUT_RD)

    def close(self) -> None:
        _shutdown(self._socket, socket.SHUT_RDWR)


def _shutdown(sock: socket.socket, how: int) -> None:
    try:
        sock.shutdown(how)
    except OSError:  # already shut down
        return


class ConnectionListener:
    """Accepts connections, with a thread for each. Calls `on_frame` for frames and `on_close` for closed connections.

    Both are called by the threads of connections and must not wait for the model.
    """

    def __init__(
        self, on_frame: OnFrame, on_close: Callable[[FrameConnection], None], *, body_limit: int, secret: str = ""
    ) -> None:
        """With a `secret`, connections that do not begin with it are closed."""
        self._auth_frame = auth_frame(secret)
        self._unauthenticated = 0  # connections that have not sent the secret yet
        self._on_frame = on_frame
        self._on_close = on_close
        self._body_limit = body_limit
        self._readers: dict[FrameConnection, threading.Thread] = {}
        self._stopping = False
        self._lock = threading.Lock()

    def serve(self, listener: socket.socket, stop: StopSignal) -> None:
        """Accept connections until the stop signal. Then stop reading, and return when all frames are handled."""
        listener.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(stop, selectors.EVENT_READ)
            while not any(key.fileobj is stop for key, _ in selector.select()):
                self._accept(listener)
        self._stopping = True
        listener.close()
        with self._lock:
            readers = dict(self._readers)
        for connection, reader in readers.items():
            connection.stop_reading()
            reader.join()

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):  # closed before it was accepted
            return
        connection = FrameConnection(sock, body_limit=self._body_limit + MAX_RAW_HEAD_BYTES)
        if not self._admit(connection):
            return
        reader = threading.Thread(target=self._serve_connection, args=(connection,), name="connection", daemon=True)
        with self._lock:
            self._readers[connection] = reader
        reader.start()

    def _serve_connection(self, connection: FrameConnection) -> None:
        if self._authenticate(connection):
            connection.read(self._on_frame)
            if not self._stopping:
                self._on_close(connection)
        with self._lock:
            del self._readers[connection]

    def _admit(self, connection: FrameConnection) -> bool:
        """Whether the connection may authenticate. It is closed if too many others have not done so yet."""
        if not self._auth_frame:
            return True
        with self._lock:
            if self._unauthenticated < _MAX_UNAUTHENTICATED:
                self._unauthenticated += 1
                return True
        connection.close()
        return False

    def _authenticate(self, connection: FrameConnection) -> bool:
        """Whether the connection begins with the secret. If not, it is closed."""
        if not self._auth_frame:
            return True
        authenticated = connection.begins_with(self._auth_frame, within_s=_AUTH_TIMEOUT_S)
        with self._lock:
            self._unauthenticated -= 1
        if not authenticated:
            connection.close()
        return authenticated
