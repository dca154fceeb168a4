"""Many transfers at once, with a progress bar for people and lines for logs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

from trainshed.cli.copying import Transfer, carry_out
from trainshed.cli.output import say, sentence
from trainshed.client import Storage
from trainshed.client.storage import Progress
from trainshed.errors import TrainshedError

T = TypeVar("T")

AT_ONCE = 8


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
    failed: list[Transfer] = []

    def one(transfer: Transfer) -> None:
        if not quiet and not with_bar:
            say(f"Copying {transfer.source.url.shown}...")
        try:
            carry_out(storage, transfer, progress=progress)
        except TrainshedError as exc:
            if len(transfers) == 1:
                raise
            failed.append(transfer)
            say(f"ERROR: {transfer.source.url}: {sentence(exc)}")

    with _progress(total, shown=with_bar) as progress:
        in_parallel(one, transfers, at_once=1 if transfers[0].to.is_stream else AT_ONCE)
    if failed:
        raise TrainshedError(f"{len(failed)} files/objects could not be transferred.")
    if not quiet:
        say(f"\nOperation completed over {len(transfers)} objects/{human(total)}.")


def in_parallel(work: Callable[[T], None], items: Sequence[T], *, at_once: int = AT_ONCE) -> None:
    """`work` for each item, several at a time. The first error ends it: what has not begun is not begun."""
    if len(items) <= 1 or at_once == 1:
        for item in items:
            work(item)
        return
    with ThreadPoolExecutor(min(at_once, len(items))) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:  # Ctrl-C too
            for future in futures:
                future.cancel()
            raise


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
