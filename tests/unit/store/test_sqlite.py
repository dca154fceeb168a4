"""SQLite files: whose they are, where they lie, and their copies."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

import pytest

from trainshed.errors import CannotProceedError
from trainshed.store import database as database_module
from trainshed.store.database import Database
from trainshed.store.projects import ProjectStore
from trainshed.store.sqlite import back_up, backups, is_backup_due


def opened(path: Path) -> Database:
    database = Database(path)
    try:
        database.migrate()
    except CannotProceedError:
        database.close()
        raise
    return database


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database that the program at hand must migrate."""
    path = tmp_path / "state.db"
    database = opened(path)
    ProjectStore(database).ensure("shed", now_us=1)
    database.close()
    scripts = [*database_module._migrations(), "create table later (id integer);\n"]
    monkeypatch.setattr(database_module, "_migrations", lambda: scripts)
    return path


def tables(path: Path) -> set[str]:
    connection = sqlite3.connect(path)
    try:
        return {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
    finally:
        connection.close()


@pytest.mark.parametrize("name", ["%41", "a#b", "a?mode=rw", "a b", "ü", "file:x"])
def test_the_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name / "state.db"
    path.parent.mkdir()
    opened(path).close()
    again = opened(path)
    assert ProjectStore(again).ensure("shed", now_us=1).id == "shed"
    again.close()


@pytest.mark.fault("F05")
def test_a_file_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    connection = sqlite3.connect(path)
    connection.execute("create table recipes (name text)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(CannotProceedError, match="is not a Trainshed database"):
        Database(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_older_database_is_copied_before_it_is_migrated(older: Path) -> None:
    opened(older).close()
    [copy] = backups(older)
    assert "later" in tables(older)
    assert "later" not in tables(copy)
    connection = sqlite3.connect(copy)
    assert connection.execute("select id from projects").fetchall() == [("shed",)]
    connection.close()
    assert copy.stat().st_mode & 0o777 == 0o600
    assert copy.parent.stat().st_mode & 0o777 == 0o700


def test_without_a_copy_there_is_no_migration(older: Path) -> None:
    older.with_name("backups").touch()
    with pytest.raises(CannotProceedError, match=r"a copy must be made in .*backups"):
        opened(older)
    assert "later" not in tables(older)


def test_a_copy_is_due_after_the_interval_if_something_was_written(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    database = opened(path)
    assert is_backup_due(path, interval_s=3600)
    copy = back_up(path)
    assert not is_backup_due(path, interval_s=3600)
    hours_ago = time.time() - 7200
    os.utime(copy, (hours_ago, hours_ago))
    assert is_backup_due(path, interval_s=3600)
    for name in ("state.db", "state.db-wal"):
        os.utime(tmp_path / name, (hours_ago - 1, hours_ago - 1))
    assert not is_backup_due(path, interval_s=3600), "nothing was written since"
    database.close()


def test_a_bounded_number_of_copies_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    opened(path).close()
    copies = [back_up(path, keep=3) for _ in range(5)]
    assert backups(path) == copies[-3:]
