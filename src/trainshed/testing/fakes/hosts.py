"""A fake host: it speaks frames on a socket and responds as the test decides, without a model."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainshed.domain.models.hosting import HostEndpoint
from trainshed.gateway.routes import HostAddress
from trainshed.serving.frames import ANSWER_HEAD, REQUEST_HEAD, FrameKind, FrameReader

_TIMEOUT_S = 90.0

#: kind and body of a request -> status and body of the response, or None for no response
Behaviour = Callable[[int, bytes], Awaitable[tuple[int, bytes] | None]]


async def echo(kind: int, body: bytes) -> tuple[int, bytes]:
    """Return the instances as predictions; a raw body unchanged."""
    if kind == FrameKind.RAW:
        return 200, body
    try:
        instances = json.loads(body)["instances"]
    except (ValueError, KeyError, TypeError) as exc:
        message = f"Prediction failed: Invalid inputs: {exc!r} (Error code: 1)"
        return 400, json.dumps({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}).encode()
    return 200, json.dumps({"explanations" if kind == FrameKind.EXPLAIN else "predictions": instances}).encode()


def answering(value: Any, *, after_s: float = 0.0) -> Behaviour:
    """Return the same predictions for every request."""

    async def answer(kind: int, body: bytes) -> tuple[int, bytes]:
        await asyncio.sleep(after_s)
        return 200, json.dumps({"predictions": value}).encode()

    return answer


class FakeHost:
    """A host in its own thread, from `start` to `stop`. `seen` and `cancelled` record its requests."""

    def __init__(self, socket: Path, behaviour: Behaviour = echo, *, key: str = "", secret: str = "") -> None:
        """With a `secret` it listens on a loopback port instead, as a remote host does."""
        self.address = HostAddress(socket=socket, key=key or str(socket))
        self.secret = secret
        self.behaviour = behaviour
        self.seen: list[tuple[int, bytes]] = []
        self.cancelled: list[int] = []
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self._transports: set[asyncio.Transport] = set()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def start(self) -> FakeHost:
        self._thread.start()
        assert self._ready.wait(_TIMEOUT_S)
        return self

    def stop(self) -> None:
        """Stop like a killed process: cut every connection and close the listener."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop is closed already
                self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(_TIMEOUT_S)

    def cut(self) -> None:
        """Cut every connection, and accept new ones."""

        def abort() -> None:
            for transport in tuple(self._transports):
                transport.abort()

        self._loop.call_soon_threadsafe(abort)

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        server = await self._server()
        self._ready.set()
        await self._stopping.wait()
        server.close()
        for transport in tuple(self._transports):
            transport.abort()
        self.address.socket.unlink(missing_ok=True)

    async def _server(self) -> asyncio.Server:
        def make_connection() -> _Connection:
            return _Connection(self, self._transports)

        if not self.secret:
            return await self._loop.create_unix_server(make_connection, self.address.socket)
        server = await self._loop.create_server(make_connection, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        self.address = replace(self.address, endpoint=HostEndpoint(host=host, port=port, secret=self.secret))
        return server


class _Connection(asyncio.Protocol):
    def __init__(self, host: FakeHost, transports: set[asyncio.Transport]) -> None:
        self._host = host
        self._transports = transports
        self._reader = FrameReader(REQUEST_HEAD, body_limit=64 << 20)
        self._tasks: set[asyncio.Task[None]] = set()
        self._authenticated = not host.secret

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._transports.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transports.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        for number, kind, body in self._reader.feed(data):
            if kind == FrameKind.SECRET:
                self._authenticated = body.decode() == self._host.secret
                continue
            if not self._authenticated:
                self._transport.abort()
                return
            if kind == FrameKind.STATS:
                self._transport.write(ANSWER_HEAD.pack(2, number, 200) + b"{}")
                continue
            if kind == FrameKind.CANCEL:
                self._host.cancelled.append(number)
                continue
            self._host.seen.append((kind, body))
            task = asyncio.ensure_future(self._answer(number, kind, body))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, number: int, kind: int, body: bytes) -> None:
        response = await self._host.behaviour(kind, body)
        if response is not None:
            status, content = response
            self._transport.write(ANSWER_HEAD.pack(len(content), number, status) + content)
