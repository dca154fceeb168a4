"""Clients that ask and then do not read the answer."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from trainshed.api import protocol
from trainshed.api.ml.fast_path import FastPath
from trainshed.api.protocol import TimedProtocol
from trainshed.services.registry import Services


class Large:
    """Answers everything with more than the buffers on the way hold."""

    fast_path = FastPath(cast(Services, None), authentication=True, body_limit=0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Response(bytes(32 << 20))(scope, receive, send)


async def _let_go(request: bytes) -> bool:
    """Whether a client that sends this, and reads nothing, is let go."""
    config, state = Config(Large(), lifespan="off", timeout_keep_alive=1, log_config=None), ServerState()
    config.load()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: TimedProtocol(config, state, {}), "127.0.0.1", 0)
    async with server:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(server.sockets[0].getsockname())
            client.sendall(request)
            async with asyncio.timeout(90):
                while not state.total_requests:
                    await asyncio.sleep(0.01)
                while state.connections:
                    await asyncio.sleep(0.01)
    return True


@pytest.mark.parametrize("header", [b"", b"connection: close\r\n"])
def test_who_takes_nothing_of_an_answer_is_let_go(monkeypatch: pytest.MonkeyPatch, header: bytes) -> None:
    monkeypatch.setattr(protocol, "CHECK_INTERVAL_S", 0.05)
    monkeypatch.setattr(protocol, "HEADERS_TIMEOUT_S", 0.2)
    monkeypatch.setattr(protocol, "BODY_TIMEOUT_S", 0.5)
    assert asyncio.run(_let_go(b"GET / HTTP/1.1\r\nhost: localhost\r\n" + header + b"\r\n"))
