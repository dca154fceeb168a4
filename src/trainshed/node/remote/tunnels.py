"""The event loop of the sidecar proxy: accepts CONNECT requests and connects them to the server or the egress."""

from __future__ import annotations

import asyncio
import os
import re
import time

from ..connect import (
    CONNECT_TIMEOUT_S,
    ESTABLISHED,
    HTTPS_PORT,
    MAX_HEAD_BYTES,
    ConnectError,
    Egress,
    forward,
    read_request,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

    from ..connect import Streams

MAX_CONNECTIONS = 500
_RETRY_INTERVAL_S = 0.5


class EgressRoutes:
    """The egress of each host: to the server, through this machine's own proxy, or direct."""

    def __init__(self, route: dict[str, Any], env: Any) -> None:
        self._server = (route["host"], route["port"])
        self._intercepted = re.compile(route["names"])
        bypass = env.get("no_proxy") or env.get("NO_PROXY") or ""
        try:
            self._egress = Egress(env.get("https_proxy") or env.get("HTTPS_PROXY") or "", bypass)
        except ValueError:  # a proxy of another kind is no use to a tunnel
            self._egress = Egress()

    def is_intercepted(self, host: str, port: int) -> bool:
        return port == HTTPS_PORT and self._intercepted.fullmatch(host.lower()) is not None

    async def connect(self, host: str, port: int) -> Streams:
        """Connect to a host, or to the server in its place. Raises `ConnectError`, with the reason, if that fails.

        Retries a server that does not respond until the timeout, because it may be restarting.
        """
        if not self.is_intercepted(host, port):
            return await self._egress.connect(host, port)
        deadline = time.monotonic() + CONNECT_TIMEOUT_S
        while True:
            try:
                return await Egress().connect(*self._server)
            except ConnectError:
                if deadline - time.monotonic() < _RETRY_INTERVAL_S:
                    raise
                await asyncio.sleep(_RETRY_INTERVAL_S)


def serve(listener: socket.socket, route: dict[str, Any]) -> None:
    """Serve on `listener`. Never returns."""
    asyncio.new_event_loop().run_until_complete(_serve(listener, EgressRoutes(route, os.environ)))


async def _serve(listener: socket.socket, routes: EgressRoutes) -> None:
    listener.setblocking(False)
    connections: set[Any] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = object()
        connections.add(connection)
        try:
            if len(connections) > MAX_CONNECTIONS:
                raise ConnectError("503 Service Unavailable", "There are %d connections already." % MAX_CONNECTIONS)
            upstream = await routes.connect(*await read_request(reader))
            writer.write(ESTABLISHED)
            await forward((reader, writer), upstream)
        except ConnectError as exc:
            body = ("%s\n" % exc).encode()
            headers = "HTTP/1.1 %s\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            writer.write((headers % (exc.status, len(body))).encode() + body)
        except (OSError, EOFError, asyncio.TimeoutError):  # the client is gone or slow
            pass
        finally:
            connections.discard(connection)
            writer.close()

    await asyncio.start_server(handle, sock=listener, limit=MAX_HEAD_BYTES)
    while True:
        await asyncio.sleep(3600)
