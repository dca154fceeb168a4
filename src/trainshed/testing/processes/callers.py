"""Callers for tests: they ask a version again and again, and keep count of what they are told."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any


class Callers:
    """Each asks `ask` for the prediction of its own number, one request after the other, until they are stopped."""

    def __init__(self, ask: Callable[[int], tuple[int, Any]], count: int) -> None:
        self.statuses: Counter[int] = Counter()
        self.wrong: list[Any] = []  #: answers other than the number
        self._ask = ask
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._go_on, args=(number,)) for number in range(count)]

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _go_on(self, number: int) -> None:
        while not self._stopping.is_set():
            status, answer = self._ask(number)
            with self._lock:
                self.statuses[status] += 1
                if (status, answer) != (200, {"predictions": [number]}):
                    self.wrong.append((status, answer))
