"""Connections to the real Cloud Storage, for public data. They leave the machine as those of trainers do."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from trainshed.node.connect import HTTPS_PORT, ConnectError, Egress

HOST = "storage.googleapis.com"
CONNECT_TIMEOUT_S = 2.0  #: with TLS


class PublicStorageConnector:
    """Opens connections that carry no credentials."""

    def __init__(self, egress: Egress, ca_files: Iterable[Path]) -> None:
        """`ca_files` are bundles that the machine trusts besides the system's."""
        self._egress = egress
        self._ca_files = tuple(ca_files)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection. Raises `OSError` with the reason if there is none within `CONNECT_TIMEOUT_S`."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                return await self._open()
        except TimeoutError:
            raise OSError(f"{HOST} did not answer within {CONNECT_TIMEOUT_S:g} s") from None
        except ConnectError as exc:
            raise OSError(str(exc).rstrip(".")) from exc

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self._egress.connect(HOST, HTTPS_PORT)
        try:
            await writer.start_tls(self._tls, server_hostname=HOST)
        except BaseException:
            writer.close()
            raise
        return reader, writer

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        for path in self._ca_files:
            if path.is_file():
                context.load_verify_locations(path)
        return context
