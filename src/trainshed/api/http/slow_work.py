"""Slow work runs in threads of its own, by kind, so that ordinary requests never wait behind it."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request

from trainshed.domain.iam import Principal
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
    name="log queries", threads=3, max_waiting=32, limits=WorkLimits(max_bytes=8 * _MB, max_seconds=0.4)
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
LISTINGS = WorkKind(
    name="listings of buckets", threads=3, max_waiting=256, limits=WorkLimits(max_bytes=1 << 62, max_seconds=5.0)
)
CLOUD_LISTINGS = WorkKind(  #: these wait for a cloud, which may not respond
    name="listings of cloud buckets", threads=16, max_waiting=256, limits=WorkLimits(max_bytes=1 << 62, max_seconds=60)
)
INPUT_CHECKS = WorkKind(  #: of jobs and versions: those of batch predictions list whole buckets, others may ask a cloud
    name="checks of inputs", threads=4, max_waiting=256, limits=WorkLimits(max_bytes=1 << 62, max_seconds=30.0)
)
BUCKET_DELETES = WorkKind(
    name="deletes of buckets", threads=2, max_waiting=64, limits=WorkLimits(max_bytes=1 << 62, max_seconds=30.0)
)
SIGN_INS = WorkKind(  #: of command lines: these wait for an OpenID provider, for anybody
    name="sign-ins at the OpenID provider",
    threads=4,
    max_waiting=64,
    limits=WorkLimits(max_bytes=1 << 62, max_seconds=30.0),
)
SUGGESTIONS = WorkKind(  #: those of one study wait for each other
    name="suggestions", threads=8, max_waiting=256, limits=WorkLimits(max_bytes=1 << 62, max_seconds=60.0)
)
KINDS = (
    *(LOG_QUERIES, LOG_PAGES, CHECKSUMS, REPLAYS, COPIES, TRANSFERS, LISTINGS, CLOUD_LISTINGS),
    *(INPUT_CHECKS, BUCKET_DELETES, SIGN_INS, SUGGESTIONS),
)


class _Turn:
    """A request that waits for a thread."""

    def __init__(self, caller: str, *, displaceable: bool) -> None:
        self.caller = caller
        self.displaceable = displaceable
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class FairSlots:
    """Gives callers a bounded number of slots, in turn. Event loop only.

    One caller gets all slots but one at most, so that a slot comes free for others however long its work takes.
    """

    def __init__(self, number: int) -> None:
        self._free = number
        self._share = max(1, number - 1)
        self._held: Counter[str] = Counter()
        self._queues: dict[str, deque[_Turn]] = {}  #: of callers that wait, the next one first

    async def acquire(self, caller: str, *, displaceable: bool = False) -> None:
        """Wait for a slot. Raises the error of `displace` if that removes this request."""
        turn = _Turn(caller, displaceable=displaceable)
        self._queues.setdefault(caller, deque()).append(turn)
        self._hand_out()
        try:
            await turn.ready
        except asyncio.CancelledError:
            if turn.ready.done() and not turn.ready.cancelled() and turn.ready.exception() is None:
                self.release(caller)  # it got its slot in the same moment
            else:
                self._remove(turn)
            raise

    def release(self, caller: str) -> None:
        """Give a slot back."""
        self._free += 1
        self._held[caller] -= 1
        if not self._held[caller]:
            del self._held[caller]
        self._hand_out()

    def displace(self, caller: str, error: Exception) -> bool:
        """Fail the newest request of the caller with the most waiting requests, to make room for one of `caller`.

        Returns False if nobody has more of them than `caller` would have.
        """
        waiting = {name: [turn for turn in queue if turn.displaceable] for name, queue in self._queues.items()}
        turns = max(waiting.values(), key=len, default=[])
        if len(turns) <= len(waiting.get(caller, ())) + 1:
            return False
        turn = turns[-1]
        self._remove(turn)
        if not turn.ready.done():
            turn.ready.set_exception(error)
        return True

    def _remove(self, turn: _Turn) -> None:
        queue = self._queues.get(turn.caller)
        if queue is not None and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._queues[turn.caller]

    def _hand_out(self) -> None:
        while self._free:
            caller = next((name for name in self._queues if self._held[name] < self._share), None)
            if caller is None:
                return
            queue = self._queues.pop(caller)
            turn = queue.popleft()
            if queue:
                self._queues[caller] = queue  # behind all others
            if turn.ready.cancelled():
                continue
            self._free -= 1
            self._held[caller] += 1
            turn.ready.set_result(None)


class Threads:
    """The threads of one kind of work. Event loop only."""

    def __init__(self, kind: WorkKind) -> None:
        self._kind = kind
        self._slots = FairSlots(kind.threads)
        self._limiter = CapacityLimiter(kind.threads)
        self.running = 0
        self.waiting = 0

    async def run(
        self, request: Request, work: Callable[[WorkBudget], T], *, otherwise: Callable[[], object] = lambda: None
    ) -> T:
        """Do the work in a thread, which stops when the client disconnects. If it never begins, call `otherwise`.

        Raises `ResourceExhaustedError` if too many requests wait already, and `RequestCancelledError` if the client
        has disconnected. If others wait with more requests than this caller, one of theirs is refused instead.
        """
        budget = WorkBudget(self._kind.limits)
        started = asyncio.Event()
        try:
            caller = _caller(request)
            if self.waiting >= self._kind.max_waiting and not self._slots.displace(caller, self._too_many()):
                raise self._too_many()
            task = asyncio.create_task(self._run(caller, work, budget, started))
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
        finally:
            if not started.is_set():
                otherwise()

    async def piece(self, request: Request, work: Callable[..., T], *args: object) -> T:
        """Do a short and bounded piece of a longer transfer in a thread."""
        caller = _caller(request)
        await self._slots.acquire(caller)
        try:
            return await to_thread.run_sync(work, *args, limiter=self._limiter)
        finally:
            self._slots.release(caller)

    def _too_many(self) -> ResourceExhaustedError:
        return ResourceExhaustedError(
            f"Too many {self._kind.name} are under way: {self.running} run and {self.waiting} wait. Try again in "
            f"a few seconds.",
            retry_after_s=2,
        )

    async def _run(self, caller: str, work: Callable[[WorkBudget], T], budget: WorkBudget, started: asyncio.Event) -> T:
        self.waiting += 1
        try:
            await self._slots.acquire(caller, displaceable=True)
        finally:
            self.waiting -= 1
        started.set()
        self.running += 1
        budget.begin()
        try:
            return await to_thread.run_sync(work, budget, limiter=self._limiter)
        finally:
            self.running -= 1
            self._slots.release(caller)


class SlowWork:
    """The threads of all kinds, for one server."""

    def __init__(self) -> None:
        self._threads = {kind.name: Threads(kind) for kind in KINDS}

    def of(self, kind: WorkKind) -> Threads:
        return self._threads[kind.name]


def slow_work(request: Request, kind: WorkKind) -> Threads:
    """The threads for this kind of work."""
    return cast(SlowWork, request.scope["trainshed.slow_work"]).of(kind)


def _caller(request: Request) -> str:
    """Whose request it is: all tokens of a user are one caller."""
    principal = request.scope.get("trainshed.principal")
    return principal.user if isinstance(principal, Principal) else ""


async def _disconnected(request: Request) -> None:
    """Return when the client disconnects. What it still sends is dropped: the handler has read what it needs."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _retrieve(task: asyncio.Task[T]) -> None:
    """Take the outcome of work that nobody waits for any more."""
    if not task.cancelled():
        task.exception()
