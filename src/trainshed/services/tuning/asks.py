"""Clients that ask one study for trials at the same time are answered together."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainshed.domain.tuning.study import StudyKey
from trainshed.domain.tuning.study_request import MAX_SUGGESTIONS
from trainshed.errors import UnavailableError

_MAX_QUEUES = 1024  #: of studies, the latest ones

Answer = Mapping[str, Any] | Exception  #: an operation, or what is raised instead


@dataclass(slots=True, eq=False, kw_only=True)
class Ask:
    """What one client asks for. Compared by identity."""

    client: str
    count: int
    answer: Answer | None = None


class StudyQueue:
    """The asks of one study. Thread-safe.

    The first one is answered immediately. Those that come meanwhile wait, and one thread then answers all of them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._guard = threading.Lock()
        self._waiting: list[Ask] = []

    @property
    def waiting(self) -> int:
        """The number of asks that no thread answers yet."""
        return len(self._waiting)

    def answer(self, ask: Ask, answer_all: Callable[[Sequence[Ask]], Sequence[Answer]]) -> dict[str, Any]:
        """Return the answer to an ask. Blocks until it is answered. Raises what was answered instead.

        `answer_all` answers some asks, in order. What it raises is raised for each of them.
        """
        with self._guard:
            self._waiting.append(ask)
        with self._lock:
            while ask.answer is None:
                asks = self._take()
                answers: Sequence[Answer] = [UnavailableError("The server is being stopped.")] * len(asks)
                try:
                    answers = answer_all(asks)
                except Exception as exc:  # noqa: BLE001 - raised by the threads that wait for it
                    answers = [exc] * len(asks)
                finally:
                    for each, answer in zip(asks, answers, strict=True):
                        each.answer = answer
        if isinstance(ask.answer, Exception):
            raise ask.answer
        return dict(ask.answer)

    def _take(self) -> list[Ask]:
        """Take the asks to answer next: one of each client, and no more trials than one request may ask for."""
        with self._guard:
            taken: dict[str, Ask] = {}
            for ask in self._waiting:
                total = ask.count + sum(each.count for each in taken.values())
                if ask.client not in taken and (not taken or total <= MAX_SUGGESTIONS):
                    taken[ask.client] = ask
            self._waiting = [ask for ask in self._waiting if ask not in taken.values()]
            return list(taken.values())


class StudyQueues:
    """A queue for each study. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._queues: OrderedDict[StudyKey, StudyQueue] = OrderedDict()

    def of(self, key: StudyKey) -> StudyQueue:
        """Return the queue of a study. Rows are guarded too, so one that was forgotten costs a retry at most."""
        with self._guard:
            queue = self._queues.pop(key, None) or StudyQueue()
            self._queues[key] = queue
            if len(self._queues) > _MAX_QUEUES:
                self._queues.popitem(last=False)
            return queue
