"""Long polls: a request without entries to send is held, without a thread, until there are some."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

from trainshed.domain.logs import LogCursor
from trainshed.errors import InvalidArgumentError
from trainshed.services.logs.pages import LogPage

MAX_WAIT_S = 20.0
_CHECK_INTERVAL_S = 0.1  #: between checks of the size of the files
_CHECKS_PER_READ = 3  #: checks of the size between two reads of the job and its events
#: held requests at the full rate; with more, each checks less often, so that the total cost stays the same
_FULL_RATE_MAX = 30


async def _never() -> bool:
    return False


class HeldRequests:
    """Counts the held requests. Event loop only."""

    def __init__(self) -> None:
        self._count = 0

    @contextmanager
    def hold(self) -> Iterator[None]:
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1

    @property
    def check_interval_s(self) -> float:
        """The interval between two checks of one request."""
        return _CHECK_INTERVAL_S * max(1.0, self._count / _FULL_RATE_MAX)


_HELD_REQUESTS = HeldRequests()


async def wait_for_entries(
    read: Callable[[LogCursor | None], Awaitable[LogPage]],
    sizes: Callable[[LogCursor], tuple[int, ...]],
    cursor: LogCursor | None,
    *,
    wait_s: float,
    is_disconnected: Callable[[], Awaitable[bool]] = _never,
) -> LogPage:
    """Return the entries after `cursor`.

    Blocks until there are some, the job ends, `wait_s` passes or the client disconnects. `sizes` takes microseconds.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + wait_s
    with _HELD_REQUESTS.hold():
        while True:
            page = await read(cursor)
            if page.entries or page.ended or clock() >= deadline or await is_disconnected():
                return page
            cursor = page.cursor
            if not page.more:
                await _wait_for_change(partial(sizes, cursor), deadline)


async def _wait_for_change(sizes: Callable[[], tuple[int, ...]], deadline: float) -> None:
    """Wait until the sizes change, the deadline passes, or a full read is due."""
    clock = asyncio.get_running_loop().time
    before = sizes()
    for _ in range(_CHECKS_PER_READ):
        await asyncio.sleep(min(_HELD_REQUESTS.check_interval_s, max(0.0, deadline - clock())))
        if clock() >= deadline or sizes() != before:
            return


def wait_seconds(seconds: float) -> float:
    """Return how long a request may be held. Raises `InvalidArgumentError` if that is too long."""
    if not 0 <= seconds <= MAX_WAIT_S:
        raise InvalidArgumentError(f"`waitSeconds` is a number from 0 to {MAX_WAIT_S:g}.", field="waitSeconds")
    return seconds
