"""Showing a runtime's build that happens in this process: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from trainshed.cli.toolkit.output import say

_SAID_EVERY = 0.1  #: of a build, between two lines


@contextmanager
def shown_build(runtime: str) -> Iterator[Callable[[float, str], None]]:
    """What to tell the progress of a build to. Nothing is shown if there is none."""
    with ExitStack() as stack:
        yield _bar(runtime, stack) if sys.stderr.isatty() else _lines(runtime)


def _lines(runtime: str) -> Callable[[float, str], None]:
    said = -1.0

    def tell(fraction: float, text: str) -> None:
        nonlocal said
        if fraction - said >= _SAID_EVERY:
            said = fraction
            say(f"Runtime {runtime} is built once: {fraction:4.0%}  {text}")

    return tell


def _bar(runtime: str, stack: ExitStack) -> Callable[[float, str], None]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(f"Runtime {runtime}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
    bar = Progress(*columns, TimeElapsedColumn(), TextColumn("{task.description}"), console=Console(stderr=True))
    task = bar.add_task("", total=1.0)
    begun = False

    def tell(fraction: float, text: str) -> None:
        nonlocal begun
        if not begun:
            begun = True
            stack.enter_context(bar)
        bar.update(task, completed=fraction, description=text)

    return tell
