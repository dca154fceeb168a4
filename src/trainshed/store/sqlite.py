"""SQLite in a file: created atomically, checked before it is opened, backed up before migrations."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa

from trainshed.errors import CannotProceedError
from trainshed.node.files import DRAFT_PREFIX, sync_folder

BUSY_TIMEOUT_S = 4.0  #: for another writer; then a write raises `UnavailableError`
_MAGIC = b"SQLite format 3\0"
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
        copies = backups(path)
        backup = copies[-1] if copies else "FILE"
        raise CannotProceedError(
            f"The database {path} is damaged ({exc}). It was not touched. Restore a backup with: "
            f"trainshed restore --replace {backup}"
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


def back_up(path: Path, *, keep: int | None = None) -> Path:
    """Copy the database to a new file in `backups` beside it, and remove the oldest copies beyond `keep`.

    A server may use the database. Raises `sqlite3.Error` or OSError; then there is no new copy.
    """
    folder = backups_folder(path)
    folder.mkdir(mode=0o700, exist_ok=True)
    copy = folder / f"{path.stem}-{datetime.now(UTC).strftime('%Y%m%dT%H%M%S.%fZ')}.db"
    copy_sqlite(path, copy)
    if keep is not None:
        for old in backups(path)[:-keep]:
            old.unlink(missing_ok=True)
    return copy


def back_up_first(path: Path) -> None:
    """Copy the database before its schema is changed. Raises `CannotProceedError` if that fails."""
    try:
        back_up(path)
    except (sqlite3.Error, OSError) as exc:
        raise CannotProceedError(
            f"The database {path} is of an older version, and before it is changed a copy must be made in "
            f"{backups_folder(path)}, which failed: {exc}. Nothing was changed. Free some space there and start again."
        ) from exc


def is_backup_due(path: Path, *, interval_s: float) -> bool:
    """Whether the last copy is older than `interval_s`, and the database was written to since."""
    copies = backups(path)
    if not copies:
        return True
    copied_s = copies[-1].stat().st_mtime
    files = (path, path.with_name(f"{path.name}-wal"))
    written_s = max(file.stat().st_mtime for file in files if file.exists())
    return time.time() - copied_s >= interval_s and written_s >= copied_s


def backups_folder(path: Path) -> Path:
    return path.with_name("backups")


def backups(path: Path) -> list[Path]:
    """The copies of a database, the oldest first."""
    return sorted(backups_folder(path).glob(f"{path.stem}-*.db"))


def copy_sqlite(source: Path, target: Path) -> None:
    """Copy a database to a new file, mode 0600: consistent, while others write to it, and durable."""
    draft = target.with_name(f"{DRAFT_PREFIX}{target.name}")
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as rows,
            closing(sqlite3.connect(draft)) as copy,
        ):
            rows.backup(copy)
            copy.execute("pragma journal_mode = delete")  # the whole database is in one file
        with open(draft, "rb") as file:
            os.fsync(file.fileno())
        draft.rename(target)
    except BaseException:
        draft.unlink(missing_ok=True)  # it may be what fills the disk
        raise
    sync_folder(target.parent)


def is_sqlite(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def read_schema(path: Path) -> int:
    """The version of the schema of a database that no server uses. Raises `sqlite3.Error` if it has none."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        [(version,)] = connection.execute("select coalesce(max(version), 0) from trainshed_schema").fetchall()
        return int(version)
