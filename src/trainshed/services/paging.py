"""Lists in pages, newest first, looked through by a filter without reading everything at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

SCAN_ROWS = 500  #: rows read at a time when a filter looks through them
SCAN_LIMIT = 10_000  #: rows that one request looks through; the page token goes on from there

RowCursor = tuple[int, str]  #: created_us and id of the last row that was looked at
START: RowCursor = (2**62, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePage:
    """Some items in the API's form, and where to go on; None at the end."""

    items: Sequence[Mapping[str, Any]]
    next: RowCursor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """Which page of a list is wanted."""

    size: int
    after: RowCursor | None = None  #: None: from the start
    query: str = ""  #: a filter; empty matches everything


class _Dated(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def created_us(self) -> int: ...


Row = TypeVar("Row", bound=_Dated)


def scan(
    read: Callable[[RowCursor, int], Sequence[Row]],
    matches: Callable[[Row], bool],
    wanted: PageRequest,
) -> tuple[list[Row], RowCursor | None]:
    """Up to `wanted.size` rows that match, and where to go on.

    There may be fewer, even none, and still somewhere to go on: one call looks through `SCAN_LIMIT` rows.
    """
    found: list[Row] = []
    cursor = wanted.after or START
    rows = SCAN_ROWS if wanted.query else wanted.size + 1
    for _ in range(0, SCAN_LIMIT, SCAN_ROWS):
        batch = read(cursor, rows)
        for row in batch:
            if matches(row):
                if len(found) == wanted.size:
                    return found, cursor
                found.append(row)
            cursor = (row.created_us, row.id)
        if len(batch) < rows:
            return found, None
    return found, cursor
