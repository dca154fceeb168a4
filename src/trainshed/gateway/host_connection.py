"""Connections to hosts: one for each, with as many requests on it at once as there are, told apart by numbers."""

from __future__ import annotations

import asyncio
import logging
import socket
from asyncio import Future
from collections.abc import Sequence
from itertools import count
from time import monotonic
from typing import Protocol, cast

from trainshed.errors import DeadlineExceededError, ResourceExhaustedError, TrainshedError, UnavailableError
from trainshed.serving.frames import ANSWER_HEAD, REQUEST_HEAD, BadFrameError, FrameKind, FrameReader, auth_frame

LOG = logging.getLogger("trainshed.predict")

IN_FLIGHT = 512  #: requests that one host is sent before it has answered; the host's own queue is shorter
IN_FLIGHT_BYTES = 64 << 20  #: of their bodies
ANSWER_BYTES = 256 << 20  #: of one answer
SILENT_S = 10  #: a machine that takes nothing in for so long, and says nothing, is gone

#: how it is noticed that the machine at the other end is gone, or the way to it
_WATCHED = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT_S // 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, SILENT_S // 2),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_S * 1000),
)

Body = Sequence[bytes | bytearray]  #: of a request, in the pieces that it came in


class ResponseSink(Protocol):
    """Who waits for an answer. One of the two is called, once, at the very moment when it comes."""

    def answered(self, status: int, body: bytes) -> None:
        """With an HTTP status."""

    def failed(self, exc: TrainshedError) -> None:
        """There will be no answer."""


Answer = tuple[int, bytes]  #: HTTP status and body


class FutureSink:
    """Waits for an answer by a future."""

    def __init__(self, future: Future[Answer | None]) -> None:
        self.future = future

    def answered(self, status: int, body: bytes) -> None:
        if not self.future.done():
            self.future.set_result((status, body))

    def failed(self, exc: TrainshedError) -> None:
        if not self.future.done():
            self.future.set_exception(exc)


class HostConnection(asyncio.Protocol):
    """A connection that stands, until it is lost. For the event loop alone."""

    def __init__(self, *, timeout_s: float) -> None:
        self.lost = False
        self._timeout_s = timeout_s
        self._waiting: dict[int, tuple[ResponseSink, float, float, int]] = {}  # who waits, since when, sent when, bytes
        self._bytes = 0
        self._taken_bytes = 0
        self._numbers = count(1)
        self._reader = FrameReader(ANSWER_HEAD, body_limit=ANSWER_BYTES)
        self._loop = asyncio.get_running_loop()
        self._heard = 0.0
        self._unsent: list[bytes | bytearray] = []
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # as every stream socket has; uvloop's are no subclass

    async def authenticate(self, secret: str) -> None:
        """Say the secret, and wait until the host shows that it has heard it.

        `UnavailableError` if it closes instead.
        """
        sock = self._transport.get_extra_info("socket")
        for level, option, value in _WATCHED:
            sock.setsockopt(level, option, value)
        self._transport.write(auth_frame(secret))
        heard = FutureSink(self._loop.create_future())
        self.send(FrameKind.STATS, (), heard, began=monotonic())
        await heard.future

    @property
    def in_flight(self) -> int:
        """How many wait for an answer."""
        return len(self._waiting)

    def taken(self) -> int:
        """The bytes of the requests since the last call."""
        size, self._taken_bytes = self._taken_bytes, 0
        return size

    def send(self, kind: int, body: Body, waiter: ResponseSink, *, began: float) -> int:
        """Send a request; its number. `ResourceExhaustedError` if too many wait already.

        The time it may take runs from `began`, by the monotonic clock.
        """
        size, load = sum(map(len, body)), len(self._waiting)
        if load >= IN_FLIGHT or (load and self._bytes + size > IN_FLIGHT_BYTES):
            raise ResourceExhaustedError(
                "This version has as many requests waiting as it can take. Send them again a little later."
            )
        number = next(self._numbers)
        self._waiting[number] = (waiter, began, monotonic(), size)
        self._bytes += size
        self._taken_bytes += size
        head = REQUEST_HEAD.pack(size, number, kind)
        if not load:
            self._transport.writelines((head, *body))
            return number
        if not self._unsent:  # the host is busy: what else comes in this turn of the loop goes along with it
            self._loop.call_soon(self._send)
        self._unsent += (head, *body)
        return number

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, []
        if not self.lost:
            self._transport.writelines(unsent)

    def cancel(self, number: int) -> None:
        """Nobody waits for this answer any more; the host need not begin with it."""
        if self._taken(number) is not None and not self.lost:
            self._send()  # it must not be told to forget what it has not seen
            self._transport.write(REQUEST_HEAD.pack(0, number, FrameKind.CANCEL))

    def expire(self) -> bool:
        """Give up on requests whose time is over. True if the host has said nothing since it got one of them, and was
        given at least half of that time: it may have had to wake up first."""
        now = monotonic()
        late = [(number, *entry) for number, entry in self._waiting.items() if entry[1] <= now - self._timeout_s]
        for number, waiter, *_ in late:
            self.cancel(number)
            waiter.failed(DeadlineExceededError(f"The model did not answer within {self._timeout_s:g} seconds."))
        return any(self._heard <= sent < now - self._timeout_s / 2 for _, _, _, sent, _ in late)

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        """As `close`, without a last attempt at what was not sent yet."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._heard = monotonic()
        try:
            answers = self._reader.feed(data)
            for _, status, _ in answers:
                _check_status(status)
        except BadFrameError as exc:
            LOG.error("predict.bad_frame reason=%r", str(exc))
            self._transport.abort()
            return
        for number, status, body in answers:
            waiter = self._taken(number)
            if waiter is not None:
                waiter.answered(status, body)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        waiting, self._waiting = self._waiting, {}
        for waiter, *_ in waiting.values():
            waiter.failed(HostLostError())

    def _taken(self, number: int) -> ResponseSink | None:
        entry = self._waiting.pop(number, None)
        if entry is None:
            return None
        self._bytes -= entry[3]
        return entry[0]


def _check_status(status: int) -> None:
    """Others mean something else to clients than an answer with a body; a model could have made them up."""
    if status != 200 and not 400 <= status <= 599:
        raise BadFrameError(f"A host can't answer with the status {status}.")


class HostLostError(UnavailableError):
    """Whoever was asked is gone, and has perhaps begun with the request."""

    def __init__(self) -> None:
        super().__init__("The process that serves this version ended before it answered; another one takes its place.")
