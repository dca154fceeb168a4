"""Public data: buckets that no project has are read from the real Cloud Storage, without credentials.

Mirrored objects come first. They are in a second set of buckets, which belong to no project.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from trainshed.domain.objects import bucket_not_found
from trainshed.errors import NotFoundError, ResourceExhaustedError, UnavailableError
from trainshed.gateway.reverse_proxy import Headers, ProxiedResponse, ResponseError, exchange
from trainshed.services.storage.public_mirrors import PublicMirrors

__all__ = ["ProxiedResponse", "PublicData"]

LOG = logging.getLogger("trainshed.public_data")

HOST = "storage.googleapis.com"
OFFLINE_RETENTION_S = 60.0  #: without a connection, for which nobody tries again
VIA = "trainshed"  #: names this server in requests, so that two of them never ask each other in circles
MAX_READS = 64  #: at a time, of all callers: programs need no token for them
_REFUSALS = (401, 403, 404)

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class PublicData:
    """Reads of buckets that no project has. Not thread-safe: for the event loop."""

    def __init__(
        self, connect: Connect | None, mirrors: PublicMirrors, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Without `connect`, nothing is asked for outside."""
        self.mirrors = mirrors
        self._connect = connect
        self._clock = clock
        self._offline_until = 0.0
        self._offline_reason = ""
        self._reads = 0

    @property
    def asks(self) -> bool:
        """Whether it asks the real Cloud Storage at all."""
        return self._connect is not None

    async def ask(self, bucket: str, method: str, target: bytes, headers: Headers) -> ProxiedResponse:
        """Ask the real Cloud Storage. Raises `NotFoundError` with a remedy if it can't be reached or refuses.

        Clients do not repeat a request that gets this error. Raises `UnavailableError` if the connection breaks later,
        and `ResourceExhaustedError` while `MAX_READS` are in progress; clients repeat these. A read is in progress
        until the response is closed.
        """
        if self._connect is None:
            raise bucket_not_found(bucket)
        if self._clock() < self._offline_until:
            raise not_here(bucket, self._offline_reason)
        if self._reads >= MAX_READS:
            raise ResourceExhaustedError(f"{MAX_READS} reads of public data are in progress. Try again later.")
        self._reads += 1
        try:
            response = self._counted(await self._exchange(bucket, self._connect, method, target, headers))
        except BaseException:
            self._reads -= 1
            raise
        if response.status in _REFUSALS:
            response.close()
            raise not_here(bucket, f"Google's storage gives it to nobody without credentials (HTTP {response.status})")
        LOG.info("public_data.read bucket=%s status=%d", bucket, response.status)
        return response

    def _counted(self, response: ProxiedResponse) -> ProxiedResponse:
        """Return the response, which ends its read when it is closed."""
        closed = False

        def close() -> None:
            nonlocal closed
            response.close()
            self._reads -= not closed
            closed = True

        return replace(response, close=close)

    async def _exchange(
        self, bucket: str, connect: Connect, method: str, target: bytes, headers: Headers
    ) -> ProxiedResponse:
        try:
            streams = await connect()
        except OSError as exc:
            self._offline_until = self._clock() + OFFLINE_RETENTION_S
            self._offline_reason = f"Google's storage can't be reached ({exc})"
            LOG.warning("public_data.offline seconds=%g reason=%s", OFFLINE_RETENTION_S, exc)
            raise not_here(bucket, self._offline_reason) from exc
        try:
            return await exchange(streams, method, target, [("host", HOST), ("via", f"1.0 {VIA}"), *headers])
        except ResponseError as exc:
            raise UnavailableError(f"Google's storage broke off while it was asked for gs://{bucket}: {exc}.") from exc


def not_here(bucket: str, reason: str) -> NotFoundError:
    """The error for a bucket that is neither here nor public."""
    return NotFoundError(
        f"The specified bucket does not exist: {bucket}. No project of this server has it, and {reason}. To bring the "
        f"data in: `trainshed buckets mb gs://{bucket}`, then `trainshed buckets cp -r FOLDER gs://{bucket}`."
    )
