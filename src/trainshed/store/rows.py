"""Rows that can't be parsed: a clear error for the one that is asked for, and no obstacle to all others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from trainshed.errors import DataLossError
from trainshed.store.database import Transaction

LOG = logging.getLogger("trainshed.store")

T = TypeVar("T")
Row = Mapping[str, Any]

MAX_LOGGED_ROWS = 1024  #: unreadable rows that are remembered as logged


@dataclass(frozen=True, slots=True)
class ReadRows(Generic[T]):
    """The values of rows, and the rows that can't be parsed."""

    values: list[T]
    unreadable: list[Row]


def parse_row(row: Row, parse: Callable[[Row], T], *, name: str) -> T:
    """Parse one row. Raises `DataLossError`, which names the resource, if that fails in any way."""
    try:
        return parse(row)
    except Exception as exc:  # a parser of a damaged row may raise anything
        raise DataLossError(
            f"The row of {name} in the database can't be read: {type(exc).__name__}: {exc}. Nothing else is affected. "
            f"Repair the row, or restore it from a backup of the database."
        ) from exc


def read_rows(rows: Iterable[Row], parse: Callable[[Row], T]) -> ReadRows[T]:
    """Parse rows with a function that raises `DataLossError`. Each unreadable row is logged once."""
    values: list[T] = []
    unreadable: list[Row] = []
    for row in rows:
        try:
            values.append(parse(row))
        except DataLossError as exc:
            _log_once(str(exc))
            unreadable.append(row)
    return ReadRows(values, unreadable)


def read_page(
    tx: Transaction, query: sa.TextClause, values: Mapping[str, Any], parse: Callable[[Row], T], *, limit: int
) -> ReadRows[T]:
    """Read up to `limit` values. Unreadable rows do not count, so a page with fewer values is the last one."""
    asked = limit
    while True:
        rows = tx.rows(query, {**values, "limit": asked})
        read = read_rows(rows, parse)
        if len(rows) < asked or len(read.values) >= limit:
            return ReadRows(read.values[:limit], read.unreadable)
        asked = limit + len(read.unreadable)


@lru_cache(MAX_LOGGED_ROWS)
def _log_once(reason: str) -> None:
    LOG.error("row.unreadable reason=%s", reason)
