"""A real PostgreSQL of Debian's packages: started for tests, killed and started again."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import sqlalchemy as sa

from trainshed.testing.eventually import eventually

_INSTALLED = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name.split(".")[0]))
_ACCOUNT = "postgres"
_SORTS_LIKE_PEOPLE = ("--locale-provider=icu", "--icu-locale=en")  # as most servers do, and unlike bytes
_START_TIMEOUT_S = 180


class Postgresql:
    """A server that listens on a socket in its own folder and nowhere else."""

    def __init__(self, folder: Path) -> None:
        """Create the files of a server. Raises `RuntimeError` if PostgreSQL is not installed."""
        if not _INSTALLED:
            raise RuntimeError("PostgreSQL is not installed: apt-get install postgresql")
        self._bin = _INSTALLED[-1]
        self._data = folder / "data"
        self.folder = folder
        if os.geteuid() == 0:
            shutil.chown(folder, _ACCOUNT)
        options = ("-U", "trainshed", "--auth=trust", "--no-sync", "-E", "UTF8", *_SORTS_LIKE_PEOPLE)
        _run(self._bin / "initdb", "-D", self._data, *options)

    @property
    def url(self) -> str:
        return f"postgresql://trainshed@/postgres?host={self.folder}"

    @property
    def socket(self) -> Path:
        """The socket that it listens on."""
        return self.folder / ".s.PGSQL.5432"

    def start(self) -> None:
        """Start it and wait until it is ready. After a kill, that takes until the last of its processes has ended."""
        options = f"-c listen_addresses='' -c unix_socket_directories={self.folder} -c fsync=off"
        command = ("-D", self._data, "-l", self.folder / "log", "-o", options, "-w", "-t", str(_START_TIMEOUT_S))
        eventually(lambda: _run(self._bin / "pg_ctl", *command, "start"), lambda _: True, retry_on=RuntimeError)

    def kill(self) -> None:
        """Send SIGKILL to its first process, and wait for the end of all: the others notice and end by themselves."""
        first = psutil.Process(int((self._data / "postmaster.pid").read_text().split("\n", 1)[0]))
        processes = [first, *first.children(recursive=True)]
        first.kill()
        eventually(lambda: [each.pid for each in processes if _is_alive(each)], lambda alive: not alive)

    def stop(self) -> None:
        command = ("-D", self._data, "-m", "immediate", "-w", "-t", str(_START_TIMEOUT_S))
        _run(self._bin / "pg_ctl", *command, "stop")

    def create_database(self, name: str, *, template: str = "template1") -> str:
        """Create a database. Returns its URL."""
        url = sa.make_url(self.url).set(drivername="postgresql+psycopg")
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(f"create database {name} template {template}")
        engine.dispose()
        return self.url.replace("/postgres?", f"/{name}?")


@contextmanager
def running_postgresql() -> Iterator[Postgresql]:
    """A fresh server with files of its own, which are removed with it."""
    folder = Path(tempfile.mkdtemp(prefix="trainshed-postgresql-", dir="/tmp"))  # socket paths must be short
    try:
        server = Postgresql(folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


def _run(*command: str | Path) -> None:
    """Run one of PostgreSQL's programs. It refuses root, so root steps down to the account that Debian made for it.

    Raises `RuntimeError`, with its output, if it fails.
    """
    prefix = ["runuser", "-u", _ACCOUNT, "--"] if os.geteuid() == 0 else []
    argv = [*prefix, *map(str, command)]
    # output goes to a file: the server that pg_ctl leaves behind would hold a pipe open for ever
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            argv, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=200, check=False
        )
        if done.returncode != 0:
            output.seek(0)
            raise RuntimeError(f"{argv} ended with {done.returncode}:\n{output.read().decode(errors='replace')}")


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
