"""Memory that is no longer used, given back: what large requests took is not kept when they are over.

Standard library only; the server uses it too. Where the C library is not glibc, none of this does anything.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

_ARENA_MAX = -8  # glibc's M_ARENA_MAX
_ARENAS = 2
_LIBC = ctypes.CDLL(None)

IDLE_S = 1.0  #: after which it is time to `trim`
WORTH_BYTES = 8 << 20  #: that came in requests since the last time, or else it is not


def share_arenas() -> None:
    """Let all threads allocate from the same two arenas: each of its own would keep what it once needed."""
    if hasattr(_LIBC, "mallopt"):
        _LIBC.mallopt(_ARENA_MAX, _ARENAS)


def trim() -> None:
    """Give free memory back to the system. Takes milliseconds."""
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)


class MemoryTrimmer:
    """Trims when it is worth it."""

    def __init__(self, trim: Callable[[], None] = trim) -> None:
        self._trim = trim
        self._bytes = 0

    def add(self, size: int) -> None:
        """So much came in a request."""
        self._bytes += size

    def idle(self) -> None:
        """There has been nothing to do for a while."""
        if self._bytes >= WORTH_BYTES:
            self._bytes = 0
            self._trim()
