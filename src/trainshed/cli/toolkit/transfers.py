"""Many concurrent transfers, with a progress bar for people and lines for logs."""

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
    """Format a size: 1536 is 1.5 KiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.2f}".rstrip("0").rstrip(".") + f" {unit}"


def run(storage: Storage, transfers: Sequence[Transfer], *, bar: bool | None, quiet: bool) -> None:
    """Run all transfers. A failed one is reported and the others go on; raises `TrainshedError` at the end."""
    with_bar = not quiet and (sys.stderr.isatty() if bar is None else bar)
    total = sum(transfer.source.size or 0 for transfer in transfers)
    max_concurrent = 1 if transfers[0].to.is_stream else MAX_CONCURRENT
    with _progress(total, visible=with_bar) as on_progress:
        state = _CopyState(
            storage, alone=len(transfers) == 1, print_lines=not quiet and not with_bar, on_progress=on_progress
        )
        in_parallel(state.copy, transfers, max_concurrent=max_concurrent, stopping=state.stopping)
    if state.failed:
        raise TrainshedError(f"{state.failed} files/objects could not be transferred.")
    if not quiet:
        say(f"\nOperation completed over {len(transfers)} objects/{human(state.moved)}.")


class _CopyState:
    """The state that the threads of one copy share."""

    def __init__(self, storage: Storage, *, alone: bool, print_lines: bool, on_progress: Progress) -> None:
        self.moved = 0
        self.failed = 0
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._storage = storage
        self._alone = alone
        self._print_lines = print_lines
        self._on_progress = on_progress

    def copy(self, transfer: Transfer) -> None:
        if self._print_lines:
            say(f"Copying {transfer.source.url.display}...")
        try:
            run_transfer(self._storage, transfer, progress=self._advance)
        except TrainshedError as exc:
            if self._alone or self.stopping.is_set():
                raise
            with self._lock:
                self.failed += 1
            say(f"ERROR: {transfer.source.url}: {sentence(exc)}")

    def _advance(self, count: int) -> None:
        if self.stopping.is_set():  # after Ctrl-C nothing goes on in the background
            raise TrainshedError("Stopped.")
        with self._lock:
            self.moved += count
        self._on_progress(count)


@contextmanager
def _progress(total: int, *, visible: bool) -> Iterator[Progress]:
    """Yield a callback for transferred bytes. Thread-safe."""
    if not visible:
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True, force_terminal=True)
    with Bar(BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("", total=total or None)
        yield lambda count: bar.advance(task, count)
