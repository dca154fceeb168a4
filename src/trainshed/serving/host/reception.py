"""Where requests come in: connections of the gateway, each read by a thread of its own."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable

from ..frames import RAW_HEAD, auth_frame
from .lifecycle import StopSignal
from .listener import FrameConnection, OnFrame

_STRANGERS = 64  #: connections at once that may still have to say the secret
_GREETING_S = 5.0  #: that each of them has for it


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
