"""The ports of the server: connections and handshakes are counted, make room, and hold up no shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import cast

import pytest
import uvicorn
import uvloop
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from trainshed.api import acceptor
from trainshed.api.acceptor import Acceptor
from trainshed.api.listener import listener_config
from trainshed.api.ml.fast_path import FastPath
from trainshed.api.uvicorn_adapter import Listener
from trainshed.certificates import Certificates, ensure_certificates
from trainshed.connections import Connections
from trainshed.proxy.connect_proxy import tls_context
from trainshed.services.registry import Services

REQUEST = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(b"served")(scope, receive, send)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return ensure_certificates(tmp_path_factory.mktemp("tls") / "certificates", hosts=("localhost",))


@dataclass
class Port:
    """A TLS port that serves, with room for three connections."""

    certificates: Certificates
    address: tuple[str, int]
    acceptor: Acceptor
    uvicorn: Listener
    connections: Connections
    serving: asyncio.Task[None]

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect without a handshake."""
        return await asyncio.open_connection(*self.address)

    async def shake_hands(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context(cafile=str(self.certificates.authority))
        return await asyncio.open_connection(*self.address, ssl=context, server_hostname="localhost")

    async def counts(self, number: int) -> None:
        while len(self.connections) != number:
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def opened(certificates: Certificates) -> AsyncIterator[Port]:
    connections = Connections(maximum=3)
    fast_path = FastPath(cast(Services, None), authentication=True, body_limit=0)
    config: uvicorn.Config = listener_config(app, fast_path=fast_path, connections=connections)
    config.timeout_graceful_shutdown = 3600  # whoever waits for it fails
    served = Listener(config)
    sock = socket.create_server(("127.0.0.1", 0))
    context = tls_context(certificates.chain, certificates.key)
    port = Acceptor(sock, connections, lambda: served.protocol(config), context=context)
    serving = asyncio.create_task(served.serve(sockets=[]))
    while not served.is_ready:
        await asyncio.sleep(0.005)
    port.start()
    try:
        yield Port(certificates, sock.getsockname(), port, served, connections, serving)
    finally:
        port.stop()
        served.stop()
        await serving


def run(certificates: Certificates, scenario: Callable[[Port], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(90), opened(certificates) as port:
            await scenario(port)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_a_connection_is_counted_once_from_its_acceptance_on(certificates: Certificates) -> None:
    async def scenario(port: Port) -> None:
        _, silent = await port.open()
        await port.counts(1)
        reader, writer = await port.shake_hands()
        writer.write(REQUEST)
        assert b" 200 " in await reader.readline()
        await port.counts(2)
        silent.close()
        await port.counts(1)
        writer.close()
        await port.counts(0)

    run(certificates, scenario)


def test_a_hello_that_is_there_before_the_connection_is_accepted_is_read(certificates: Certificates) -> None:
    """So is a request that comes with the end of the handshake."""

    def call(address: tuple[str, int]) -> bytes:
        context = ssl.create_default_context(cafile=str(certificates.authority))
        received = b""
        with socket.create_connection(address) as plain, context.wrap_socket(plain, server_hostname="localhost") as own:
            own.sendall(REQUEST)
            while b"served" not in received:
                received += own.recv(65_536)
        return received

    async def scenario(port: Port) -> None:
        for _ in range(20):
            reader, writer = await port.open()
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            client = ssl.create_default_context(cafile=str(certificates.authority)).wrap_bio(
                incoming, outgoing, server_hostname="localhost"
            )
            with pytest.raises(ssl.SSLWantReadError):
                client.do_handshake()
            writer.write(outgoing.read())
            incoming.write(await reader.read(65_536))
            client.do_handshake()
            client.write(REQUEST)
            writer.write(outgoing.read())  # the end of the handshake and the request in one piece
            answer = b""
            while b"served" not in answer:
                incoming.write(await reader.read(65_536))
                with contextlib.suppress(ssl.SSLWantReadError):
                    while piece := client.read(65_536):
                        answer += piece
            writer.close()
            assert b"served" in await asyncio.to_thread(call, port.address)

    run(certificates, scenario)


@pytest.mark.parametrize("sent", [b"", HALF_A_HELLO], ids=["silent", "half a hello"])
def test_the_oldest_handshake_makes_room(certificates: Certificates, sent: bytes) -> None:
    async def scenario(port: Port) -> None:
        held = [await port.open() for _ in range(3)]
        for _, writer in held:
            writer.write(sent)
        await port.counts(3)
        reader, writer = await port.shake_hands()
        writer.write(REQUEST)
        assert b" 200 " in await reader.readline()
        with contextlib.suppress(ConnectionError):
            assert await held[0][0].read() == b""
        for _, each in (*held, (reader, writer)):
            each.close()

    run(certificates, scenario)


@pytest.mark.parametrize("sent", [b"", HALF_A_HELLO], ids=["silent", "half a hello"])
def test_a_handshake_has_a_deadline(certificates: Certificates, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "HANDSHAKE_TIMEOUT_S", 0.2)

    async def scenario(port: Port) -> None:
        reader, writer = await port.open()
        writer.write(sent)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        await port.counts(0)
        writer.close()

    run(certificates, scenario)


def test_handshakes_begin_in_turn_when_their_clients_have_sent_something(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(port: Port) -> None:
        loop, start = asyncio.get_running_loop(), port.acceptor._start
        turn, turns = 0, list[int]()

        def count() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(count)

        def started(handshake: acceptor._Handshake) -> None:
            turns.append(turn)
            start(handshake)

        monkeypatch.setattr(port.acceptor, "_start", started)
        held = [await port.open() for _ in range(3)]
        await port.counts(3)
        assert turns == []
        count()
        for _, writer in held:
            writer.write(HALF_A_HELLO)
        while len(turns) < 3:
            await asyncio.sleep(0)
        assert len(set(turns)) == 3
        for _, writer in held:
            writer.close()

    run(certificates, scenario)


def test_a_stop_waits_neither_for_idle_clients_nor_for_handshakes(certificates: Certificates) -> None:
    async def scenario(port: Port) -> None:
        context = ssl.create_default_context(cafile=str(certificates.authority))
        with socket.create_connection(port.address) as plain, socket.create_connection(port.address) as stalled:
            stalled.sendall(HALF_A_HELLO)
            plain.setblocking(True)
            idle = await asyncio.to_thread(context.wrap_socket, plain, server_hostname="localhost")
            await port.counts(2)
            port.acceptor.stop()
            port.uvicorn.stop()
            await port.serving  # although the client does not read that its connection ends
            await port.counts(0)
            idle.close()
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await port.open()

    run(certificates, scenario)


def test_connections_wait_while_there_is_no_descriptor_left(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "ACCEPT_RETRY_INTERVAL_S", 0.05)

    async def scenario(port: Port) -> None:
        real = port.acceptor._listener
        failures = iter([OSError(24, "Too many open files")] * 3)

        class Full:
            """The listening socket of a process that has no descriptor left for a while."""

            def accept(self) -> tuple[socket.socket, tuple[str, int]]:
                for error in failures:
                    raise error
                return real.accept()

            def fileno(self) -> int:
                return real.fileno()

            def close(self) -> None:
                real.close()

        port.acceptor._listener = cast(socket.socket, Full())
        reader, writer = await port.shake_hands()
        writer.write(REQUEST)
        assert b" 200 " in await reader.readline()
        assert next(failures, None) is None
        writer.close()

    run(certificates, scenario)


class _Seen(asyncio.Protocol):
    """Counts itself as a connection."""

    is_idle = True

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._connections.add(self, "127.0.0.1")

    def evict(self) -> None:
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self)


@pytest.mark.parametrize("turns", range(6))
def test_a_connection_that_is_evicted_as_it_begins_is_counted_no_longer(turns: int) -> None:
    """`turns` of the event loop lie between both."""

    async def main() -> None:
        connections = Connections()
        port = Acceptor(listener, connections, lambda: _Seen(connections))
        port.start()
        client = socket.create_connection(listener.getsockname())
        client.setblocking(False)
        while not len(connections):
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        connections.close("", 1)
        with client, contextlib.suppress(ConnectionResetError):
            assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
        port.stop()
        assert len(connections) == 0

    with socket.create_server(("127.0.0.1", 0)) as listener, asyncio.Runner(loop_factory=uvloop.new_event_loop) as run:
        run.run(main())
