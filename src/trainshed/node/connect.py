"""CONNECT tunnels of the server's proxy and the sidecar proxy: the request, the egress, and the forwarding."""

from __future__ import annotations

import asyncio
import base64
import re
from urllib.parse import unquote, urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

    Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

HTTPS_PORT = 443
HEADERS_TIMEOUT_S = 15.0
CONNECT_TIMEOUT_S = 20.0
HALF_CLOSE_TIMEOUT_S = 300.0  #: for the other direction after one has ended
TUNNEL_IDLE_TIMEOUT_S = 900.0  #: of a tunnel in which neither side sends
MAX_HEAD_BYTES = 65536  #: of a request; the limit of its stream
MAX_HEADERS = 100
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_CHUNK_BYTES = 65536
_CONNECT = re.compile(rb"CONNECT (\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):(\d{1,5}) HTTP/1\.[01]")


class ConnectError(Exception):
    """The client gets this status line and message."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


async def read_request(reader: asyncio.StreamReader) -> tuple[str, int]:
    """Read a CONNECT request and return its host and port.

    Raises `ConnectError` if it is something else, and `EOFError` or `asyncio.TimeoutError` if it does not arrive.
    """
    return parse_connect(await read_head(reader))


async def read_head(reader: asyncio.StreamReader) -> bytes:
    """Read the head of a request, with the empty line at its end. Raises as `read_request` does."""
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEADERS_TIMEOUT_S)
    except asyncio.LimitOverrunError:
        raise _too_large("The head of the request is longer than %d bytes." % MAX_HEAD_BYTES) from None
    if head.count(b"\r\n") > 2 + MAX_HEADERS:
        raise _too_large("The request has more than %d headers." % MAX_HEADERS)
    return head


def parse_connect(head: bytes) -> tuple[str, int]:
    """The host and port of a CONNECT request. Raises `ConnectError` if it is something else."""
    match = _CONNECT.fullmatch(head.split(b"\r\n", 1)[0])
    if match is None or not 0 < int(match.group(2)) <= 65535:
        raise ConnectError(
            "400 Bad Request",
            "This proxy knows one request only: 'CONNECT HOST:PORT HTTP/1.1'. Set https_proxy to it, not http_proxy.",
        )
    return match.group(1).decode("ascii").strip("[]"), int(match.group(2))


def _too_large(message: str) -> ConnectError:
    return ConnectError("431 Request Header Fields Too Large", message)


class Egress:
    """How connections leave this machine: through the proxy that its environment names, or directly."""

    def __init__(self, proxy: str = "", bypass: str = "") -> None:
        """From https_proxy and no_proxy. Raises `ValueError` if the proxy is not an http:// URL."""
        self._proxy: Optional[tuple[str, int]] = None
        self._credentials = ""
        if proxy:
            self._proxy, self._credentials = _parse_proxy(proxy)
        self._bypass = bypass.strip()

    def proxy_for(self, host: str) -> Optional[tuple[str, int]]:
        """The address of the proxy for this host. Returns None if the connection is direct."""
        name = host.lower()
        entries = [entry.strip().lower().lstrip("*").lstrip(".") for entry in self._bypass.split(",")]
        bypassed = self._bypass == "*" or any(name == e or name.endswith("." + e) for e in entries if e)
        return None if bypassed else self._proxy

    async def connect(self, host: str, port: int) -> Streams:
        """Connect to a host. Raises `ConnectError`, with the reason, if that fails or exceeds `CONNECT_TIMEOUT_S`."""
        proxy = self.proxy_for(host)
        address = proxy or (host, port)
        try:
            opening = asyncio.open_connection(*address) if proxy is None else self._through(proxy, host, port)
            return await asyncio.wait_for(opening, CONNECT_TIMEOUT_S)
        except asyncio.TimeoutError:
            message = "%s:%d did not answer within %d s." % (*address, CONNECT_TIMEOUT_S)
            raise ConnectError("504 Gateway Timeout", message) from None
        except (OSError, EOFError, UnicodeError, asyncio.LimitOverrunError) as exc:  # UnicodeError: no name of a host
            raise ConnectError("502 Bad Gateway", "%s:%d can't be reached: %s." % (*address, exc)) from exc

    async def _through(self, proxy: tuple[str, int], host: str, port: int) -> Streams:
        reader, writer = await asyncio.open_connection(*proxy)
        target = "[%s]:%d" % (host, port) if ":" in host else "%s:%d" % (host, port)
        try:
            writer.write(("CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (target, target, self._credentials)).encode())
            status = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n", 1)[0].decode("latin-1")
            if status.split(" ", 2)[1:2] != ["200"]:
                refusal = "The proxy %s:%d does not let us through to %s: %s." % (*proxy, target, status)
                raise ConnectError("502 Bad Gateway", refusal)
        except BaseException:
            writer.close()
            raise
        return reader, writer


def _parse_proxy(url: str) -> tuple[tuple[str, int], str]:
    """Address and credentials header of a proxy."""
    parts = urlsplit(url if "://" in url else "http://" + url)
    port = parts.port if parts.port is not None else 80
    if parts.scheme != "http" or not parts.hostname or not port:
        raise ValueError("The proxy is not like http://HOST:PORT.")
    if parts.username is None:
        return (parts.hostname, port), ""
    login = "%s:%s" % (unquote(parts.username), unquote(parts.password or ""))
    return (parts.hostname, port), "Proxy-Authorization: Basic %s\r\n" % base64.b64encode(login.encode()).decode()


async def forward(client: Streams, upstream: Streams, on_use: Callable[[], object] = lambda: None) -> None:
    """Forward bytes in both directions until both have ended, or until the tunnel is idle. Closes `upstream`.

    `on_use` is called for all that is forwarded.
    """
    loop = asyncio.get_event_loop()
    used_at = loop.time()

    def note() -> None:
        nonlocal used_at
        used_at = loop.time()
        on_use()

    pumps = [
        asyncio.ensure_future(_pump(client[0], upstream[1], note)),
        asyncio.ensure_future(_pump(upstream[0], client[1], note)),
    ]
    try:
        ended: set[asyncio.Future[None]] = set()
        while not ended and loop.time() < used_at + TUNNEL_IDLE_TIMEOUT_S:
            left_s = used_at + TUNNEL_IDLE_TIMEOUT_S - loop.time()
            ended, _ = await asyncio.wait(pumps, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        if ended:
            await asyncio.wait(pumps, timeout=HALF_CLOSE_TIMEOUT_S)
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        upstream[1].close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Callable[[], None]) -> None:
    """Forward one direction. A broken connection aborts the writer's."""
    try:
        while True:
            data = await reader.read(_CHUNK_BYTES)
            if not data:
                break
            writer.write(data)
            note()
            await writer.drain()
        writer.write_eof()
    except (OSError, RuntimeError):  # RuntimeError: the writer's connection was closed in between
        writer.transport.abort()
