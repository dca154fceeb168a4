"""Passing requests on to a process on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from trainshed.errors import UnavailableError
from trainshed.gateway.reverse_proxy import ProxiedResponse, forward
from trainshed.testing.processes.resources import held_port

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def asked(serve: Serve, use: Callable[[int], Awaitable[None]]) -> None:
    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            await use(server.sockets[0].getsockname()[1])

    asyncio.run(run())


async def whole(answer: ProxiedResponse) -> bytes:
    return b"".join([piece async for piece in answer.pieces])


def test_a_request_goes_there_and_its_answer_comes_back() -> None:
    seen = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        seen = await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(3)
        writer.write(b"HTTP/1.0 201 Made\r\ncontent-type: text/x\r\nX-Two: 2\r\n\r\n" + b"x" * 200_000)
        await writer.drain()
        writer.close()

    async def use(port: int) -> None:
        answer = await forward(port, "POST", b"/a%20b?c=d", [("accept", "*/*")], b"abc")
        assert answer.status == 201
        assert list(answer.headers) == [("content-type", "text/x"), ("X-Two", "2")]
        assert await whole(answer) == b"x" * 200_000
        assert seen == (
            b"POST /a%20b?c=d HTTP/1.0\r\nhost: 127.0.0.1:"
            + str(port).encode()
            + b"\r\naccept: */*\r\ncontent-length: 3\r\n\r\nabc"
        )

    asked(serve, use)


@pytest.mark.parametrize(
    "said",
    [
        *(b"", b"HTTP/1.0 200", b"SSH-2.0\r\n\r\n", b"HTTP/1.0 x y\r\n\r\n", b"x" * 70_000),
        *(b"HTTP/1.0 100 Continue\r\n\r\n", b"HTTP/1.0 999 Odd\r\n\r\n"),
        b"HTTP/1.0 200 OK\r\netag: a\r\n set-cookie: b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n",
    ],
)
def test_what_is_no_answer_is_an_error(said: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        writer.close()

    async def use(port: int) -> None:
        with pytest.raises(UnavailableError, match="broke off"):
            await forward(port, "GET", b"/", [], b"")

    asked(serve, use)


def test_nobody_there_is_an_error() -> None:
    with held_port() as port, pytest.raises(UnavailableError, match="does not answer"):
        asyncio.run(forward(port, "GET", b"/", [], b""))
