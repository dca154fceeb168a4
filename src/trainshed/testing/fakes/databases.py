"""Migrated SQLite databases, copied from one: all migrations take longer than most tests."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from trainshed.store.database import Database


def migrated_database(path: Path) -> Database:
    """Create and open an empty database in the file `path`."""
    path.write_bytes(_template())
    database = Database(path)
    database.migrate()
    return database


@cache
def _template() -> bytes:
    """Return the file of an empty database that has all migrations."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "state.db")
        database = Database(path)
        try:
            database.migrate()
        finally:
            database.close()
        return path.read_bytes()
