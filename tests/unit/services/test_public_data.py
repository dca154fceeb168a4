"""Public data without a network: one try a minute, and an error that clients do not repeat."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from trainshed.errors import NotFoundError
from trainshed.runtimes.keras_data import MNIST_SHA256
from trainshed.sample_files import samples_folder
from trainshed.services.storage.mnist_archive import mnist_archive
from trainshed.services.storage.public_data import OFFLINE_RETENTION_S, PublicData
from trainshed.services.storage.public_mirrors import PublicMirrors


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


def test_the_archive_is_the_one_that_runtimes_accept() -> None:
    archive = mnist_archive(samples_folder() / "data" / "mnist")
    assert hashlib.sha256(archive).hexdigest() == MNIST_SHA256
