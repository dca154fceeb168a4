"""Connections that end: uvicorn by itself would keep a silent or half-sent one for ever."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_S = 15.0  #: from the start of a connection, or of a request on it, to the end of the headers
BODY_S = 30.0  #: without a single byte of a body that is still to come
LOOK_S = 5.0


class TimedProtocol(HttpToolsProtocol):
    """uvicorn's own protocol, with a look every few seconds at whether the client goes on."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._heard = self.loop.time()
        self._look: asyncio.TimerHandle = self.loop.call_later(LOOK_S, self._check)

    def data_received(self, data: bytes) -> None:
        if not self._between_requests:
            self._heard = self.loop.time()
        super().data_received(data)

    def on_response_complete(self) -> None:
        self._heard = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._look.cancel()
        super().connection_lost(exc)

    @property
    def _between_requests(self) -> bool:
        """No request has all its headers yet and waits for its answer."""
        return self.cycle is None or self.cycle.response_complete

    def _check(self) -> None:
        silent = self.loop.time() - self._heard
        stalled_body = self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete
        if (self._between_requests and silent > HEADER_S) or (stalled_body and silent > BODY_S):
            self.transport.close()
            return
        self._look = self.loop.call_later(LOOK_S, self._check)
