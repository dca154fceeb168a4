"""The batcher: a queue of requests, and the thread that runs the model on them in batches.

A batch has the requests that are pending when the model is free; it never waits to fill. Enqueueing and cancelling
never wait for the model.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from ..codec.responses import Answer, error_answer
from ..memory import TRIM_IDLE_TIMEOUT_S


class ResponseSender(Protocol):
    """Sends responses to a client of the host."""

    def send(self, answers: Sequence[tuple[int, Answer]]) -> None:
        """Send responses with their request ids, in one write. Does nothing if the connection is closed."""


class PendingRequest:
    """A request in the queue."""

    __slots__ = ("count", "key", "request", "request_id", "run", "sender")

    def __init__(self, sender: ResponseSender, request_id: int, run: Run, request: Any, count: int = 1) -> None:
        self.sender = sender
        self.request_id = request_id
        self.run = run  #: serves requests with equal keys
        self.request = request
        self.count = count  #: number of instances
        self.key: object = getattr(request, "key", None)  #: requests with equal keys, except None, can share a batch


Run = Callable[[list[Any]], Sequence[Answer]]


@dataclass(slots=True, kw_only=True)
class BatcherStats:
    """Counts since the start."""

    requests: int = 0
    instances: int = 0
    batches: int = 0
    failed: int = 0  #: requests with another status than 200
    refused: int = 0  #: because the queue was full
    cancelled: int = 0  #: before they ran

    def as_json(self) -> dict[str, int]:
        return asdict(self)


class Batcher:
    """The queue and its worker. `work` is for one thread; everything else is thread-safe."""

    def __init__(
        self, *, max_batch: int, queue_limit: int, merges: bool, idle: Callable[[], None] = lambda: None
    ) -> None:
        """The worker calls `idle` after TRIM_IDLE_TIMEOUT_S without requests."""
        self.counts = BatcherStats()
        self._on_idle = idle
        self._max_batch = max_batch if merges else 0
        self._queue_limit = queue_limit
        self._queue: deque[PendingRequest] = deque()
        self._lock = threading.Lock()
        self._wakeup = threading.Lock()  # held while the queue is empty
        self._wakeup.acquire()
        self._idle = False
        self._closed = False
        self._started_s = 0.0  # when the running call of the model started; 0 if none runs

    def full(self) -> bool:
        """Whether the queue is full. If it is, the request counts as refused."""
        if len(self._queue) < self._queue_limit:
            return False
        self.counts.refused += 1
        return True

    def enqueue(self, pending: PendingRequest) -> None:
        with self._lock:
            self._queue.append(pending)
            wakes, self._idle = self._idle, False
        if wakes:
            self._wakeup.release()

    def cancel(self, sender: ResponseSender, request_id: int | None = None) -> None:
        """Cancel one or all requests of a sender, unless they are running."""
        with self._lock:
            remaining = [p for p in self._queue if p.sender is not sender or request_id not in (None, p.request_id)]
            self.counts.cancelled += len(self._queue) - len(remaining)
            self._queue = deque(remaining)

    def close(self) -> None:
        """Let `work` return once the queue is empty."""
        with self._lock:
            self._closed = True
            wakes, self._idle = self._idle, False
        if wakes:
            self._wakeup.release()

    def waiting(self) -> int:
        return len(self._queue)

    def running_s(self) -> float:
        """How long the current call of the model has run; 0 if none runs."""
        started_s = self._started_s
        return time.monotonic() - started_s if started_s else 0.0

    def work(self) -> None:
        """Run batches until `close`."""
        while batch := self._next():
            self._started_s = time.monotonic()
            answers = self._run(batch)
            self._started_s = 0.0
            self.counts.requests += len(batch)
            self.counts.instances += sum(pending.count for pending in batch)
            self.counts.batches += 1
            self.counts.failed += sum(status != 200 for status, _ in answers)
            _send(batch, answers)

    def _next(self) -> list[PendingRequest]:
        """The next batch: the oldest request and others with its key. Empty after `close`."""
        while True:
            with self._lock:
                if self._queue:
                    return self._take()
                if self._closed:
                    return []
                self._idle = True
            if not self._wakeup.acquire(timeout=TRIM_IDLE_TIMEOUT_S):
                self._on_idle()
                self._wakeup.acquire()

    def _take(self) -> list[PendingRequest]:
        first = self._queue.popleft()
        batch, free = [first], self._max_batch - first.count
        if first.key is None or free <= 0 or not self._queue:
            return batch
        others: list[PendingRequest] = []
        while self._queue and free > 0:
            pending = self._queue.popleft()
            if pending.key == first.key and pending.count <= free:
                batch.append(pending)
                free -= pending.count
            else:
                others.append(pending)
        self._queue.extendleft(reversed(others))
        return batch

    def _run(self, batch: list[PendingRequest]) -> Sequence[Answer]:
        try:
            return batch[0].run([pending.request for pending in batch])
        except Exception as exc:  # noqa: BLE001 - every exception of a model becomes a response
            if len(batch) == 1:
                return [error_answer(exc)]
        return [self._run([pending])[0] for pending in batch]  # so that only the request at fault fails


def _send(batch: list[PendingRequest], answers: Sequence[Answer]) -> None:
    first = batch[0].sender
    if all(pending.sender is first for pending in batch):
        first.send([(pending.request_id, answer) for pending, answer in zip(batch, answers, strict=True)])
        return
    for pending, answer in zip(batch, answers, strict=True):
        pending.sender.send([(pending.request_id, answer)])
