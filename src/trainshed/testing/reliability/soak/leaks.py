"""What a process holds: files, threads, memory and zombies, now and before."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import psutil

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.reliability.checker import Violation

_SETTLE_TIMEOUT_S = 30.0
_MAX_MORE_FILES = 60  #: connections, and files of pools that a first use opens and keeps
_MAX_MORE_THREADS = 60
_MAX_MORE_BYTES = 150 << 20


@dataclass(frozen=True, slots=True)
class HeldResources:
    """What a process holds at one moment."""

    files: int
    threads: int
    memory_bytes: int
    zombies: int

    def leaks(self, after: HeldResources) -> list[Violation]:
        """Return what has grown by more than the pools of a server explain."""
        grown = {
            "files": (self.files, after.files, _MAX_MORE_FILES),
            "threads": (self.threads, after.threads, _MAX_MORE_THREADS),
            "bytes of memory": (self.memory_bytes, after.memory_bytes, _MAX_MORE_BYTES),
            "zombies": (self.zombies, after.zombies, 0),
        }
        return [
            Violation("survivors", f"{now} {what}, {was} before")
            for what, (was, now, more) in grown.items()
            if now > was + more
        ]

    def __str__(self) -> str:
        return f"{self.files} files, {self.threads} threads, {self.memory_bytes >> 20} MB, {self.zombies} zombies"


def held_resources(server: RunningServer) -> HeldResources:
    """What a server holds once its zombies are reaped."""
    process = psutil.Process(server.pid)

    def zombies() -> int:
        children = process.children()
        return sum(each.is_running() and each.status() == psutil.STATUS_ZOMBIE for each in children)

    with contextlib.suppress(AssertionError):  # those that are left are counted below
        eventually(zombies, lambda count: count == 0, within_s=_SETTLE_TIMEOUT_S)
    return HeldResources(process.num_fds(), process.num_threads(), process.memory_info().rss, zombies())
