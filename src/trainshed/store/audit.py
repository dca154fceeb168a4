"""Rows of the audit record. They are added and, when they are old, deleted; none is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainshed.domain.access.audit import AuditEntry, AuditSearch
from trainshed.store.database import Database, Transaction, load_queries

QUERY = load_queries("audit")
MAX_ID = 2**62
_ROWS_PER_READ = 500


class AuditStore:
    """The rows of the record. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, entries: Sequence[AuditEntry]) -> None:
        with self._database.write(riders=()) as tx:
            insert(tx, *entries)

    def newest(self, search: AuditSearch, *, before: tuple[int, int], limit: int) -> list[AuditEntry]:
        """Return entries before a time and id, the newest first."""
        values = {"since_us": search.since_us, "before_us": before[0], "before_id": before[1], "most": limit}
        with self._database.read() as tx:
            return [_entry(row) for row in tx.rows(QUERY["newest_first"], _values(search) | values)]

    def after(self, search: AuditSearch, entry_id: int, *, limit: int) -> list[AuditEntry]:
        """Return entries that were committed after the one with this id, in that order."""
        with self._database.read() as tx:
            rows = tx.rows(QUERY["as_committed"], _values(search) | {"after_id": entry_id, "most": limit})
        return [_entry(row) for row in rows]

    def last_id(self) -> int:
        with self._database.read() as tx:
            [row] = tx.rows(QUERY["last_id"])
        return int(row["id"])

    def between(self, project: str, since_us: int, until_us: int, *, descending: bool) -> Iterator[AuditEntry]:
        """Yield the entries of a project with a time in the range, in order. Reads a part of the rows at a time."""
        position = (until_us, MAX_ID) if descending else (since_us, -1)
        query = QUERY["between_descending" if descending else "between"]
        names = ("before_us", "before_id") if descending else ("after_us", "after_id")
        bounds = {"since_us": since_us} if descending else {"until_us": until_us}
        while True:
            values = {"project": project, "most": _ROWS_PER_READ, **bounds, **dict(zip(names, position, strict=True))}
            with self._database.read() as tx:
                entries = [_entry(row) for row in tx.rows(query, values)]
            yield from entries
            if len(entries) < _ROWS_PER_READ:
                return
            position = (entries[-1].time_us, entries[-1].id)

    def rotate(self, *, before_us: int, most: int) -> int:
        """Delete entries from before a time, and all but the newest `most`. Returns the number of deleted ones."""
        with self._database.write(riders=()) as tx:
            [row] = tx.rows(QUERY["last_id"])
            return tx.run(QUERY["forget"], {"before_us": before_us, "up_to_id": int(row["id"]) - most})


def insert(tx: Transaction, *entries: AuditEntry) -> None:
    """Add entries in a transaction."""
    tx.run_many(
        QUERY["insert_entry"],
        [
            {
                "time_us": entry.time_us,
                "project": entry.project,
                "user_name": entry.user,
                "address": entry.address,
                "method": entry.method,
                "resource": entry.resource,
                "outcome": entry.outcome,
                "times": entry.times,
            }
            for entry in entries
        ],
    )


def _values(search: AuditSearch) -> dict[str, Any]:
    return {
        "project": search.project,
        "user_name": search.user,
        "method": _pattern(search.method),
        "resource": _pattern(search.resource),
        "outcome": search.outcome,
    }


def _pattern(part: str) -> str:
    escaped = part.lower().replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return f"%{escaped}%"


def _entry(row: Mapping[str, Any]) -> AuditEntry:
    values = {name: row[name] for name in ("time_us", "project", "address", "method", "resource", "outcome", "times")}
    return AuditEntry(user=row["user_name"], id=row["id"], **values)
