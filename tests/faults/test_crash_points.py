"""A process is killed at every named step of every state transition, and the next one goes on. Or the step fails.

What was acknowledged is there; what was not is absent or whole; each attempt starts once; nothing is left behind.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import cycle
from pathlib import Path

import pytest
import sqlalchemy as sa

from trainshed.backup.archive import write_backup
from trainshed.backup.restore import finish_restore, restore
from trainshed.config import Home
from trainshed.errors import TrainshedError
from trainshed.node import crashpoints
from trainshed.node.crashpoints import DELAY, EIO, ENOSPC, FAIL, KILL, VARIABLE, CrashpointError
from trainshed.state_lock import hold_lock
from trainshed.store.database import LATEST_SCHEMA, Database
from trainshed.store.projects import ProjectStore
from trainshed.testing import cache
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.reliability.crash.points import point_names
from trainshed.testing.reliability.crash.scenarios import (
    IN_THE_SERVER,
    IN_THE_SUPERVISOR,
    OF_SWEEPS,
    OF_VERSIONS,
    SCENARIOS,
    go_through,
)
from trainshed.testing.reliability.crash.world import World

OF_COMMANDS = {"backup.written", "restore.staged", "restore.planned", "restore.moved", "restore.finished"}
OF_MIGRATIONS = {"database.migrate.before_commit"}
#: One failure at each point; those of versions and sweeps, which take longest, at some. All others are in `make soak`.
FAILURES = [
    (point, action)
    for point, action in zip(SCENARIOS, cycle((FAIL, EIO, ENOSPC)), strict=False)
    if point not in OF_VERSIONS | OF_SWEEPS
] + [("version.create.after_commit", FAIL), ("version.ready.recorded", EIO), ("version.delete.row_removed", FAIL)]
OTHER_FAILURES = [
    (point, action) for point in SCENARIOS for action in (DELAY, ENOSPC, EIO, FAIL) if (point, action) not in FAILURES
]


def test_every_point_is_passed_by_a_test() -> None:
    known = {*IN_THE_SERVER, *IN_THE_SUPERVISOR, *OF_VERSIONS, *OF_COMMANDS, *OF_MIGRATIONS}
    assert sorted(known ^ set(point_names())) == []


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("crashes")
    made = World(RunningServer(cache.link_runtimes(folder / "home")), folder)
    yield made
    made.server.end_jobs()


@pytest.mark.fault("F01", "F41")
@pytest.mark.parametrize("point", IN_THE_SERVER)
def test_a_server_that_is_killed_at(world: World, point: str) -> None:
    go_through(world, point)


@pytest.mark.parametrize("point", IN_THE_SUPERVISOR)
def test_a_supervisor_that_is_killed_at(world: World, point: str) -> None:
    go_through(world, point)


@pytest.mark.parametrize("point", sorted(OF_VERSIONS))
def test_a_server_that_is_killed_while_it_deploys_at(world: World, point: str) -> None:
    go_through(world, point)


@pytest.fixture(scope="module")
def running_world(world: World) -> Iterator[World]:
    """One server for all that fails without a restart."""
    world.server.start()
    yield world
    world.server.kill()


@pytest.mark.parametrize(("point", "action"), FAILURES)
def test_a_step_that_fails(running_world: World, point: str, action: str) -> None:
    go_through(running_world, point, action)


@pytest.mark.soak
@pytest.mark.parametrize(("point", "action"), OTHER_FAILURES)
def test_a_step_that_fails_in_any_other_way(running_world: World, point: str, action: str) -> None:
    go_through(running_world, point, action)


def run_killed(point: str, code: str, *words: object) -> None:
    """Run code in a process of its own that is killed at a point."""
    env = os.environ | {VARIABLE: f"{point}:{KILL}:1"}
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], env=env, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


@contextmanager
def failing_at(point: str, action: str) -> Iterator[None]:
    """Run a block that passes a point, which fails in it."""
    os.environ[VARIABLE] = f"{point}:{action}:1"
    crashpoints.arm()
    try:
        with pytest.raises((OSError, CrashpointError, TrainshedError)):
            yield
    finally:
        del os.environ[VARIABLE]
        crashpoints.arm()


ERRORS = (ENOSPC, EIO, FAIL)

MIGRATE = """
import sys
from pathlib import Path
from trainshed.store import database
scripts = database._migrations()[: int(sys.argv[2])]
database._migrations = lambda: scripts
opened = database.Database(Path(sys.argv[1]))
opened.migrate()
opened.close()
"""


def test_a_migration_that_is_killed_leaves_the_old_database(tmp_path: Path) -> None:
    path, latest = tmp_path / "state.db", LATEST_SCHEMA
    subprocess.run([sys.executable, "-c", MIGRATE, str(path), "1"], check=True)
    run_killed("database.migrate.before_commit", MIGRATE, path, latest)
    check_migration(path, latest)


@pytest.mark.parametrize("action", ERRORS)
def test_a_migration_that_fails_leaves_the_old_database(tmp_path: Path, action: str) -> None:
    path, latest = tmp_path / "state.db", LATEST_SCHEMA
    subprocess.run([sys.executable, "-c", MIGRATE, str(path), "1"], check=True)
    with closing(Database(path)) as database, failing_at("database.migrate.before_commit", action):
        database.migrate()
    check_migration(path, latest)


def check_migration(path: Path, latest: int) -> None:
    """The database is of the first version, and can be migrated."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select max(version) from trainshed_schema").fetchall() == [(1,)]
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
    with closing(Database(path)) as database:
        database.migrate()
        assert database.version() == latest


BACK_UP = """
import sys
from pathlib import Path
from trainshed.backup.archive import write_backup
from trainshed.config import Home
write_backup(Home(Path(sys.argv[1])), Path(sys.argv[2]))
"""
RESTORE = """
import sys
from pathlib import Path
from trainshed.backup.restore import restore
from trainshed.config import Home
restore(Home(Path(sys.argv[1])), Path(sys.argv[2]), replace=True)
"""


def state_folder(path: Path, project: str) -> Home:
    home = Home(path)
    home.create()
    with closing(Database(home.database)) as database:
        database.migrate()
        ProjectStore(database).ensure(project, now_us=1)
    home.token.write_text(project)
    return home


def projects(home: Home) -> tuple[list[str], str]:
    with closing(Database(home.database)) as database, database.read() as tx:
        return [row["id"] for row in tx.rows(sa.text("select id from projects"))], home.token.read_text()


def test_a_backup_that_is_killed_leaves_nothing_that_looks_like_one(tmp_path: Path) -> None:
    home, target = state_folder(tmp_path / "home", "first"), tmp_path / "archives" / "backup.tar"
    target.parent.mkdir()
    run_killed("backup.written", BACK_UP, home.path, target)
    check_backup(home, target, tmp_path)


@pytest.mark.parametrize("action", ERRORS)
def test_a_backup_that_fails_leaves_nothing_that_looks_like_one(tmp_path: Path, action: str) -> None:
    home, target = state_folder(tmp_path / "home", "first"), tmp_path / "archives" / "backup.tar"
    target.parent.mkdir()
    with failing_at("backup.written", action):
        write_backup(home, target)
    assert list(target.parent.iterdir()) == []
    check_backup(home, target, tmp_path)


def check_backup(home: Home, target: Path, tmp_path: Path) -> None:
    """There is no backup, and one can be made."""
    assert not target.exists()
    write_backup(home, target)
    restore(Home(tmp_path / "other"), target)
    assert projects(Home(tmp_path / "other")) == (["first"], "first")
    assert [path.name for path in home.backups.iterdir() if path.name.startswith("draft-")] == []


@pytest.mark.parametrize("action", (KILL, *ERRORS))
@pytest.mark.parametrize("point", sorted(OF_COMMANDS - {"backup.written"}))
def test_a_restore_that_is_interrupted_leaves_the_old_state_or_the_new_one(
    tmp_path: Path, point: str, action: str
) -> None:
    archive = tmp_path / "backup.tar"
    write_backup(state_folder(tmp_path / "home", "first"), archive)
    home = state_folder(tmp_path / "other", "second")
    if action == KILL:
        run_killed(point, RESTORE, home.path, archive)
    else:
        with failing_at(point, action):
            restore(home, archive, replace=True)
    with hold_lock(home):
        finish_restore(home)
    expected = "second" if point == "restore.staged" else "first"
    assert projects(home) == ([expected], expected)
    assert not (home.path / "restore").exists()
