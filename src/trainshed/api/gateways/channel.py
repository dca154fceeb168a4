"""Connections between the server and a gateway process: one for messages, one that passes open client connections."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence

_HEAD = struct.Struct("!QI")  #: of a message: its number and the size of its body
_FD = struct.Struct("i")
_PART_BYTES = 32_768  #: of what was read of a connection, in one datagram
_LAST, _MORE = b"\0", b"\1"
_FLAG_BYTES = 1


class MessageChannel:
    """Sends and receives numbered messages. Thread-safe; one thread receives.

    Both ends are processes of one program, and no other process has the socket, so messages are pickled.
    """

    def __init__(self, sock: socket.socket, *, timeout_s: int = 0) -> None:
        """`sock` is one end of a socket pair, blocking. With a timeout, `send` fails if the other end does not read."""
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", timeout_s, 0))
        self._sock = sock
        self._lock = threading.Lock()
        self._received = bytearray()

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, message: object, number: int = 0) -> None:
        """Send a message. Raises `OSError` if the other process is gone, or reads nothing for a while."""
        body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        with self._lock:
            self._sock.sendall(_HEAD.pack(number, len(body)) + body)

    def receive(self) -> list[tuple[int, object]]:
        """Return the messages that have arrived, after a wait for some bytes. Raises `EOFError` at the end."""
        try:
            data = self._sock.recv(1 << 18)
        except OSError as exc:
            raise EOFError from exc
        if not data:
            raise EOFError
        self._received += data
        messages, start = [], 0
        while len(self._received) - start >= _HEAD.size:
            number, size = _HEAD.unpack_from(self._received, start)
            if len(self._received) < (end := start + _HEAD.size + size):
                break
            body = memoryview(self._received)[start + _HEAD.size : end]
            messages.append((number, pickle.loads(body)))  # noqa: S301  written by this program: see the class
            body.release()
            start = end
        del self._received[:start]
        return messages

    def close(self) -> None:
        """Let both ends read the end."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other process is gone
            return


class ConnectionChannel:
    """Passes open connections with what was read of them. Event loop only.

    No process that is started meanwhile inherits them. A datagram has a descriptor and a part of the bytes, or a
    further part for the descriptor before it.
    """

    def __init__(self, sock: socket.socket, receive: Callable[[socket.socket, bytes], None]) -> None:
        """`sock` is one end of a pair of SEQPACKET sockets. `receive` owns the connections that it gets."""
        sock.setblocking(False)
        self._sock = sock
        self._receive = receive
        self._unsent: deque[tuple[bytes, int | None]] = deque()
        self._client: socket.socket | None = None  #: whose bytes are not complete
        self._parts: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock, self._read)

    def send(self, fd: int, read: bytes) -> None:
        """Pass a connection. Callers close `fd` on their side; the connection stays open."""
        parts = [read[start : start + _PART_BYTES] for start in range(0, len(read), _PART_BYTES)] or [b""]
        for at, part in enumerate(parts):
            flag = _MORE if at < len(parts) - 1 else _LAST
            self._unsent.append((flag + part, os.dup(fd) if not at else None))
        self._write()

    def close(self) -> None:
        """Close the channel, and all connections that were not passed completely. Idempotent."""
        if self._sock.fileno() < 0:
            return
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        for _, fd in self._unsent:
            if fd is not None:
                os.close(fd)
        self._unsent.clear()
        if self._client is not None:
            self._client.close()

    def _write(self) -> None:
        while self._unsent:
            data, fd = self._unsent[0]
            try:
                socket.send_fds(self._sock, [data], [] if fd is None else [fd])
            except BlockingIOError:
                self._loop.add_writer(self._sock, self._write)
                return
            except OSError:  # the other process is gone
                self.close()
                return
            self._unsent.popleft()
            if fd is not None:
                os.close(fd)
        self._loop.remove_writer(self._sock)

    def _read(self) -> None:
        try:
            data, controls, _, _ = self._sock.recvmsg(
                _PART_BYTES + _FLAG_BYTES, socket.CMSG_LEN(_FD.size), socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if not data:
            self.close()
            return
        self._add_part(data, [_FD.unpack(control)[0] for _, _, control in controls])

    def _add_part(self, data: bytes, fds: Sequence[int]) -> None:
        for fd in fds:
            self._client, self._parts = socket.socket(fileno=fd), []
        self._parts.append(data[_FLAG_BYTES:])
        if data[:_FLAG_BYTES] == _LAST and self._client is not None:
            client, self._client = self._client, None
            self._receive(client, b"".join(self._parts))
