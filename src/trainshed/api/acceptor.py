"""The ports of the server: connections are counted from their acceptance on, and TLS handshakes have a deadline.

The server accepts connections itself. An event loop accepts all that wait and does nothing else meanwhile, and a
protocol first sees a TLS connection when its handshake is done. Here, open connections have their turn after a few new
ones, and after each handshake. A handshake begins when the client has sent something.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable

from trainshed.connections import Connections

LOG = logging.getLogger("trainshed.api")
HANDSHAKE_TIMEOUT_S = 10.0  #: in total
MAX_ACCEPTS = 8  #: before the event loop does something else
ACCEPT_RETRY_INTERVAL_S = 0.5  #: while the process has no descriptor left


class _Handshake:
    """A connection that no protocol has yet: its TLS handshake, if it has one, is in progress."""

    is_idle = True

    def __init__(self, client: socket.socket, drop: Callable[[_Handshake], None]) -> None:
        self.client = client
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None  #: while it waits for the client or for its turn
        self.is_evicted = False
        self._drop = drop

    def evict(self) -> None:
        self.is_evicted = True
        if self.task is not None:
            self.task.cancel()
        else:
            self._drop(self)


class _Established(asyncio.Protocol):
    """Puts the protocol that serves a connection in its own place."""

    def __init__(self, create: Callable[[], asyncio.Protocol | None]) -> None:
        """`create` returns None for a connection that is being closed."""
        self._create = create

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        protocol = self._create()
        if protocol is None:
            return
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


class Acceptor:
    """Accepts the connections of a port, and serves each with a protocol of `create`. Event loop only."""

    def __init__(
        self,
        listener: socket.socket,
        connections: Connections,
        create: Callable[[], asyncio.Protocol],
        *,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """With a context, the port serves TLS."""
        self._listener = listener
        self._context = context
        self._connections = connections
        self._create = create
        self._handshakes: set[_Handshake] = set()
        self._ready: deque[_Handshake] = deque()  #: handshakes whose client has sent something
        self._retry: asyncio.TimerHandle | None = None
        self._is_open = False

    def start(self) -> None:
        """Accept connections from now on."""
        self._listener.setblocking(False)
        self._is_open = True
        self._resume()

    def stop(self) -> None:
        """Close the port, and all connections whose handshake is not done. Idempotent."""
        if self._is_open:
            self._is_open = False
            if self._retry is not None:
                self._retry.cancel()
            asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        for handshake in tuple(self._handshakes):
            handshake.evict()

    def _resume(self) -> None:
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(MAX_ACCEPTS):
            try:
                client, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as exc:  # it stays in the queue until others have closed
                LOG.warning("connection.not_accepted reason=%s", exc)
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._listener)
                self._retry = loop.call_later(ACCEPT_RETRY_INTERVAL_S, self._resume)
                return
            client.setblocking(False)
            self._begin(_Handshake(client, self._drop), str(address[0]))

    def _begin(self, handshake: _Handshake, address: str) -> None:
        if not self._connections.add(handshake, address):
            handshake.client.close()
            return
        self._handshakes.add(handshake)
        if self._context is None:
            self._start(handshake)
            return
        loop = asyncio.get_running_loop()
        handshake.timer = loop.call_later(HANDSHAKE_TIMEOUT_S, handshake.evict)
        loop.add_reader(handshake.client, self._queue, handshake)

    def _queue(self, handshake: _Handshake) -> None:
        """Let a handshake begin in its turn: the client has sent something."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(handshake.client)
        self._ready.append(handshake)
        if len(self._ready) == 1:
            loop.call_soon(self._start_next)

    def _start_next(self) -> None:
        """Begin one handshake, and the next one when the event loop has done everything else."""
        handshake = self._ready.popleft()
        if handshake in self._handshakes:  # it was not dropped
            self._start(handshake)
        if self._ready:
            asyncio.get_running_loop().call_soon(self._start_next)

    def _start(self, handshake: _Handshake) -> None:
        loop = asyncio.get_running_loop()
        timeout_s = None
        if handshake.timer is not None:
            timeout_s = max(0.1, handshake.timer.when() - loop.time())
            handshake.timer.cancel()
        handshake.task = loop.create_task(self._shake_hands(handshake, timeout_s))
        handshake.task.add_done_callback(lambda task: self._end(handshake, task))

    def _drop(self, handshake: _Handshake) -> None:
        """Close a connection whose handshake has not begun."""
        if handshake.timer is not None:
            handshake.timer.cancel()
        asyncio.get_running_loop().remove_reader(handshake.client)
        handshake.client.close()
        self._remove(handshake)

    async def _shake_hands(self, handshake: _Handshake, timeout_s: float | None) -> None:
        def create() -> asyncio.Protocol | None:
            if handshake.is_evicted:  # the task is cancelled, and closes the transport without `connection_lost`
                return None
            self._remove(handshake)  # before the protocol counts the connection as its own
            return self._create()

        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: _Established(create),
            handshake.client,
            ssl=self._context,
            ssl_handshake_timeout=timeout_s,
        )

    def _end(self, handshake: _Handshake, task: asyncio.Task[None]) -> None:
        self._remove(handshake)
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            return
        handshake.client.close()  # if it was evicted before it began; a transport that there is closes its own
        if error is not None:
            expected = isinstance(error, OSError | EOFError)  # the client is gone, slow, or rejects the certificate
            LOG.log(logging.DEBUG if expected else logging.ERROR, "connection.dropped reason=%r", error)

    def _remove(self, handshake: _Handshake) -> None:
        self._handshakes.discard(handshake)
        self._connections.remove(handshake)
