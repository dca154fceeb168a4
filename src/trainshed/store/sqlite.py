"""SQLite in a file: made whole, checked before it is opened, copied before anything could spoil it."""

from __future__ import annotations

import logging
import sqlite3
import time
from pathlib import Path

import sqlalchemy as sa

from trainshed.errors import CannotProceedError

LOG = logging.getLogger("trainshed.store")

BUSY_S = 4.0  #: how long a write waits for another writer before it is `UnavailableError`
BACKUP_AGE_S = 86_400
APPLICATION_ID = 0x74726169  #: in the header of each of our files


def sqlite_engine(path: Path) -> sa.Engine:
    """Open the file, or make it. `CannotProceedError`, with the file untouched, if it is damaged or not ours."""
    if path.exists():
        check_sqlite(path)
    else:
        _create(path)
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)),
        connect_args={"timeout": BUSY_S, "check_same_thread": False},
        pool_size=16,
        max_overflow=48,
    )

    @sa.event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # transactions begin where `Database` says so, and nowhere else
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        connection.execute("pragma foreign_keys = on")

    return engine


def check_sqlite(path: Path) -> None:
    """`CannotProceedError`, with the file untouched, unless it is a sound SQLite database that Trainshed made."""
    try:
        if path.stat().st_size == 0:
            raise sqlite3.DatabaseError("it is empty")
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            [(maker,)] = connection.execute("pragma application_id").fetchall()
            [(verdict,)] = connection.execute("pragma quick_check(1)").fetchall()
        finally:
            connection.close()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
    except (sqlite3.Error, OSError) as exc:
        backup = _copy_of(path)
        remedy = (
            f"restore the last good copy with: cp {backup} {path}" if backup.exists() else "restore it from a backup"
        )
        raise CannotProceedError(
            f"The database {path} is damaged ({exc}). It was not touched. Move it and its -wal and -shm files away and "
            f"{remedy}"
        ) from exc
    if maker != APPLICATION_ID:
        raise CannotProceedError(
            f"The file {path} is not a Trainshed database. It was not touched. Move it away, or choose another state "
            f"folder with TRAINSHED_HOME."
        )


def _create(path: Path) -> None:
    """A new database appears whole under its name, so that an empty file there always means damage."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    connection = sqlite3.connect(fresh)
    connection.execute(f"pragma application_id = {APPLICATION_ID}")
    connection.commit()
    connection.close()
    fresh.chmod(0o600)
    fresh.rename(path)


def back_up_daily(path: Path) -> None:
    """Make the copy beside the database anew if it is a day old. One that can't be made is logged, no more."""
    copy = _copy_of(path)
    if copy.exists() and time.time() - copy.stat().st_mtime < BACKUP_AGE_S:
        return
    try:
        _back_up(path)
    except (sqlite3.Error, OSError) as exc:
        LOG.warning("database.not_copied path=%s reason=%s", path, exc)


def back_up_first(path: Path) -> None:
    """Make the copy beside the database anew, whatever its age. `CannotProceedError` if it can't be made."""
    try:
        _back_up(path)
    except (sqlite3.Error, OSError) as exc:
        raise CannotProceedError(
            f"The database {path} is of an older version, and before it is changed a copy must be made at "
            f"{_copy_of(path)}, which failed: {exc}. Nothing was changed. Free some space there and start again."
        ) from exc


def _copy_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.backup")


def _back_up(path: Path) -> None:
    """The old copy stays until the new one is whole."""
    fresh = path.with_name(f"{path.name}.backup.new")
    fresh.unlink(missing_ok=True)
    source, target = sqlite3.connect(path), sqlite3.connect(fresh)
    try:
        source.backup(target)
    except sqlite3.Error:
        fresh.unlink(missing_ok=True)  # it may be what fills the disk
        raise
    finally:
        source.close()
        target.close()
    fresh.chmod(0o600)
    fresh.rename(_copy_of(path))
