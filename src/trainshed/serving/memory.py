"""Returns free memory to the system after large requests.

Standard library only; the server uses it too. Does nothing unless the C library is glibc.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

_ARENA_MAX = -8  # glibc's M_ARENA_MAX
_MAX_ARENAS = 2
_LIBC = ctypes.CDLL(None)

TRIM_IDLE_TIMEOUT_S = 1.0  #: without requests, before a `trim`
MIN_TRIM_BYTES = 8 << 20  #: received in requests since the last trim; below that, a trim is not worth its time


def share_arenas() -> None:
    """Let all threads share two malloc arenas. An arena per thread would keep the peak memory of each."""
    if hasattr(_LIBC, "mallopt"):
        _LIBC.mallopt(_ARENA_MAX, _MAX_ARENAS)


def trim() -> None:
    """Return free memory to the system. Takes milliseconds."""
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)


class MemoryTrimmer:
    """Trims after enough bytes were received."""

    def __init__(self, trim: Callable[[], None] = trim) -> None:
        self._trim = trim
        self._bytes = 0

    def add(self, size: int) -> None:
        """Count the bytes of a request."""
        self._bytes += size

    def idle(self) -> None:
        """Trim, if enough bytes were received. Called when there has been no request for a while."""
        if self._bytes >= MIN_TRIM_BYTES:
            self._bytes = 0
            self._trim()
