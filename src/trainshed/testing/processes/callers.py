"""Clients for tests: they send requests to a version in a loop, and count the responses."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any


class Callers:
    """Each thread calls `ask` with its own number, one request after the other, until `with` ends."""

    def __init__(self, ask: Callable[[int], tuple[int, Any]], count: int) -> None:
        self.statuses: Counter[int] = Counter()
        self.wrong: list[Any] = []  #: responses other than the number
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
            status, response = self._ask(number)
            with self._lock:
                self.statuses[status] += 1
                if (status, response) != (200, {"predictions": [number]}):
                    self.wrong.append((status, response))
