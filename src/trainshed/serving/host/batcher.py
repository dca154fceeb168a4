"""Requests wait here for the model, which takes what is waiting: it never waits for a batch to fill.

One thread works; others offer, cancel and ask. Those never wait for the model.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from ..codec.responses import Answer, error_answer
from ..memory import IDLE_S


class ResponseSender(Protocol):
    """Where answers go."""

    def send(self, answers: Sequence[tuple[int, Answer]]) -> None:
        """Ids and answers, written at once. Raises nothing if there is nobody any more."""


class PendingRequest:
    """One request that waits for its turn."""

    __slots__ = ("count", "key", "request", "request_id", "run", "sender")

    def __init__(self, sender: ResponseSender, request_id: int, run: Run, request: Any, count: int = 1) -> None:
        self.sender = sender
        self.request_id = request_id
        self.run = run  #: answers several requests of one key
        self.request = request
        self.count = count  #: of instances
        self.key: object = getattr(request, "key", None)  #: requests with equal keys, but None, may be put together


Run = Callable[[list[Any]], Sequence[Answer]]


@dataclass(slots=True, kw_only=True)
class BatcherStats:
    """Since the start."""

    requests: int = 0
    instances: int = 0
    batches: int = 0
    failed: int = 0  #: requests answered with another status than 200
    refused: int = 0  #: because too many waited
    cancelled: int = 0  #: before they were begun

    def as_json(self) -> dict[str, int]:
        return asdict(self)


class Batcher:
    """The queue and the work on it. `work` is for one thread, everything else for all."""

    def __init__(
        self, *, max_batch: int, queue_limit: int, merges: bool, idle: Callable[[], None] = lambda: None
    ) -> None:
        """`idle` is called, by the thread that works, once there has been nothing to do for a while."""
        self.counts = BatcherStats()
        self._on_idle = idle
        self._max_batch = max_batch if merges else 0
        self._queue_limit = queue_limit
        self._waiting: deque[PendingRequest] = deque()
        self._lock = threading.Lock()
        self._bell = threading.Lock()  # held while there is nothing to do
        self._bell.acquire()
        self._idle = False
        self._closed = False
        self._since = 0.0  # when the model was last called, 0 while it is not

    def full(self) -> bool:
        """Whether an offer would be refused. Counts as a refusal if so."""
        if len(self._waiting) < self._queue_limit:
            return False
        self.counts.refused += 1
        return True

    def enqueue(self, job: PendingRequest) -> None:
        with self._lock:
            self._waiting.append(job)
            ring, self._idle = self._idle, False
        if ring:
            self._bell.release()

    def cancel(self, sender: ResponseSender, request_id: int | None = None) -> None:
        """Forget a request, or all requests, of a sender, unless they have begun."""
        with self._lock:
            kept = [j for j in self._waiting if j.sender is not sender or request_id not in (None, j.request_id)]
            self.counts.cancelled += len(self._waiting) - len(kept)
            self._waiting = deque(kept)

    def close(self) -> None:
        """Let `work` return once nothing waits any more."""
        with self._lock:
            self._closed = True
            ring, self._idle = self._idle, False
        if ring:
            self._bell.release()

    def waiting(self) -> int:
        return len(self._waiting)

    def running_s(self) -> float:
        """For how long the model has been at what it does, 0 if it does nothing."""
        since = self._since
        return time.monotonic() - since if since else 0.0

    def work(self) -> None:
        """Answer requests until `close`."""
        while batch := self._next():
            self._since = time.monotonic()
            answers = self._answers(batch)
            self._since = 0.0
            self.counts.requests += len(batch)
            self.counts.instances += sum(job.count for job in batch)
            self.counts.batches += 1
            self.counts.failed += sum(status != 200 for status, _ in answers)
            _deliver(batch, answers)

    def _next(self) -> list[PendingRequest]:
        """What is to be run now: the request that waited longest and those that go with it. Nothing after `close`."""
        while True:
            with self._lock:
                if self._waiting:
                    return self._take()
                if self._closed:
                    return []
                self._idle = True
            if not self._bell.acquire(timeout=IDLE_S):
                self._on_idle()
                self._bell.acquire()

    def _take(self) -> list[PendingRequest]:
        first = self._waiting.popleft()
        batch, left = [first], self._max_batch - first.count
        if first.key is None or left <= 0 or not self._waiting:
            return batch
        passed: list[PendingRequest] = []
        while self._waiting and left > 0:
            job = self._waiting.popleft()
            if job.key == first.key and job.count <= left:
                batch.append(job)
                left -= job.count
            else:
                passed.append(job)
        self._waiting.extendleft(reversed(passed))
        return batch

    def _answers(self, batch: list[PendingRequest]) -> Sequence[Answer]:
        try:
            return batch[0].run([job.request for job in batch])
        except Exception as exc:  # noqa: BLE001 - whatever a model raises is the answer to who asked it
            if len(batch) == 1:
                return [error_answer(exc)]
        return [self._answers([job])[0] for job in batch]  # so that only the one at fault fails


def _deliver(batch: list[PendingRequest], answers: Sequence[Answer]) -> None:
    first = batch[0].sender
    if all(job.sender is first for job in batch):
        first.send([(job.request_id, answer) for job, answer in zip(batch, answers, strict=True)])
        return
    for job, answer in zip(batch, answers, strict=True):
        job.sender.send([(job.request_id, answer)])
