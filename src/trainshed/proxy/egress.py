"""Egress: connections to all hosts that are not intercepted. Bytes are forwarded in both directions, unread."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote, urlsplit

from trainshed.errors import CannotProceedError, UnavailableError

CONNECT_TIMEOUT_S = 20.0
HALF_CLOSE_TIMEOUT_S = 300.0  #: for the other direction after one has ended
_CHUNK_BYTES = 65_536
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """How connections leave this machine: through the proxy that its environment names, or directly."""

    host: str = ""  #: of the proxy; empty if connections are direct
    port: int = 0
    authorization: str = ""
    bypass: str = ""  #: no_proxy

    @classmethod
    def of(cls, proxy: str, *, bypass: str) -> Self:
        """Build it from https_proxy and no_proxy. Raises `CannotProceedError` if the proxy is not an http:// URL."""
        if not proxy:
            return cls()
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        try:
            port = parts.port or 80
        except ValueError:
            port = 0
        if parts.scheme != "http" or not parts.hostname or not port:
            raise CannotProceedError(
                "The proxy in https_proxy is not like http://HOST:PORT, so trainers can't be led through it. "
                "Correct it, or set TRAINSHED_SERVER_GS_IN_TRAINERS=google to leave the trainers' network alone."
            )
        authorization = ""
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = base64.b64encode(pair.encode()).decode()
        return cls(host=parts.hostname, port=port, authorization=authorization, bypass=bypass)

    def for_host(self, host: str) -> bool:
        """Return whether connections to `host` go through the proxy."""
        name = host.lower()
        entries = [entry.strip().lower().removeprefix("*").lstrip(".") for entry in self.bypass.split(",")]
        bypassed = self.bypass.strip() == "*" or any(name == e or name.endswith(f".{e}") for e in entries if e)
        return bool(self.host) and not bypassed

    async def connect(self, host: str, port: int) -> Streams:
        """Connect to a host. Raises `UnavailableError` with the reason if that fails or exceeds `CONNECT_TIMEOUT_S`."""
        proxied = self.for_host(host)
        address = (self.host, self.port) if proxied else (host, port)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                streams = await asyncio.open_connection(*address)
                if proxied:
                    await self._request_tunnel(streams, host, port)
                return streams
        except TimeoutError:
            raise UnavailableError(
                f"{address[0]}:{address[1]} did not answer within {CONNECT_TIMEOUT_S:g} s."
            ) from None
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as exc:
            raise UnavailableError(f"{address[0]}:{address[1]} can't be reached: {exc}.") from exc

    async def _request_tunnel(self, streams: Streams, host: str, port: int) -> None:
        reader, writer = streams
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        credentials = f"Proxy-Authorization: Basic {self.authorization}\r\n" if self.authorization else ""
        writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{credentials}\r\n".encode())
        response = await reader.readuntil(b"\r\n\r\n")
        status = response.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        if len(status) < 2 or status[1] != "200":
            writer.close()
            raise UnavailableError(
                f"The proxy {self.host}:{self.port} does not let us through to {target}: {status[1:]}."
            )


async def pipe(client: Streams, upstream: Streams) -> None:
    """Forward bytes in both directions until both have ended, or one has and the other stays silent.

    Closes `upstream`.
    """
    pumps = [asyncio.create_task(_pump(client[0], upstream[1])), asyncio.create_task(_pump(upstream[0], client[1]))]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(pumps, timeout=HALF_CLOSE_TIMEOUT_S)
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        upstream[1].close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward one direction. An error aborts the writer's connection."""
    try:
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except (OSError, RuntimeError):  # uvloop raises RuntimeError for a connection that is closed already
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
