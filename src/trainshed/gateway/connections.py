"""Connections to hosts: one for each, with as many requests on it at once as there are, told apart by numbers."""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from itertools import count
from typing import cast

from trainshed.errors import Busy, TimedOut, Unavailable
from trainshed.serving.frames import ANSWER_HEAD, REQUEST_HEAD, BadFrame, FrameReader, Kind

LOG = logging.getLogger("trainshed.predict")

IN_FLIGHT = 512  #: requests that one host is sent before it has answered; the host's own queue is shorter
IN_FLIGHT_BYTES = 64 << 20  #: of their bodies
ANSWER_BYTES = 256 << 20  #: of one answer

#: the HTTP status and the body; None once whoever asked is gone
Answer = tuple[int, bytes]


class HostConnection(asyncio.Protocol):
    """A connection that stands, until it is lost. For the event loop alone."""

    def __init__(self, *, timeout_s: float) -> None:
        self.lost = False
        self._timeout_s = timeout_s
        self._waiting: dict[int, tuple[Future[Answer | None], float, int]] = {}  # who waits, since when, bytes sent
        self._bytes = 0
        self._numbers = count(1)
        self._reader = FrameReader(ANSWER_HEAD, body_limit=ANSWER_BYTES)
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # as every stream socket has; uvloop's are no subclass

    @property
    def load(self) -> int:
        """How many wait for an answer."""
        return len(self._waiting)

    def ask(self, kind: int, body: bytes, *, began: float) -> tuple[int, Future[Answer | None]]:
        """Send a request at once: its number, and what becomes its answer. `Busy` if too many wait already.

        The time it may take runs from `began`, by the loop's clock.
        """
        size = len(body)
        if len(self._waiting) >= IN_FLIGHT or (self._bytes and self._bytes + size > IN_FLIGHT_BYTES):
            raise Busy("This version has as many requests waiting as it can take. Send them again a little later.")
        number = next(self._numbers)
        future: Future[Answer | None] = self._loop.create_future()
        self._waiting[number] = (future, began, size)
        self._bytes += size
        self._transport.writelines((REQUEST_HEAD.pack(size, number, kind), body))
        return number, future

    def forget(self, number: int) -> None:
        """Nobody waits for this answer any more; the host need not begin with it."""
        if self._taken(number) is not None and not self.lost:
            self._transport.write(REQUEST_HEAD.pack(0, number, Kind.CANCEL))

    def expire(self) -> bool:
        """Give up on requests whose time is over. True if the host was silent for the whole time of one of them."""
        since = self._loop.time() - self._timeout_s
        late = [(number, future, began) for number, (future, began, _) in self._waiting.items() if began <= since]
        for number, future, _ in late:
            self.forget(number)
            if not future.done():
                future.set_exception(TimedOut(f"The model did not answer within {self._timeout_s:g} seconds."))
        return any(self._heard <= began for _, _, began in late)

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        try:
            answers = self._reader.feed(data)
        except BadFrame as exc:
            LOG.error("predict.bad_frame reason=%r", str(exc))
            self._transport.abort()
            return
        for number, status, body in answers:
            future = self._taken(number)
            if future is not None and not future.done():
                future.set_result((status, body))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        waiting, self._waiting = self._waiting, {}
        for future, _, _ in waiting.values():
            if not future.done():
                future.set_exception(lost())

    def _taken(self, number: int) -> Future[Answer | None] | None:
        entry = self._waiting.pop(number, None)
        if entry is None:
            return None
        self._bytes -= entry[2]
        return entry[0]


def lost() -> Unavailable:
    return Unavailable("The process that serves this version ended before it answered; another one takes its place.")
