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
from trainshed.store.sqlite import BACKUP_INTERVAL_S


def opened(path: Path) -> Database:
    database = Database(path)
    try:
        database.migrate()
        database.back_up()
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
    copy = older.with_name("state.db.backup")
    assert "later" in tables(older)
    assert "later" not in tables(copy)
    connection = sqlite3.connect(copy)
    assert connection.execute("select id from projects").fetchall() == [("shed",)], "the copy of the day before"
    connection.close()
    assert copy.stat().st_mode & 0o777 == 0o600


def test_without_a_copy_there_is_no_migration(older: Path) -> None:
    older.with_name("state.db.backup.new").mkdir()
    with pytest.raises(CannotProceedError, match=r"a copy must be made at .*state\.db\.backup"):
        opened(older)
    assert "later" not in tables(older)


def test_a_daily_copy_that_fails_is_logged_and_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "state.db"
    path.with_name("state.db.backup.new").mkdir()
    opened(path).close()
    assert "database.not_copied" in caplog.text


def test_the_copy_is_made_anew_once_a_day(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    copy = path.with_name("state.db.backup")
    opened(path).close()
    first = copy.stat().st_ino, copy.stat().st_mtime_ns
    opened(path).close()
    assert (copy.stat().st_ino, copy.stat().st_mtime_ns) == first
    yesterday = time.time() - BACKUP_INTERVAL_S - 1
    os.utime(copy, (yesterday, yesterday))
    opened(path).close()
    assert copy.stat().st_mtime > yesterday + 1
