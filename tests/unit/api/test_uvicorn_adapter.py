"""What the adapter needs of uvicorn is there, and clients that go silent are let go: they do not send the rest of a
request, or do not read the response."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import gc
import inspect
import socket
import subprocess
import sys
import weakref
from typing import Any, cast

import pytest
import uvicorn
import uvloop
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from trainshed.api import uvicorn_adapter
from trainshed.api.ml.fast_path import FastPath, FastPathExchange
from trainshed.api.unread_responses import UnreadResponses
from trainshed.api.uvicorn_adapter import TimedProtocol
from trainshed.connections import Connections
from trainshed.gateway.gateway import PredictionGateway
from trainshed.gateway.routes import PredictTarget
from trainshed.services.registry import Services
from trainshed.serving.frames import FrameKind

FAST_PATH = FastPath(cast(Services, None), authentication=True, body_limit=0)


class Large:
    """Reads each request and answers it with more than the buffers on the way hold."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive()).get("more_body"):
            pass
        if message["type"] == "http.request":
            await Response(bytes(32 << 20))(scope, receive, send)


async def _let_go(sent: bytes) -> bool:
    """Whether a client that sends this, and then neither sends nor reads, is let go."""
    config, state = Config(Large(), lifespan="off", timeout_keep_alive=1, log_config=None), ServerState()
    config.load()
    loop = asyncio.get_running_loop()
    lost = asyncio.Event()

    class Watched(TimedProtocol):
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            lost.set()

    server = await loop.create_server(
        lambda: Watched(config, state, {}, fast_path=FAST_PATH, connections=Connections(), unread=UnreadResponses()),
        "127.0.0.1",
        0,
    )
    async with server:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(server.sockets[0].getsockname())
            client.sendall(sent)
            async with asyncio.timeout(90):
                await lost.wait()
    return True


class Kept(TimedProtocol):
    """Keeps itself and its request in the middle of it, when uvicorn has made all that it makes."""

    found: list[Kept] = []  # noqa: RUF012  set anew by the test

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self.found.append(self)


def test_every_undocumented_name_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kept, "found", [])

    async def use() -> None:
        config, state = Config(Large(), lifespan="off", log_config=None), ServerState()
        config.load()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: Kept(config, state, {}, fast_path=FAST_PATH, connections=Connections(), unread=UnreadResponses()),
            "127.0.0.1",
            0,
        )
        async with server, asyncio.timeout(90):
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(HEADERS + b"content-length: 100\r\n\r\n{")
            while not Kept.found:
                await asyncio.sleep(0.01)
            [protocol] = Kept.found
            assert isinstance(protocol.cycle, RequestResponseCycle)
            absent = [name for name in uvicorn_adapter.PROTOCOL_NAMES if not _has(protocol, name)]
            absent += [f"config.{name}" for name in uvicorn_adapter.CONFIG_NAMES if not _has(config, name)]
            served = uvicorn.Server(config)
            absent += [f"server.{name}" for name in uvicorn_adapter.SERVER_NAMES if not _has(served, name)]
            absent += [f"cycle.{name}" for name in uvicorn_adapter.CYCLE_NAMES if not _has(protocol.cycle, name)]
            exchange = FastPathExchange(
                protocol,
                cast(PredictionGateway, None),
                PredictTarget(project="p", model="m", kind=FrameKind.PREDICT),
                keep_alive=True,
            )
            absent += [f"exchange.{name}" for name in uvicorn_adapter.CYCLE_NAMES if not _has(exchange, name)]
            assert absent == []
            writer.close()
            await writer.wait_closed()

    asyncio.run(use())


@pytest.mark.parametrize("protocol", [H11Protocol, HttpToolsProtocol])
def test_every_protocol_has_the_arguments_that_it_is_created_with(protocol: type[asyncio.Protocol]) -> None:
    """Besides them it needs none."""
    parameters = inspect.signature(protocol).parameters
    assert {name for name, each in parameters.items() if each.default is each.empty} == set(
        uvicorn_adapter.PROTOCOL_ARGUMENTS
    )


def test_the_lists_have_what_is_used_of_server_and_configuration() -> None:
    config = Config(Large(), log_config=None)
    config.load()
    documented = {"run", "serve", *inspect.signature(Config).parameters}
    internals = {*dir(config), *dir(uvicorn.Server(config))} - documented - set(dir(Large))
    tree = ast.parse(inspect.getsource(uvicorn_adapter))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used |= set(vars(uvicorn_adapter.Listener))  # what it replaces
    listed = _parts(*uvicorn_adapter.SERVER_NAMES, *uvicorn_adapter.CONFIG_NAMES)
    assert listed - used == set(), "nothing uses them"
    assert (used & internals) - listed - _parts(*uvicorn_adapter.PROTOCOL_NAMES) - set(dir(type)) == set()


def _parts(*names: str) -> set[str]:
    return {part for name in names for part in name.split(".")}


def test_another_version_of_uvicorn_may_lack_its_protocol() -> None:
    """The listener is there all the same, and serves without the fast path."""
    code = """
import sys, importlib.metadata as metadata
installed = metadata.version
metadata.version = lambda name: "0.999.1" if name == "uvicorn" else installed(name)
sys.modules["uvicorn.protocols.http.httptools_impl"] = None
from trainshed.api.listener import listener_config
from trainshed.api.uvicorn_adapter import Listener, installed_versions, unknown_versions
from trainshed.connections import Connections
assert "uvicorn 0.999.1" in unknown_versions(installed_versions())
config = listener_config(lambda scope: None, fast_path=None, connections=Connections())
Listener(config).protocol
print(config.http)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("h11\n", "")


def _has(subject: object, name: str) -> bool:
    first, _, rest = name.partition(".")
    return hasattr(subject, first) and (not rest or _has(getattr(subject, first), rest))


HEADERS = b"GET / HTTP/1.1\r\nhost: localhost\r\n"


@pytest.mark.fault("F60")
@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"GET / HTTP/1.1\r\nhost: loc", id="half of the headers"),
        pytest.param(HEADERS + b"content-length: 100\r\n\r\n{", id="a byte of the body"),
        pytest.param(HEADERS + b"\r\n", id="a request, and reads no response"),
        pytest.param(HEADERS + b"connection: close\r\n\r\n", id="its last request, and reads no response"),
    ],
)
def test_a_silent_client_is_let_go(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(uvicorn_adapter, "CHECK_INTERVAL_S", 0.05)
    monkeypatch.setattr(uvicorn_adapter, "BODY_TIMEOUT_S", 0.5)
    assert asyncio.run(_let_go(sent))


class Noting:
    """Notes how much of the body is there when a request begins."""

    def __init__(self) -> None:
        self.begun: list[int] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun.append(len(scope["trainshed.client"].cycle.body))
        while (await receive()).get("more_body"):
            pass
        await Response(b"done")(scope, receive, send)


async def _begin(headers: bytes) -> list[int]:
    """How much of a body of ten bytes, sent in two halves, is there when its request begins."""
    app = Noting()
    config, state = Config(app, lifespan="off", log_config=None), ServerState()
    config.load()
    server = await asyncio.get_running_loop().create_server(
        lambda: Kept(config, state, {}, fast_path=FAST_PATH, connections=Connections(), unread=UnreadResponses()),
        "127.0.0.1",
        0,
    )
    async with server, asyncio.timeout(90):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        for number in (1, 2):  # on one connection
            writer.write(b"POST / HTTP/1.1\r\nhost: localhost\r\n%bcontent-length: 10\r\n\r\n" % headers)
            if b"expect" in headers:
                await reader.readuntil(b"100 Continue\r\n\r\n")
            writer.write(b"12345")
            while len(app.begun if headers else Kept.found) < number:
                await asyncio.sleep(0.01)
            writer.write(b"67890")
            await reader.readuntil(b"done")
            Kept.found[number:] = []
        writer.close()
        await writer.wait_closed()
    return app.begun


def test_a_client_with_a_token_may_be_idle_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It trains between two requests, and fails if its TLS connection is closed meanwhile."""
    monkeypatch.setattr(uvicorn_adapter, "CHECK_INTERVAL_S", 0.05)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/with-token":
            scope["trainshed.client"].set_authenticated()
        await Response(b"ok")(scope, receive, send)

    async def scenario() -> bool:
        config, state = Config(app, lifespan="off", timeout_keep_alive=1, log_config=None), ServerState()
        config.load()
        protocols: list[TimedProtocol] = []

        def create() -> TimedProtocol:
            options: Any = {"fast_path": FAST_PATH, "connections": Connections(), "unread": UnreadResponses()}
            protocols.append(TimedProtocol(config, state, {}, **options))
            return protocols[-1]

        server = await asyncio.get_running_loop().create_server(create, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with server:
            streams = []
            for path in (b"/with-token", b"/"):
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(b"GET %b HTTP/1.1\r\nHost: here\r\n\r\n" % path)
                assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
                streams.append((reader, writer))
            assert await streams[1][0].read() == b""  # closed, though the other one is idle for longer
            streams[0][1].write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            answer = await streams[0][0].readuntil(b"ok")
            for _, writer in streams:
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()
            while not protocols[0].gone:
                await asyncio.sleep(0.01)
            return answer.startswith(b"HTTP/1.1 200")

    assert asyncio.run(scenario())


@pytest.mark.parametrize(
    ("headers", "awaited"),
    [
        (b"", True),
        (b"authorization: Bearer x\r\n", False),
        (b"cookie: a=b\r\n", False),
        (b"expect: 100-continue\r\n", False),
    ],
)
def test_a_request_without_credentials_begins_when_its_body_is_complete(
    monkeypatch: pytest.MonkeyPatch, headers: bytes, awaited: bool
) -> None:
    """Clients that never send the rest are to cost nothing."""
    monkeypatch.setattr(Kept, "found", [])
    assert [size == 10 for size in asyncio.run(_begin(headers))] == [awaited] * 2


async def _closed(sent: bytes) -> bool:
    """Whether nothing is left of a connection that is closed, without a run of the garbage collector."""
    config, state = Config(Trusting(), lifespan="off", log_config=None), ServerState()
    config.load()
    made: list[weakref.ref[TimedProtocol]] = []

    def create() -> TimedProtocol:
        protocol = TimedProtocol(
            config, state, {}, fast_path=FAST_PATH, connections=Connections(), unread=UnreadResponses()
        )
        made.append(weakref.ref(protocol))
        return protocol

    server = await asyncio.get_running_loop().create_server(create, "127.0.0.1", 0)
    async with server, asyncio.timeout(90):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(sent)
        if sent.endswith(b"\r\n\r\n"):
            await reader.readuntil(b"done")
        writer.close()
        await writer.wait_closed()
        while not made or made[0]() is not None:
            await asyncio.sleep(0.01)
    return True


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhost: loc", b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"])
def test_a_closed_connection_leaves_nothing_to_the_garbage_collector(sent: bytes) -> None:
    """A collection stops the event loop, and is the longer the more connections there are."""
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            assert runner.run(_closed(sent))
    finally:
        gc.enable()


class Trusting:
    """Reads each request to its end, as one with a token if it says so."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/trusted":
            scope["trainshed.client"].set_authenticated()
        while (message := await receive()).get("more_body"):
            pass
        if message["type"] == "http.request":
            await Response(b"done")(scope, receive, send)


async def _trickle(path: bytes, pieces: int) -> bytes:
    """The response to a request whose body arrives byte by byte."""
    config, state = Config(Trusting(), lifespan="off", log_config=None), ServerState()
    config.load()
    loop, table = asyncio.get_running_loop(), Connections()
    server = await loop.create_server(
        lambda: TimedProtocol(config, state, {}, fast_path=FAST_PATH, connections=table, unread=UnreadResponses()),
        "127.0.0.1",
        0,
    )
    async with server, asyncio.timeout(90):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        headers = b"host: localhost\r\nconnection: close\r\ncontent-length: %d" % pieces
        if path == b"/trusted":
            headers += b"\r\nauthorization: Bearer x"
        writer.write(b"POST %b HTTP/1.1\r\n%b\r\n\r\n" % (path, headers))
        for _ in range(pieces):
            if reader.at_eof() or reader.exception() is not None:  # closed, or reset since bytes were on their way
                break
            writer.write(b"x")
            await asyncio.sleep(0.02)
        response = b""
        with contextlib.suppress(ConnectionError):
            response = await reader.read()
        writer.close()
    return response


def test_a_body_that_nobody_has_shown_a_token_for_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is let go although it goes on, at less than the least rate."""
    monkeypatch.setattr(uvicorn_adapter, "CHECK_INTERVAL_S", 0.05)
    monkeypatch.setattr(uvicorn_adapter, "UNAUTHENTICATED_BODY_TIMEOUT_S", 0.2)
    assert b" 200 " in asyncio.run(_trickle(b"/trusted", 50))
    assert asyncio.run(_trickle(b"/", 5000)) == b""
    monkeypatch.setattr(uvicorn_adapter, "UNAUTHENTICATED_BODY_BYTES_PER_S", 1)
    assert b" 200 " in asyncio.run(_trickle(b"/", 50))


class Slow:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked, self.answer = asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.set()
        await self.answer.wait()
        await Response(b"late")(scope, receive, send)
        self.asked.clear()


async def _refused_behind() -> tuple[bytes, bool]:
    """What a client reads that sends no HTTP while its request is in progress, and whether the request came to its
    end."""
    app, table = Slow(), Connections()
    config, state = Config(app, lifespan="off", log_config=None), ServerState()
    config.load()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: TimedProtocol(config, state, {}, fast_path=FAST_PATH, connections=table, unread=UnreadResponses()),
        "127.0.0.1",
        0,
    )
    async with server, asyncio.timeout(90):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer x\r\n\r\n")
        await app.asked.wait()
        writer.write(b"no HTTP\r\n\r\n")
        read = await reader.read()
        app.answer.set()
        await asyncio.gather(*state.tasks)
        writer.close()
    return read, not app.asked.is_set()


def test_bytes_behind_a_request_that_are_none_end_the_connection_quietly() -> None:
    """The response to the request is dropped: writing it behind the end would be an error of the server."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        read, ended = runner.run(_refused_behind())
    assert read.startswith(b"HTTP/1.1 400 ")
    assert read.count(b"HTTP/1.1 ") == 1
    assert ended
