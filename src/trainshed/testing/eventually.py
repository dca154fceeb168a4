"""Waiting for a condition, with a failure that says what was seen last."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SETTLE_TIMEOUT_S = 90.0  #: for what takes a moment on an idle machine; tests share theirs
MIN_POLL_INTERVAL_S = 0.01
MAX_POLL_INTERVAL_S = 0.1  #: once it has waited for a while: most reads are requests, and the cores are shared
_INTERVAL_GROWTH = 0.05  #: part of the time waited so far


def eventually(
    read: Callable[[], T],
    good: Callable[[T], object] = bool,
    *,
    within_s: float = SETTLE_TIMEOUT_S,
    interval_s: float = MIN_POLL_INTERVAL_S,
    retry_on: type[Exception] | tuple[type[Exception], ...] = (),
    describe: Callable[[], object] | None = None,
) -> T:
    """Return the first value of `read` that is `good`. Reads again until then, less often as time goes on.

    `interval_s` is between the first reads. Errors of the types in `retry_on` count as no value. After `within_s`, it
    fails with the last value or error, and with what `describe` returns then.
    """
    began = time.monotonic()
    while True:
        try:
            value = read()
            if good(value):
                return value
            seen = f"still {value!r}"
        except retry_on as exc:
            seen = f"still {type(exc).__name__}: {exc}"
        waited_s = time.monotonic() - began
        if waited_s >= within_s:
            details = f"\n{describe()}" if describe is not None else ""
            raise AssertionError(f"{seen} after {within_s:g} s{details}")
        time.sleep(max(min(_INTERVAL_GROWTH * waited_s, MAX_POLL_INTERVAL_S), interval_s))
