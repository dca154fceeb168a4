"""Connections to everyone else: bytes go both ways, and nobody here looks at them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote, urlsplit

from trainshed.errors import CannotProceedError, UnavailableError

CONNECT_S = 20.0
LINGER_S = 300.0  #: for the other direction, once one has ended
_PIECE = 65_536
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """How this machine reaches others: through the proxy that its environment names, or directly."""

    host: str = ""  #: empty: directly
    port: int = 0
    authorization: str = ""
    bypass: str = ""  #: no_proxy

    @classmethod
    def of(cls, proxy: str, *, bypass: str) -> Self:
        """From https_proxy and no_proxy. `CannotProceedError` if the proxy is not an http:// address."""
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
        """Whether connections to `host` go through the proxy."""
        name = host.lower()
        entries = [entry.strip().lower().removeprefix("*").lstrip(".") for entry in self.bypass.split(",")]
        aside = self.bypass.strip() == "*" or any(name == e or name.endswith(f".{e}") for e in entries if e)
        return bool(self.host) and not aside

    async def connect(self, host: str, port: int) -> Streams:
        """A connection to that place. `UnavailableError`, with the reason, if there is none within `CONNECT_S`."""
        through = self.for_host(host)
        place = (self.host, self.port) if through else (host, port)
        try:
            async with asyncio.timeout(CONNECT_S):
                streams = await asyncio.open_connection(*place)
                if through:
                    await self._ask(streams, host, port)
                return streams
        except TimeoutError:
            raise UnavailableError(f"{place[0]}:{place[1]} did not answer within {CONNECT_S:g} s.") from None
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as exc:
            raise UnavailableError(f"{place[0]}:{place[1]} can't be reached: {exc}.") from exc

    async def _ask(self, streams: Streams, host: str, port: int) -> None:
        reader, writer = streams
        at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        given = f"Proxy-Authorization: Basic {self.authorization}\r\n" if self.authorization else ""
        writer.write(f"CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n{given}\r\n".encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        status = answer.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        if len(status) < 2 or status[1] != "200":
            writer.close()
            raise UnavailableError(f"The proxy {self.host}:{self.port} does not let us through to {at}: {status[1:]}.")


async def pipe(near: Streams, far: Streams) -> None:
    """Pass bytes both ways until both sides have ended, or one has and the other is silent. Closes the far side."""
    pumps = [asyncio.create_task(_pump(near[0], far[1])), asyncio.create_task(_pump(far[0], near[1]))]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(pumps, timeout=LINGER_S)
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        far[1].close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One direction. A connection that breaks takes the other side with it."""
    try:
        while data := await reader.read(_PIECE):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except (OSError, RuntimeError):  # the latter is what uvloop says of a connection that it has closed already
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
