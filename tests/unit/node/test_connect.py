"""CONNECT tunnels: requests, the way out, and what happens when one end stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from trainshed.node import connect
from trainshed.node.connect import ConnectError, Egress, forward, read_request

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def parsed(text: bytes) -> tuple[str, int]:
    reader = asyncio.StreamReader(limit=connect.MAX_HEAD_BYTES)
    reader.feed_data(text)
    reader.feed_eof()
    return await read_request(reader)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n", ("example.com", 443)),
        (b"CONNECT [::1]:8080 HTTP/1.0\r\n\r\n", ("::1", 8080)),
        (b"CONNECT a:1 HTTP/1.1\r\n" + b"X: 1\r\n" * connect.MAX_HEADERS + b"\r\n", ("a", 1)),
    ],
)
def test_a_request_names_a_host_and_a_port(text: bytes, target: tuple[str, int]) -> None:
    assert asyncio.run(parsed(text)) == target


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "400"),
        (b"CONNECT a:0 HTTP/1.1\r\n\r\n", "400"),
        (b"CONNECT a:65536 HTTP/1.1\r\n\r\n", "400"),
        (b"CONNECT me@a:443 HTTP/1.1\r\n\r\n", "400"),
        (b"CONNECT a:1 HTTP/1.1\r\n" + b"X: 1\r\n" * (connect.MAX_HEADERS + 1) + b"\r\n", "431"),
        (b"CONNECT a:1 HTTP/1.1\r\nX: " + b"x" * connect.MAX_HEAD_BYTES, "431"),
    ],
)
def test_anything_else_is_refused(text: bytes, status: str) -> None:
    with pytest.raises(ConnectError) as refused:
        asyncio.run(parsed(text))
    assert refused.value.status.startswith(status)


@asynccontextmanager
async def listening(handler: Handler) -> AsyncIterator[int]:
    async with await asyncio.start_server(handler, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def tunnel_to(
    upstream: Handler,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, asyncio.Event]]:
    """A client's end of a tunnel to `upstream`, and an event that is set when the tunnel has ended."""
    ended = asyncio.Event()

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await forward((reader, writer), await Egress().connect("127.0.0.1", upstream_port))
        writer.close()
        ended.set()

    async with listening(upstream) as upstream_port, listening(tunnel) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        yield reader, writer, ended
        writer.close()
        await writer.wait_closed()


def test_the_end_of_one_direction_leaves_the_other_open() -> None:
    async def answer_at_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"heard " + await reader.read())
        writer.close()

    async def use() -> bytes:
        async with tunnel_to(answer_at_the_end) as (reader, writer, ended):
            writer.write(b"all")
            writer.write_eof()
            answer = await reader.read()
            await ended.wait()
            return answer

    assert asyncio.run(asyncio.wait_for(use(), 60)) == b"heard all"


def test_a_silent_direction_is_cut_after_the_other_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "HALF_CLOSE_TIMEOUT_S", 0.05)

    async def use() -> None:
        done = asyncio.Event()

        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            await done.wait()
            writer.close()

        async with tunnel_to(say_nothing) as (reader, writer, ended):
            writer.write_eof()
            await ended.wait()
            assert await reader.read() == b""
            done.set()

    asyncio.run(asyncio.wait_for(use(), 60))


def test_a_proxy_that_refuses_is_quoted() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
        writer.close()

    async def use() -> None:
        async with listening(refuse) as port:
            await Egress(f"http://127.0.0.1:{port}").connect("example.com", 443)

    with pytest.raises(ConnectError, match=r"does not let us through to example\.com:443: .*407"):
        asyncio.run(asyncio.wait_for(use(), 60))


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example"])
def test_a_name_that_no_host_can_have_is_refused(host: str) -> None:
    with pytest.raises(ConnectError, match="can't be reached"):
        asyncio.run(Egress().connect(host, 443))


def test_a_tunnel_in_which_nobody_sends_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "TUNNEL_IDLE_TIMEOUT_S", 0.05)

    async def use() -> bytes:
        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        async with tunnel_to(say_nothing) as (reader, _, ended):
            await ended.wait()
            return await reader.read()

    assert asyncio.run(asyncio.wait_for(use(), 60)) == b""
