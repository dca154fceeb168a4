"""Pages of lists, newest first. Filters scan rows in batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

SCAN_ROWS = 500  #: rows per read while a filter scans
MAX_SCAN_ROWS = 10_000  #: rows that one request scans; the page token continues from there

RowCursor = tuple[int, str]  #: order_us and id of the last scanned row
START: RowCursor = (2**62, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePage:
    """Items as resources of the API, and the cursor of the next page; None at the end."""

    items: Sequence[Mapping[str, Any]]
    next: RowCursor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """Which page of a list to return."""

    size: int
    after: RowCursor | None = None  #: None for the first page
    query: str = ""  #: a filter; if empty, everything matches


class _Ordered(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def order_us(self) -> int: ...


Row = TypeVar("Row", bound=_Ordered)


def scan(
    read: Callable[[RowCursor, int], Sequence[Row]],
    matches: Callable[[Row], bool],
    request: PageRequest,
) -> tuple[list[Row], RowCursor | None]:
    """Return up to `request.size` matching rows, and the cursor of the next page.

    A page may be short or empty and still have a next one: one call scans at most `MAX_SCAN_ROWS` rows.
    """
    matched: list[Row] = []
    cursor = request.after or START
    rows = SCAN_ROWS if request.query else request.size + 1
    for _ in range(0, MAX_SCAN_ROWS, SCAN_ROWS):
        batch = read(cursor, rows)
        for row in batch:
            if matches(row):
                if len(matched) == request.size:
                    return matched, cursor
                matched.append(row)
            cursor = (row.order_us, row.id)
        if len(batch) < rows:
            return matched, None
    return matched, cursor
