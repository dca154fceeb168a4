"""Long polls: a request that has nothing to tell yet is held, without a thread, until there is something."""

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
_LOOK_S = 0.1  #: between looks at the size of the files
_LOOKS = 3  #: between looks at the job and its events
_FEW = 30  #: held requests; if there are more, each of them looks less often, so that all together cost no more


class PollResult(Protocol):
    """An answer to what has come since a cursor."""

    @property
    def entries(self) -> Sequence[LogEntry]: ...

    @property
    def cursor(self) -> LogCursor: ...

    @property
    def more(self) -> bool: ...

    @property
    def ended(self) -> bool: ...


Answer = TypeVar("Answer", bound=PollResult)


async def _never() -> bool:
    return False


class HeldRequests:
    """The requests that are held at the moment, on one event loop."""

    def __init__(self) -> None:
        self._held = 0

    @contextmanager
    def one_more(self) -> Iterator[None]:
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    @property
    def look_s(self) -> float:
        """How long each of them waits between two looks."""
        return _LOOK_S * max(1.0, self._held / _FEW)


_CROWD = HeldRequests()


async def wait_for_news(
    read: Callable[[LogCursor | None], Answer],
    sizes: Callable[[LogCursor], tuple[int, ...]],
    after: LogCursor | None,
    *,
    wait_s: float,
    gone: Callable[[], Awaitable[bool]] = _never,
) -> Answer:
    """What there is beyond `after`, as soon as there is something, the job has ended, the time is up, or the client is
    gone. `read` may block and runs in a thread; `sizes` costs microseconds.
    """
    clock = asyncio.get_running_loop().time
    until = clock() + wait_s
    with _CROWD.one_more():
        while True:
            answer = await run_in_threadpool(read, after)
            if answer.entries or answer.ended or clock() >= until or await gone():
                return answer
            after = answer.cursor
            if not answer.more:
                await _changed(partial(sizes, after), until)


async def _changed(seen: Callable[[], tuple[int, ...]], until: float) -> None:
    """Wait until it is something else, the time is up, or it is time to look at more than that."""
    clock = asyncio.get_running_loop().time
    before = seen()
    for _ in range(_LOOKS):
        await asyncio.sleep(min(_CROWD.look_s, max(0.0, until - clock())))
        if clock() >= until or seen() != before:
            return


def wait_s(text: str) -> float:
    """How long a request may be held. `InvalidArgumentError` if it is no such number."""
    try:
        seconds = float(text or 0)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_WAIT_S:
        raise InvalidArgumentError(f"`wait_s` is a number of seconds from 0 to {MAX_WAIT_S:g}.", field="wait_s")
    return seconds
