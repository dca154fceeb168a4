"""Both databases, real: SQLite in a file, and a PostgreSQL of Debian's packages started for the test run. And both
kinds of buckets: a folder, and an S3 that is moto's server.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from trainshed.buckets.backend import BackendRouter
from trainshed.buckets.cloud.backend import CloudBackend
from trainshed.buckets.cloud.config import read_cloud_buckets
from trainshed.buckets.file_backend import FileBackend
from trainshed.store.database import Database
from trainshed.testing.fakes.databases import migrated_database
from trainshed.testing.fakes.s3_server import BUCKET, S3Server, s3_server
from trainshed.testing.processes.servers import RunningServer

_INSTALLED = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name.split(".")[0]))
_ACCOUNT = "postgres"
_SORTS_LIKE_PEOPLE = ("--locale-provider=icu", "--icu-locale=en")  # as most servers do, and unlike bytes


def _run(*command: str | Path) -> None:
    """Run one of PostgreSQL's programs; it refuses root, so root steps down to the account that Debian made for it."""
    prefix = ["runuser", "-u", _ACCOUNT, "--"] if os.geteuid() == 0 else []
    argv = [*prefix, *map(str, command)]
    # output goes to a file: the server that pg_ctl leaves behind would hold a pipe open for ever
    with tempfile.TemporaryFile() as output:
        status = subprocess.run(argv, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=200)
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
        _run(bin_dir / "pg_ctl", "-D", data, "-l", folder / "log", "-o", options, "-w", "-t", "180", "start")
        try:
            yield f"postgresql://trainshed@/postgres?host={folder}"
        finally:
            _run(bin_dir / "pg_ctl", "-D", data, "-m", "immediate", "-w", "-t", "180", "stop")
    finally:
        shutil.rmtree(folder)


_TEMPLATE = "migrated"


def _create(url: str, name: str, *, template: str = "template1") -> str:
    """Make a database of the PostgreSQL server. Returns its URL."""
    server = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.exec_driver_sql(f"create database {name} template {template}")
    server.dispose()
    return url.replace("/postgres?", f"/{name}?")


@pytest.fixture(scope="session")
def migrated_postgresql(postgresql: str) -> str:
    """The URL of a PostgreSQL server with a migrated database to copy: all migrations take longer than most tests."""
    database = Database(_create(postgresql, _TEMPLATE))
    try:
        database.migrate()
    finally:
        database.close()
    return postgresql


@pytest.fixture(params=["sqlite", "postgresql"])
def bare_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database of each kind without any migration."""
    if request.param == "sqlite":
        opened = Database(tmp_path / "state.db")
    else:
        opened = Database(_create(request.getfixturevalue("postgresql"), f"test_{os.urandom(6).hex()}"))
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty, migrated database of each kind."""
    if request.param == "sqlite":
        opened = migrated_database(tmp_path / "state.db")
    else:
        url = request.getfixturevalue("migrated_postgresql")
        opened = Database(_create(url, f"test_{os.urandom(6).hex()}", template=_TEMPLATE))
        opened.migrate()
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3, to which this process's environment leads."""
    with s3_server() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.env.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture
def cloud_folder(s3: S3Server) -> str:
    """One of the test's own in the bucket of that S3."""
    return f"test-{os.urandom(6).hex()}"


@pytest.fixture(scope="session")
def cloud_storage(server: RunningServer) -> Iterator[str]:
    """A bucket of another Trainshed server, to which gcsfs is led in place of Google's."""
    import fsspec.config
    from google.oauth2.credentials import Credentials

    token = Credentials(token=server.token)  # type: ignore[no-untyped-call]
    server.call("POST", "/storage/v1/b?project=contract", {"name": "contract-cloud"})
    with pytest.MonkeyPatch.context() as patch:
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            patch.delenv(name, raising=False)
        patch.setitem(fsspec.config.conf, "gs", {"endpoint_url": server.url, "token": token})
        yield "contract-cloud"


@pytest.fixture(params=["folder", "s3", "gs"])
def trees(request: pytest.FixtureRequest, tmp_path: Path) -> BackendRouter:
    """Buckets of which `bucket` and `shown` are of each kind. They need no making where they are in a cloud."""
    here = FileBackend(tmp_path / "buckets", tmp_path / "uploads")
    if request.param == "folder":
        here.make_bucket("bucket")
        return BackendRouter(here, {})
    if request.param == "s3":
        place = f"s3://{BUCKET}/{request.getfixturevalue('cloud_folder')}"
    else:
        place = f"gs://{request.getfixturevalue('cloud_storage')}/test-{os.urandom(6).hex()}"
    tables = {name: {"url": f"{place}/{name}"} for name in ("bucket", "shown")}
    declared = read_cloud_buckets(tables, default_project="p-one")
    return BackendRouter(here, {each.name: CloudBackend(each.cloud()) for each in declared})
