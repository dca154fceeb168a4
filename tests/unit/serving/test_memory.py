"""Memory that is given back when it is worth it."""

from __future__ import annotations

import psutil

from trainshed.serving.memory import MIN_TRIM_BYTES, MemoryTrimmer, share_arenas, trim


def test_it_trims_once_after_much_and_not_after_little() -> None:
    times: list[int] = []
    trimming = MemoryTrimmer(lambda: times.append(1))
    trimming.add(MIN_TRIM_BYTES - 1)
    trimming.idle()
    assert not times
    trimming.add(1)
    trimming.idle()
    trimming.idle()
    assert len(times) == 1


def test_what_was_freed_goes_back_to_the_system() -> None:
    share_arenas()
    process = psutil.Process()
    pieces = [bytes([1]) * 60_000 for _ in range(2000)]  # too small to be mapped each by itself
    last = bytes(60_000)  # which keeps the heap from shrinking by itself
    full = process.memory_info().rss
    del pieces
    trim()
    assert full - process.memory_info().rss > 50 << 20
    assert len(last) == 60_000
