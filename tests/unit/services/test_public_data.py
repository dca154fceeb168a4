"""Public data without a network: one try a minute, and an error that clients do not repeat."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from pathlib import Path
from typing import cast

import pytest

from trainshed.buckets.file_backend import FileBackend
from trainshed.domain.objects import ObjectDraft
from trainshed.domain.work_budget import WorkBudget, WorkLimits, unlimited
from trainshed.errors import NotFoundError, ResourceExhaustedError
from trainshed.runtimes.keras_data import MNIST_SHA256
from trainshed.sample_files import samples_folder
from trainshed.services.storage.mnist_archive import mnist_archive
from trainshed.services.storage.public_data import MAX_READS, OFFLINE_RETENTION_S, ProxiedResponse, PublicData
from trainshed.services.storage.public_mirrors import MNIST, PublicMirrors


def test_a_machine_without_a_network_is_asked_once_a_minute(tmp_path: Path) -> None:
    now, tries = [100.0], []

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        tries.append(now[0])
        raise OSError("no route to host")

    public = PublicData(connect, PublicMirrors(tmp_path, samples_folder), clock=lambda: now[0])

    def ask() -> str:
        with pytest.raises(NotFoundError) as caught:
            asyncio.run(public.ask("weather", "GET", b"/weather/a.csv", []))
        return str(caught.value)

    assert "no route to host" in ask()
    now[0] += OFFLINE_RETENTION_S - 1
    assert "trainshed buckets mb gs://weather" in ask()
    assert len(tries) == 1
    now[0] += 1
    ask()
    assert tries == [100.0, 100.0 + OFFLINE_RETENTION_S]


class Connection:
    """The writing end of a connection that nobody listens to."""

    def __init__(self) -> None:
        self.closed = False

    def write(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def test_reads_at_a_time_are_bounded_until_they_are_closed(tmp_path: Path) -> None:
    status, connections = [200], []

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader = asyncio.StreamReader()
        reader.feed_data(b"HTTP/1.0 %d Said\r\n\r\nrows" % status[0])
        connections.append(Connection())
        return reader, cast(asyncio.StreamWriter, connections[-1])

    public = PublicData(connect, PublicMirrors(tmp_path, samples_folder))

    async def ask() -> ProxiedResponse:
        return await public.ask("weather", "GET", b"/weather/a.csv", [])

    async def run() -> None:
        reads = [await ask() for _ in range(MAX_READS - 1)]
        status[0] = 404
        with pytest.raises(NotFoundError):
            await ask()
        assert connections[-1].closed
        status[0] = 200
        reads.append(await ask())
        reads[0].close()  # before anything of it was read
        assert connections[0].closed
        reads[0].close()
        await ask()
        with pytest.raises(ResourceExhaustedError):
            await ask()

    asyncio.run(run())


def test_a_mirror_that_is_copied_keeps_no_read_of_another_waiting(tmp_path: Path) -> None:
    mirrors, backend = PublicMirrors(tmp_path / "mirrors", samples_folder), FileBackend(tmp_path / "b", tmp_path / "u")
    backend.make_bucket("own-data")
    with backend.stage() as staged:
        staged.write(b"rows")
        backend.commit(staged, ObjectDraft(bucket="own-data", name="a.csv"))
    waited: list[bool] = []

    class Watched(WorkBudget):
        """Reads another mirror while an object is copied."""

        def check(self, size: int) -> None:
            read = threading.Thread(target=mirrors.holds, args=MNIST, daemon=True)
            read.start()
            read.join(2)
            waited.append(read.is_alive())

    def add(uri: str, budget: WorkBudget) -> None:
        with backend.open("own-data", "a.csv") as reader:
            mirrors.add(uri, reader, budget)

    add("gs://{}/{}".format(*MNIST), unlimited())
    add("gs://weather/a.csv", Watched(WorkLimits(max_bytes=1 << 20, max_seconds=60)))
    assert waited == [False]


def test_the_archive_is_the_one_that_runtimes_accept() -> None:
    archive = mnist_archive(samples_folder() / "data" / "mnist")
    assert hashlib.sha256(archive).hexdigest() == MNIST_SHA256
