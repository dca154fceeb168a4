"""Watches the event loop of a test server: how much CPU time passes in it between two turns.

CPU time of the loop's own thread, so a busy machine is no fault, and work in other threads is none.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

FILE = "blocked-loop.txt"
BEAT_INTERVAL_S = 0.05
MAX_BLOCKED_S = 0.5  #: of CPU time, in which nobody else is answered
_MAX_SHOWN = 5


class LoopWatch:
    """Writes a line to a file in the state folder for each time that the loop was blocked, with what began then."""

    def __init__(self, home: Path) -> None:
        self._file = home / FILE
        self._recent: list[str] = []
        self._task: asyncio.Task[None] | None = None

    def note(self, request: str) -> None:
        """A request begins. The first one starts the watch in its loop."""
        self._recent.append(request)
        if self._task is None:
            self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        last_s = time.thread_time()
        while True:
            await asyncio.sleep(BEAT_INTERVAL_S)
            now_s = time.thread_time()
            if now_s - last_s > MAX_BLOCKED_S:
                with open(self._file, "a") as file:
                    file.write(f"{now_s - last_s:.2f} s: {' | '.join(self._recent[-_MAX_SHOWN:])}\n")
            last_s = now_s
            self._recent.clear()


def blocked_loops(home: Path) -> list[str]:
    """Return what the watch of a server has written."""
    file = home / FILE
    return file.read_text().splitlines() if file.exists() else []
