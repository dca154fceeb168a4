"""A bound on the bytes of responses that wait in the memory of the server until their clients read them.

A response is in memory from the moment it is written. When all of them together need too much, the connection whose
client has read nothing for the longest time is closed, so that clients that read get theirs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

LOG = logging.getLogger("trainshed.api")
DEFAULT_MAX_BYTES = 256 << 20
_MARGIN = 8  #: room is made for a part of the maximum, so that not every response makes room


class Reader(Protocol):
    """A connection whose client has not read all of its responses."""

    def unread_bytes(self) -> int:
        """What waits in memory for the client."""

    def evict(self) -> None:
        """Close it at once."""


@dataclass(slots=True)
class _Reading:
    size: int
    since: float  #: when the client was last seen to read, or got more to read


class UnreadResponses:
    """The connections with unread responses. Event loop only."""

    def __init__(self, maximum: int = DEFAULT_MAX_BYTES, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._maximum = maximum
        self._clock = clock
        self._readers: dict[Reader, _Reading] = {}
        self.total = 0  #: bytes, as they were when each connection was last looked at; they only became fewer

    @property
    def is_scarce(self) -> bool:
        """Whether so much is unread that responses should be written in small pieces."""
        return self.total > self._maximum // 2

    def update(self, reader: Reader) -> None:
        """Count a connection to which more was written than its client reads now. Closes others if it is too much."""
        self.remove(reader)
        size = reader.unread_bytes()
        self._readers[reader] = _Reading(size, self._clock())
        self.total += size
        if self.total > self._maximum:
            self._make_room(reader)

    def remove(self, reader: Reader) -> None:
        """Forget a connection: its client has read nearly all, or it is closed. Idempotent."""
        reading = self._readers.pop(reader, None)
        if reading is not None:
            self.total -= reading.size

    def _make_room(self, newest: Reader) -> None:
        """Close connections until the rest fits. The newest one stays: its client had no time to read."""
        now = self._clock()
        for reader, reading in self._readers.items():
            size = reader.unread_bytes()
            if size < reading.size:
                self.total += size - reading.size
                reading.size, reading.since = size, now
        if self.total <= self._maximum:
            return
        fitting = self._maximum - self._maximum // _MARGIN
        closed, before = 0, self.total
        for reader in sorted(self._readers, key=lambda each: self._readers[each].since):
            if self.total <= fitting:
                break
            if reader is not newest:
                self.remove(reader)
                reader.evict()
                closed += 1
        LOG.warning(
            "connections.closed number=%d reason=Their clients did not read %d MB of responses.",
            *(closed, (before - self.total) >> 20),
        )
