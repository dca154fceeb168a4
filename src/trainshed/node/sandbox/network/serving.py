"""The event loop of a forwarder: the server's own ports, a proxy, redirected connections, and questions for names."""

from __future__ import annotations

import asyncio
import functools
import re
import socket
import struct
import time
from urllib.parse import urlsplit

from ...connect import (
    CONNECT_TIMEOUT_S,
    ESTABLISHED,
    MAX_HEAD_BYTES,
    ConnectError,
    Egress,
    forward,
    parse_connect,
    read_head,
)
from .outside import Outside
from .rules import NAMES, PROXY, REDIRECTED, original_destination

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Awaitable, Callable

    from ...connect import Streams

MAX_CONNECTIONS = 500
_RETRY_INTERVAL_S = 0.5
_NAME_TIMEOUT_S = 10.0
_MAX_QUESTIONS = 200
_NAME_BYTES = 4096
_DNS_PORT = 53
_RESET = struct.pack("ii", 1, 0)  #: instead of an end
_PLAIN = re.compile(rb"([A-Z]{3,10}) (http://[^ ]{1,8000}) HTTP/1\.[01]")
_OF_THIS_CONNECTION = (b"connection:", b"proxy-connection:", b"keep-alive:")


def serve(sockets: dict[str, socket.socket], spec: dict[str, Any]) -> None:
    """Serve on these sockets. Never returns."""
    asyncio.new_event_loop().run_until_complete(_Forwarder(spec).serve(sockets))


class _Forwarder:
    """Forwards the connections of one sandbox."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._outside = Outside(spec)
        self._ports = {str(port): (host, port) for host, port in spec["ports"]}
        self._connections = 0

    async def serve(self, sockets: dict[str, socket.socket]) -> None:
        for name, each in sockets.items():
            each.setblocking(False)
            if name == NAMES:
                await _serve_names(each)
                continue
            handlers = {PROXY: self._proxy, REDIRECTED: self._redirected}
            handle = handlers.get(name) or functools.partial(self._to_server, self._ports.get(name, ("", 0)))
            await asyncio.start_server(functools.partial(self._handle, handle), sock=each, limit=MAX_HEAD_BYTES)
        while True:
            await asyncio.sleep(3600)

    async def _handle(
        self,
        handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._connections += 1
        try:
            if self._connections > MAX_CONNECTIONS:
                raise ConnectError("503 Service Unavailable", "There are %d connections already." % MAX_CONNECTIONS)
            await handle(reader, writer)
        except ConnectError as exc:
            if handle == self._proxy:
                writer.write(_response(exc))
            else:  # the program sees a connection that was reset
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                writer.transport.abort()
        except (OSError, EOFError, asyncio.TimeoutError):  # the client is gone or slow
            pass
        finally:
            self._connections -= 1
            writer.close()

    async def _to_server(
        self, address: tuple[str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Retries a server that does not respond until the timeout, because it may be restarting."""
        deadline = time.monotonic() + CONNECT_TIMEOUT_S
        while True:
            try:
                upstream = await Egress().connect(*address)
                break
            except ConnectError:
                if deadline - time.monotonic() < _RETRY_INTERVAL_S:
                    raise
                await asyncio.sleep(_RETRY_INTERVAL_S)
        await forward((reader, writer), upstream)

    async def _redirected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address, port = original_destination(writer.get_extra_info("socket"))
        if (address, port) in self._ports.values():  # the server itself, on an address that others see too
            await self._to_server((address, port), reader, writer)
            return
        await forward((reader, writer), await self._outside.connect_to_address(address, port))

    async def _proxy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await read_head(reader)
        match = _PLAIN.fullmatch(head.split(b"\r\n", 1)[0])
        if match is None:
            upstream = await self._outside.connect(*parse_connect(head))
            writer.write(ESTABLISHED)
        else:
            upstream = await self._begin_plain(head, match)
        await forward((reader, writer), upstream)

    async def _begin_plain(self, head: bytes, match: re.Match[bytes]) -> Streams:
        """Send one request of plain HTTP on. It is the last one of its connection, since the next may be for another
        host."""
        url = urlsplit(match.group(2).decode("latin-1"))
        try:
            host, port = url.hostname or "", url.port or 80
        except ValueError:
            host, port = "", 0
        if not host:
            raise ConnectError("400 Bad Request", "The request has no URL like http://HOST:PORT/PATH.")
        upstream = await self._outside.connect(host, port)
        target = (url.path or "/") + ("?" + url.query if url.query else "")
        lines = head.split(b"\r\n")[1:-2]
        kept = [line for line in lines if not line.lower().startswith(_OF_THIS_CONNECTION)]
        first = b"%s %s HTTP/1.1" % (match.group(1), target.encode("latin-1"))
        upstream[1].write(b"\r\n".join([first, *kept, b"Connection: close", b"", b""]))
        return upstream


def _response(exc: ConnectError) -> bytes:
    body = ("%s\n" % exc).encode()
    head = "HTTP/1.1 %s\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
    return (head % (exc.status, len(body))).encode() + body


async def _serve_names(listener: socket.socket) -> None:
    loop = asyncio.get_event_loop()
    await loop.create_datagram_endpoint(lambda: _Questions(_name_server()), sock=listener)


def _name_server() -> str:
    """The machine's name server. Empty if there is none."""
    try:
        with open("/etc/resolv.conf") as file:
            words = [line.split() for line in file]
    except OSError:
        return ""
    return next((each[1] for each in words if len(each) > 1 and each[0] == "nameserver"), "")


class _Questions(asyncio.DatagramProtocol):
    """Sends questions for names to the machine's name server, each from a port of its own, and answers back."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._pending: set[asyncio.Task[None]] = set()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        if self._server and len(self._pending) < _MAX_QUESTIONS and len(data) <= _NAME_BYTES:
            task = asyncio.ensure_future(self._ask(data, address))
            self._pending.add(task)
            task.add_done_callback(self._pending.discard)

    async def _ask(self, data: bytes, address: Any) -> None:
        loop = asyncio.get_event_loop()
        answer: asyncio.Future[bytes] = loop.create_future()
        try:
            transport, _ = await loop.create_datagram_endpoint(
                lambda: _Answer(answer), remote_addr=(self._server, _DNS_PORT)
            )
        except OSError:
            return  # the program asks again, as it does if a packet is lost
        try:
            self._transport.sendto(await self._answered(transport, data, answer), address)
        except (OSError, asyncio.TimeoutError):
            pass  # as above
        finally:
            transport.close()

    async def _answered(self, transport: Any, data: bytes, answer: asyncio.Future[bytes]) -> bytes:
        transport.sendto(data)
        return await asyncio.wait_for(answer, _NAME_TIMEOUT_S)


class _Answer(asyncio.DatagramProtocol):
    def __init__(self, answer: asyncio.Future[bytes]) -> None:
        self._answer = answer

    def datagram_received(self, data: bytes, address: Any) -> None:
        if not self._answer.done():
            self._answer.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self._answer.done():
            self._answer.set_exception(exc)
