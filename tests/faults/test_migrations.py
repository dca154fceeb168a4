"""Servers that are killed while they migrate a database."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trainshed.store.database import LATEST_SCHEMA

#: Forks a process for each statement of the migration, which is killed when it comes to it, and looks at what is left.
PROGRAM = """
import os, shutil, signal, sqlite3, sys
from pathlib import Path
import sqlalchemy as sa
from trainshed.store import database as module
from trainshed.store.database import Database

first, folder = Path(sys.argv[1]), Path(sys.argv[2])
migrations = module._migrations


def schema(path):
    with sqlite3.connect(path) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
        rows = connection.execute("select name, sql from sqlite_master order by name").fetchall()
        version = connection.execute("select max(version) from trainshed_schema").fetchone()[0]
    connection.close()
    return version, rows


def open_at(path, schemas):
    module._migrations = lambda: migrations()[:schemas]
    database = Database(path)
    database.migrate()
    database.close()


open_at(first, 1)
open_at(folder / "whole.db", len(migrations()))
before, after = schema(first), schema(folder / "whole.db")
kills, at = 0, 0
while True:
    at += 1
    path = folder / f"{at}.db"
    shutil.copy(first, path)
    pid = os.fork()
    if pid == 0:
        statements = 0

        @sa.event.listens_for(sa.Engine, "before_cursor_execute")
        def count(*_):
            global statements
            statements += 1
            if statements == at:
                os.kill(os.getpid(), signal.SIGKILL)

        open_at(path, len(migrations()))
        os._exit(0)
    killed = os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    assert schema(path) in ((before, after) if killed else (after,)), at
    open_at(path, len(migrations()))
    assert schema(path) == after, at
    if not killed:
        break
    kills += 1
print(kills, after[0])
"""


@pytest.mark.fault("F17")
def test_a_migration_that_is_killed_at_any_statement_is_done_by_the_next_server(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "first.db"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    kills, version = map(int, done.stdout.split())
    assert version == LATEST_SCHEMA
    assert kills > LATEST_SCHEMA  # each migration has its own statement, and one that records it
