"""SQLite in a file: created atomically, checked before it is opened, backed up before migrations."""

from __future__ import annotations

import logging
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from trainshed.errors import CannotProceedError

LOG = logging.getLogger("trainshed.store")

BUSY_TIMEOUT_S = 4.0  #: for another writer; then a write raises `UnavailableError`
BACKUP_INTERVAL_S = 86_400
APPLICATION_ID = 0x74726169  #: in the header of Trainshed's files


def sqlite_engine(path: Path) -> sa.Engine:
    """Open or create the file.

    Raises `CannotProceedError`, without touching it, if it is damaged or not Trainshed's.
    """
    if path.exists():
        check_sqlite(path)
    else:
        _create(path)
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)),
        connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False},
        pool_size=16,
        max_overflow=48,
    )

    @sa.event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # only `Database` starts transactions
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        connection.execute("pragma foreign_keys = on")

    return engine


def check_sqlite(path: Path) -> None:
    """Raises `CannotProceedError` unless the file is an intact Trainshed database. Never modifies the file."""
    try:
        if path.stat().st_size == 0:
            raise sqlite3.DatabaseError("it is empty")
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            [(application_id,)] = connection.execute("pragma application_id").fetchall()
            [(result,)] = connection.execute("pragma quick_check(1)").fetchall()
        finally:
            connection.close()
        if result != "ok":
            raise sqlite3.DatabaseError(result)
    except (sqlite3.Error, OSError) as exc:
        backup = _backup_path(path)
        remedy = (
            f"restore the last good copy with: cp {backup} {path}" if backup.exists() else "restore it from a backup"
        )
        raise CannotProceedError(
            f"The database {path} is damaged ({exc}). It was not touched. Move it and its -wal and -shm files away and "
            f"{remedy}"
        ) from exc
    if application_id != APPLICATION_ID:
        raise CannotProceedError(
            f"The file {path} is not a Trainshed database. It was not touched. Move it away, or choose another state "
            f"folder with TRAINSHED_HOME."
        )


def _create(path: Path) -> None:
    """Create a database atomically. An empty file under its name therefore always means damage."""
    new_path = path.with_name(f"{path.name}.new")
    new_path.unlink(missing_ok=True)
    connection = sqlite3.connect(new_path)
    connection.execute(f"pragma application_id = {APPLICATION_ID}")
    connection.commit()
    connection.close()
    new_path.chmod(0o600)
    new_path.rename(path)


def back_up_daily(path: Path) -> None:
    """Renew the backup if it is a day old. A failure is only logged."""
    backup = _backup_path(path)
    if backup.exists() and time.time() - backup.stat().st_mtime < BACKUP_INTERVAL_S:
        return
    try:
        _back_up(path)
    except (sqlite3.Error, OSError) as exc:
        LOG.warning("database.not_copied path=%s reason=%s", path, exc)


def back_up_first(path: Path) -> None:
    """Renew the backup, whatever its age. Raises `CannotProceedError` if that fails."""
    try:
        _back_up(path)
    except (sqlite3.Error, OSError) as exc:
        raise CannotProceedError(
            f"The database {path} is of an older version, and before it is changed a copy must be made at "
            f"{_backup_path(path)}, which failed: {exc}. Nothing was changed. Free some space there and start again."
        ) from exc


def _backup_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.backup")


def _back_up(path: Path) -> None:
    """Replace the backup atomically: the old one stays until the new one is complete."""
    new_path = path.with_name(f"{path.name}.backup.new")
    new_path.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(new_path)) as target:
            source.backup(target)
    except sqlite3.Error:
        new_path.unlink(missing_ok=True)  # it may be what fills the disk
        raise
    new_path.chmod(0o600)
    new_path.rename(_backup_path(path))
