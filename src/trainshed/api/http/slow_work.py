"""Slow work runs in threads of its own, by kind, so that ordinary requests never wait behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request

from trainshed.domain.work_budget import WorkBudget, WorkLimits
from trainshed.errors import RequestCancelledError, ResourceExhaustedError

T = TypeVar("T")

_MB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkKind:
    """One kind of slow work: what it is called, how many threads it has and how many requests wait for one."""

    name: str
    threads: int
    max_waiting: int
    limits: WorkLimits


#: few threads for what runs in Python itself: they compete with the event loop for the interpreter
LOG_QUERIES = WorkKind(
    name="log queries", threads=2, max_waiting=32, limits=WorkLimits(max_bytes=8 * _MB, max_seconds=0.4)
)
LOG_PAGES = WorkKind(
    name="reads of job logs", threads=4, max_waiting=256, limits=WorkLimits(max_bytes=8 * _MB, max_seconds=1.0)
)
CHECKSUMS = WorkKind(
    name="checksums", threads=4, max_waiting=64, limits=WorkLimits(max_bytes=64 * _MB, max_seconds=10.0)
)
REPLAYS = WorkKind(name="replays", threads=2, max_waiting=4, limits=WorkLimits(max_bytes=256 * _MB, max_seconds=60.0))
COPIES = WorkKind(
    name="copies of objects", threads=4, max_waiting=32, limits=WorkLimits(max_bytes=1 << 62, max_seconds=3600.0)
)
TRANSFERS = WorkKind(
    name="uploads and downloads", threads=16, max_waiting=1000, limits=WorkLimits(max_bytes=1 << 62, max_seconds=3600.0)
)
KINDS = (LOG_QUERIES, LOG_PAGES, CHECKSUMS, REPLAYS, COPIES, TRANSFERS)


class Threads:
    """The threads of one kind of work. Event loop only."""

    def __init__(self, kind: WorkKind) -> None:
        self._kind = kind
        self._slots = asyncio.Semaphore(kind.threads)
        self._limiter = CapacityLimiter(kind.threads)
        self.running = 0
        self.waiting = 0

    async def run(self, request: Request, work: Callable[[WorkBudget], T]) -> T:
        """Do the work in a thread. It is stopped when the client disconnects.

        Raises `ResourceExhaustedError` if too many requests wait already, and `RequestCancelledError` if the client
        has disconnected.
        """
        if self.waiting >= self._kind.max_waiting:
            raise ResourceExhaustedError(
                f"Too many {self._kind.name} are under way: {self.running} run and {self.waiting} wait. Try again in "
                f"a few seconds.",
                retry_after_s=2,
            )
        budget = WorkBudget(self._kind.limits)
        started = asyncio.Event()
        task = asyncio.create_task(self._run(work, budget, started))
        task.add_done_callback(_retrieve)
        gone = asyncio.create_task(_disconnected(request))
        try:
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise RequestCancelledError("The client has disconnected, so the work for it was stopped.")
        finally:
            gone.cancel()
            budget.cancel()
            if not started.is_set():
                task.cancel()

    async def piece(self, work: Callable[..., T], *args: object) -> T:
        """Do a short and bounded piece of a longer transfer in a thread."""
        async with self._slots:
            return await to_thread.run_sync(work, *args, limiter=self._limiter)

    async def _run(self, work: Callable[[WorkBudget], T], budget: WorkBudget, started: asyncio.Event) -> T:
        self.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.waiting -= 1
        started.set()
        self.running += 1
        budget.begin()
        try:
            return await to_thread.run_sync(work, budget, limiter=self._limiter)
        finally:
            self.running -= 1
            self._slots.release()


class SlowWork:
    """The threads of all kinds, for one server."""

    def __init__(self) -> None:
        self._threads = {kind.name: Threads(kind) for kind in KINDS}

    def of(self, kind: WorkKind) -> Threads:
        return self._threads[kind.name]


def slow_work(request: Request, kind: WorkKind) -> Threads:
    """The threads for this kind of work."""
    return cast(SlowWork, request.scope["trainshed.slow_work"]).of(kind)


async def _disconnected(request: Request) -> None:
    """Return when the client disconnects. What it still sends is dropped: the handler has read what it needs."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _retrieve(task: asyncio.Task[T]) -> None:
    """Take the outcome of work that nobody waits for any more."""
    if not task.cancelled():
        task.exception()
