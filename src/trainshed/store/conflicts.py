"""Writing over what was read, while others may do the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from trainshed.errors import Overtaken

T = TypeVar("T")

TRIES = 20


def until_first(once: Callable[[], T]) -> T:
    """What `once` gives, which reads, decides and writes: from the start again if someone else wrote in between.

    `Overtaken` if others are always faster. All that `once` does before it writes must bear being done again.
    """
    for _ in range(TRIES - 1):
        try:
            return once()
        except Overtaken:
            continue
    return once()
