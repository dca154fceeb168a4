"""Both databases, real: SQLite in a file, and a PostgreSQL that is started for the test run. And both
kinds of buckets: a folder, and an S3 that is moto's server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.buckets.backend import BackendRouter
from trainshed.buckets.cloud.backend import CloudBackend
from trainshed.buckets.cloud.config import read_cloud_buckets
from trainshed.buckets.file_backend import FileBackend
from trainshed.store.database import Database
from trainshed.testing.fakes.databases import migrated_database
from trainshed.testing.fakes.s3_server import BUCKET, S3Server, s3_server
from trainshed.testing.processes.postgresql import Postgresql
from trainshed.testing.processes.servers import RunningServer

_TEMPLATE = "migrated"


@pytest.fixture(scope="session")
def migrated_postgresql(postgresql: Postgresql) -> Postgresql:
    """A PostgreSQL server with a migrated database to copy: all migrations take longer than most tests."""
    database = Database(postgresql.create_database(_TEMPLATE))
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
        server: Postgresql = request.getfixturevalue("postgresql")
        opened = Database(server.create_database(f"test_{os.urandom(6).hex()}"))
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
        server: Postgresql = request.getfixturevalue("migrated_postgresql")
        opened = Database(server.create_database(f"test_{os.urandom(6).hex()}", template=_TEMPLATE))
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
