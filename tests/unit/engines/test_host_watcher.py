"""The thread that observes hosts, with processes that are no hosts."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainshed.engines.hosts.watcher import HostProcess, HostWatcher
from trainshed.engines.reaped_process import PipeHandle
from trainshed.testing.eventually import eventually


class CatHandle(PipeHandle):
    """Handle of `cat`, which ends when it is released. Calls `on_read` before each read."""

    def __init__(self, on_read: Callable[[], None] = lambda: None) -> None:
        super().__init__(subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        self._on_read = on_read

    def echo(self) -> None:
        self._life.write(b"x")
        self._life.flush()

    def read(self) -> bytes:
        self._on_read()
        return super().read()


@pytest.fixture
def watcher() -> Iterator[HostWatcher]:
    watcher = HostWatcher()
    watcher.open(lambda: None)
    yield watcher
    watcher.close()


def test_a_host_that_is_added_while_events_are_handled_is_observed(tmp_path: Path, watcher: HostWatcher) -> None:
    handling, ready = threading.Event(), threading.Event()
    reads = 0
    later = HostProcess(CatHandle(), tmp_path / "log", tmp_path / "later")

    def on_read() -> None:
        nonlocal reads
        reads += 1
        if reads == 1:
            handling.set()
            ready.wait()
            raise BlockingIOError  # so what was echoed is an event of the next step, and comes before the wakeup
        if reads == 2:
            watcher.add(later)

    handle = CatHandle(on_read)
    earlier = HostProcess(handle, tmp_path / "log", tmp_path / "earlier")
    watcher.add(earlier)
    handle.echo()
    handling.wait()
    watcher.wakeup()
    ready.set()
    eventually(lambda: reads >= 2)

    later.end("done")
    try:
        eventually(later.ended.is_set)
    finally:
        earlier.end("done")
