"""Running one function for many items, in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

T = TypeVar("T")

MAX_CONCURRENT = 8


def in_parallel(
    work: Callable[[T], None],
    items: Sequence[T],
    *,
    max_concurrent: int = MAX_CONCURRENT,
    stopping: threading.Event | None = None,
) -> None:
    """Call `work` for each item, several at a time.

    After an error or Ctrl-C it starts no more and sets `stopping`.
    """
    if len(items) <= 1 or max_concurrent == 1:
        for item in items:
            work(item)
        return
    with ThreadPoolExecutor(min(max_concurrent, len(items))) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            if stopping is not None:
                stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
