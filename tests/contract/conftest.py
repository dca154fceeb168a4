"""Both databases, real: SQLite in a file, and a PostgreSQL of Debian's packages started for the test run."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from trainshed.store.database import Database

_INSTALLED = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name.split(".")[0]))
_ACCOUNT = "postgres"
_SORTS_LIKE_PEOPLE = ("--locale-provider=icu", "--icu-locale=en")  # as most servers do, and unlike bytes


def _run(*command: str | Path) -> None:
    """Run one of PostgreSQL's programs; it refuses root, so root steps down to the account that Debian made for it."""
    prefix = ["runuser", "-u", _ACCOUNT, "--"] if os.geteuid() == 0 else []
    argv = [*prefix, *map(str, command)]
    # output goes to a file: the server that pg_ctl leaves behind would hold a pipe open for ever
    with tempfile.TemporaryFile() as output:
        status = subprocess.run(argv, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=120)
        output.seek(0)
        assert status.returncode == 0, (
            f"{argv} ended with {status.returncode}:\n{output.read().decode(errors='replace')}"
        )


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a fresh PostgreSQL server that listens on a socket in its own folder and nowhere else."""
    if not _INSTALLED:
        pytest.fail("PostgreSQL is not installed, and its half of the contract must be run: apt-get install postgresql")
    bin_dir = _INSTALLED[-1]
    folder = Path(tempfile.mkdtemp(prefix="trainshed-postgresql-", dir="/tmp"))  # socket paths must be short
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, _ACCOUNT)
        data = folder / "data"
        _run(
            bin_dir / "initdb",
            "-D",
            data,
            "-U",
            "trainshed",
            "--auth=trust",
            "--no-sync",
            "-E",
            "UTF8",
            *_SORTS_LIKE_PEOPLE,
        )
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        _run(bin_dir / "pg_ctl", "-D", data, "-l", folder / "log", "-o", options, "-w", "-t", "60", "start")
        try:
            yield f"postgresql://trainshed@/postgres?host={folder}"
        finally:
            _run(bin_dir / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty, migrated database of each kind."""
    if request.param == "sqlite":
        opened = Database(tmp_path / "state.db")
    else:
        url = request.getfixturevalue("postgresql")
        name = f"test_{os.urandom(6).hex()}"
        server = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
        with server.connect() as connection:
            connection.exec_driver_sql(f"create database {name}")
        server.dispose()
        opened = Database(url.replace("/postgres?", f"/{name}?"))
    try:
        opened.migrate()
        yield opened
    finally:
        opened.close()
