"""Connections to hosts: one per host, which multiplexes requests by number."""

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

MAX_IN_FLIGHT = 512  #: in-flight requests per host; the host's own queue is shorter
MAX_IN_FLIGHT_BYTES = 64 << 20  #: of the bodies of in-flight requests per host
MAX_RESPONSE_BYTES = 256 << 20  #: of one response body
KEEPALIVE_TIMEOUT_S = 10  #: after which a silent node counts as gone

#: socket options that detect a lost node or network
_KEEPALIVE_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_TIMEOUT_S // 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_TIMEOUT_S // 2),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, KEEPALIVE_TIMEOUT_S * 1000),
)

Body = Sequence[bytes | bytearray]  #: of a request, in the chunks in which it arrived


class ResponseSink(Protocol):
    """Receives the response of one request. Exactly one method is called, once, as soon as the outcome is known."""

    def answered(self, status: int, body: bytes) -> None:
        """The host responded, with an HTTP status."""

    def failed(self, exc: TrainshedError) -> None:
        """There will be no response."""


Answer = tuple[int, bytes]  #: HTTP status and body


class FutureSink:
    """Sets a future to the response."""

    def __init__(self, future: Future[Answer | None]) -> None:
        self.future = future

    def answered(self, status: int, body: bytes) -> None:
        if not self.future.done():
            self.future.set_result((status, body))

    def failed(self, exc: TrainshedError) -> None:
        if not self.future.done():
            self.future.set_exception(exc)


class HostConnection(asyncio.Protocol):
    """An established connection, until `lost` is set. Event loop only."""

    def __init__(self, *, timeout_s: float, processes: int = 1) -> None:
        """Each of so many `processes` has a connection to the host, and its part of the limits."""
        self.lost = False
        self._max_in_flight = MAX_IN_FLIGHT // processes
        self._max_bytes = MAX_IN_FLIGHT_BYTES // processes
        self._timeout_s = timeout_s
        self._in_flight: dict[int, tuple[ResponseSink, float, float, int]] = {}  # sink, start, sent, bytes
        self._bytes = 0
        self._sent_bytes = 0
        self._numbers = count(1)
        self._reader = FrameReader(ANSWER_HEAD, body_limit=MAX_RESPONSE_BYTES)
        self._loop = asyncio.get_running_loop()
        self._last_data_s = 0.0
        self._unsent: list[bytes | bytearray] = []
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # every stream socket has one; uvloop's are no subclass

    async def authenticate(self, secret: str) -> None:
        """Authenticate to a remote host. Raises `UnavailableError` if the host closes the connection."""
        sock = self._transport.get_extra_info("socket")
        for level, option, value in _KEEPALIVE_OPTIONS:
            sock.setsockopt(level, option, value)
        self._transport.write(auth_frame(secret))
        sink = FutureSink(self._loop.create_future())
        self.send(FrameKind.STATS, (), sink, began=monotonic())
        await sink.future

    @property
    def in_flight(self) -> int:
        """The number of in-flight requests."""
        return len(self._in_flight)

    def taken(self) -> int:
        """Return the bytes of requests sent since the last call."""
        size, self._sent_bytes = self._sent_bytes, 0
        return size

    def send(self, kind: int, body: Body, sink: ResponseSink, *, began: float) -> int:
        """Send a request and return its number.

        Its timeout starts at `began`, by the monotonic clock. Raises `ResourceExhaustedError` if too many requests are
        in flight.
        """
        size, load = sum(map(len, body)), len(self._in_flight)
        if load >= self._max_in_flight or (load and self._bytes + size > self._max_bytes):
            raise ResourceExhaustedError(
                "This version has as many requests waiting as it can take. Send them again a little later."
            )
        number = next(self._numbers)
        self._in_flight[number] = (sink, began, monotonic(), size)
        self._bytes += size
        self._sent_bytes += size
        head = REQUEST_HEAD.pack(size, number, kind)
        if not load:
            self._transport.writelines((head, *body))
            return number
        if not self._unsent:  # the host is busy: requests of this loop iteration share one write
            self._loop.call_soon(self._flush)
        self._unsent += (head, *body)
        return number

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if not self.lost:
            self._transport.writelines(unsent)

    def cancel(self, number: int) -> None:
        """Drop an in-flight request and send the host a cancel frame for it. Idempotent."""
        if self._pop(number) is not None and not self.lost:
            self._flush()  # the request must reach the host before its cancellation
            self._transport.write(REQUEST_HEAD.pack(0, number, FrameKind.CANCEL))

    def expire(self) -> bool:
        """Fail requests that exceed their timeout. Returns True if the host is unresponsive.

        A host is unresponsive if it sent nothing since it got a late request, at least half a timeout ago. A request
        may have spent the first half waiting for the version to activate.
        """
        now = monotonic()
        late = [(number, *entry) for number, entry in self._in_flight.items() if entry[1] <= now - self._timeout_s]
        for number, sink, *_ in late:
            self.cancel(number)
            sink.failed(DeadlineExceededError(f"The model did not answer within {self._timeout_s:g} seconds."))
        return any(self._last_data_s <= sent < now - self._timeout_s / 2 for _, _, _, sent, _ in late)

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        """Close immediately, without flushing unsent data."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._last_data_s = monotonic()
        try:
            responses = self._reader.feed(data)
            for _, status, _ in responses:
                _check_status(status)
        except BadFrameError as exc:
            LOG.error("predict.bad_frame reason=%r", str(exc))
            self._transport.abort()
            return
        for number, status, body in responses:
            sink = self._pop(number)
            if sink is not None:
                sink.answered(status, body)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        in_flight, self._in_flight = self._in_flight, {}
        for sink, *_ in in_flight.values():
            sink.failed(HostLostError())

    def _pop(self, number: int) -> ResponseSink | None:
        request = self._in_flight.pop(number, None)
        if request is None:
            return None
        self._bytes -= request[3]
        return request[0]


def _check_status(status: int) -> None:
    """Reject statuses that mean something else to HTTP clients than a response with a body.

    Model code could produce them.
    """
    if status != 200 and not 400 <= status <= 599:
        raise BadFrameError(f"A host can't answer with the status {status}.")


class HostLostError(UnavailableError):
    """The host of a request is gone. It may have started to process the request."""

    def __init__(self) -> None:
        super().__init__("The process that serves this version ended before it answered; another one takes its place.")
