"""Long polls: a request without entries to send is held, without a thread, until there are some."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol, TypeVar

from starlette.concurrency import run_in_threadpool

from trainshed.domain.logs import LogCursor, LogEntry
from trainshed.errors import InvalidArgumentError

MAX_WAIT_S = 20.0
_CHECK_INTERVAL_S = 0.1  #: between checks of the size of the files
_CHECKS_PER_READ = 3  #: checks of the size between two reads of the job and its events
#: held requests at the full rate; with more, each checks less often, so that the total cost stays the same
_FULL_RATE_MAX = 30


class PollResult(Protocol):
    """What one read since a cursor returns."""

    @property
    def entries(self) -> Sequence[LogEntry]: ...

    @property
    def cursor(self) -> LogCursor: ...

    @property
    def more(self) -> bool: ...

    @property
    def ended(self) -> bool: ...


Result = TypeVar("Result", bound=PollResult)


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
    read: Callable[[LogCursor | None], Result],
    sizes: Callable[[LogCursor], tuple[int, ...]],
    after: LogCursor | None,
    *,
    wait_s: float,
    is_disconnected: Callable[[], Awaitable[bool]] = _never,
) -> Result:
    """Return the entries after `after`.

    Blocks until there are some, the job ends, `wait_s` passes or the client disconnects. `read` may block and runs in a
    thread; `sizes` takes microseconds.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + wait_s
    with _HELD_REQUESTS.hold():
        while True:
            result = await run_in_threadpool(read, after)
            if result.entries or result.ended or clock() >= deadline or await is_disconnected():
                return result
            after = result.cursor
            if not result.more:
                await _wait_for_change(partial(sizes, after), deadline)


async def _wait_for_change(sizes: Callable[[], tuple[int, ...]], deadline: float) -> None:
    """Wait until the sizes change, the deadline passes, or a full read is due."""
    clock = asyncio.get_running_loop().time
    before = sizes()
    for _ in range(_CHECKS_PER_READ):
        await asyncio.sleep(min(_HELD_REQUESTS.check_interval_s, max(0.0, deadline - clock())))
        if clock() >= deadline or sizes() != before:
            return


def wait_s(text: str) -> float:
    """Parse how long a request may be held. Raises `InvalidArgumentError` if it is no such number."""
    try:
        seconds = float(text or 0)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_WAIT_S:
        raise InvalidArgumentError(f"`wait_s` is a number of seconds from 0 to {MAX_WAIT_S:g}.", field="wait_s")
    return seconds
