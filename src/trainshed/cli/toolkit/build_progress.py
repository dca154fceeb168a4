"""Progress of a runtime build in this process: a bar on a terminal, otherwise lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from trainshed.cli.toolkit.output import say

_LINE_FRACTION = 0.1  #: of a build, between two lines


@contextmanager
def show_build(runtime: str) -> Iterator[Callable[[float, str], None]]:
    """Yield the progress callback of a build. Nothing is shown without a build."""
    with ExitStack() as stack:
        yield _bar(runtime, stack) if sys.stderr.isatty() else _lines(runtime)


def _lines(runtime: str) -> Callable[[float, str], None]:
    last_fraction = -1.0

    def report(fraction: float, text: str) -> None:
        nonlocal last_fraction
        if fraction - last_fraction >= _LINE_FRACTION:
            last_fraction = fraction
            say(f"Runtime {runtime} is built once: {fraction:4.0%}  {text}")

    return report


def _bar(runtime: str, stack: ExitStack) -> Callable[[float, str], None]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(f"Runtime {runtime}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
    bar = Progress(*columns, TimeElapsedColumn(), TextColumn("{task.description}"), console=Console(stderr=True))
    task = bar.add_task("", total=1.0)
    started = False

    def report(fraction: float, text: str) -> None:
        nonlocal started
        if not started:
            started = True
            stack.enter_context(bar)
        bar.update(task, completed=fraction, description=text)

    return report
