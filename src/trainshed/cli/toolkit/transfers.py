"""Many transfers at once, with a progress bar for people and lines for logs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from trainshed.cli.toolkit.output import say, sentence
from trainshed.client import Storage
from trainshed.client.copy_plan import Transfer, run_transfer
from trainshed.client.parallel import MAX_CONCURRENT, in_parallel
from trainshed.client.storage import Progress
from trainshed.errors import TrainshedError


def human(size: float) -> str:
    """1536 -> 1.5 KiB"""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.2f}".rstrip("0").rstrip(".") + f" {unit}"


def run(storage: Storage, transfers: Sequence[Transfer], *, bar: bool | None, quiet: bool) -> None:
    """Carry out all of them. One that fails is said, the others go on, and the end is an error."""
    with_bar = not quiet and (sys.stderr.isatty() if bar is None else bar)
    total = sum(transfer.source.size or 0 for transfer in transfers)
    at_once = 1 if transfers[0].to.is_stream else MAX_CONCURRENT
    with _progress(total, shown=with_bar) as shown:
        copying = _Copying(storage, alone=len(transfers) == 1, lines=not quiet and not with_bar, shown=shown)
        in_parallel(copying.one, transfers, max_concurrent=at_once, stopping=copying.stopping)
    if copying.failed:
        raise TrainshedError(f"{copying.failed} files/objects could not be transferred.")
    if not quiet:
        say(f"\nOperation completed over {len(transfers)} objects/{human(copying.moved)}.")


class _Copying:
    """What the threads of one copy share."""

    def __init__(self, storage: Storage, *, alone: bool, lines: bool, shown: Progress) -> None:
        self.moved = 0
        self.failed = 0
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._storage = storage
        self._alone = alone
        self._lines = lines
        self._shown = shown

    def one(self, transfer: Transfer) -> None:
        if self._lines:
            say(f"Copying {transfer.source.url.shown}...")
        try:
            run_transfer(self._storage, transfer, progress=self._advance)
        except TrainshedError as exc:
            if self._alone or self.stopping.is_set():
                raise
            with self._lock:
                self.failed += 1
            say(f"ERROR: {transfer.source.url}: {sentence(exc)}")

    def _advance(self, count: int) -> None:
        if self.stopping.is_set():  # after Ctrl-C nothing goes on for minutes in the background
            raise TrainshedError("Stopped.")
        with self._lock:
            self.moved += count
        self._shown(count)


@contextmanager
def _progress(total: int, *, shown: bool) -> Iterator[Progress]:
    """A function that is told of bytes as they pass, from any thread."""
    if not shown:
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True, force_terminal=True)
    with Bar(BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("", total=total or None)
        yield lambda count: bar.advance(task, count)
