"""The same work for many things at once, in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

T = TypeVar("T")

AT_ONCE = 8


def in_parallel(
    work: Callable[[T], None],
    items: Sequence[T],
    *,
    at_once: int = AT_ONCE,
    stopping: threading.Event | None = None,
) -> None:
    """`work` for each item, several at a time. After an error or Ctrl-C nothing is begun, and `stopping` is set."""
    if len(items) <= 1 or at_once == 1:
        for item in items:
            work(item)
        return
    with ThreadPoolExecutor(min(at_once, len(items))) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            if stopping is not None:
                stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
