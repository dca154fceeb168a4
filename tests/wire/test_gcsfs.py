"""gcsfs, unmodified, with a token and this server as its endpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.oauth2.credentials import Credentials

from trainshed.testing.processes.servers import RunningServer

PROJECT = "wire-gcsfs"
BUCKET = "gcsfs-tests"


@pytest.fixture(scope="module")
def fs(server: RunningServer) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            patch.delenv(name, raising=False)
        import gcsfs

        made = gcsfs.GCSFileSystem(
            project=PROJECT,
            token=Credentials(token=server.token),  # type: ignore[no-untyped-call]
            endpoint_url=server.url,
            skip_instance_cache=True,
            use_listings_cache=False,
        )
        made.mkdir(BUCKET)
        yield made
        made.rm(BUCKET, recursive=True)
        assert BUCKET not in [name.rstrip("/") for name in made.ls("")]


def test_files_are_written_read_and_found(fs: Any) -> None:
    with fs.open(f"{BUCKET}/a/text.txt", "w") as file:
        file.write("hello\nworld\n")
    with fs.open(f"{BUCKET}/a/text.txt", "r") as file:
        assert file.readlines() == ["hello\n", "world\n"]
    assert fs.exists(f"{BUCKET}/a/text.txt")
    assert not fs.exists(f"{BUCKET}/a/other.txt")
    assert fs.isdir(f"{BUCKET}/a")
    assert fs.info(f"{BUCKET}/a/text.txt")["size"] == 12
    assert fs.ls(f"{BUCKET}/a") == [f"{BUCKET}/a/text.txt"]


def test_a_large_file_goes_up_in_blocks_and_is_read_anywhere(fs: Any) -> None:
    data = os.urandom(1_500_000)
    with fs.open(f"{BUCKET}/large", "wb", block_size=262_144) as file:
        for start in range(0, len(data), 100_000):
            file.write(data[start : start + 100_000])
    assert fs.cat_file(f"{BUCKET}/large", start=700_000, end=700_010) == data[700_000:700_010]
    with fs.open(f"{BUCKET}/large", "rb", block_size=65_536) as file:
        file.seek(-100, 2)
        assert file.read() == data[-100:]
    assert fs.cat(f"{BUCKET}/large") == data


def test_trees_go_up_and_down(fs: Any, tmp_path: Path) -> None:
    for name in ("x/1", "x/y/2", "z"):
        path = tmp_path / "up" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    fs.put(f"{tmp_path / 'up'}/", f"{BUCKET}/tree/", recursive=True)
    assert sorted(fs.find(f"{BUCKET}/tree")) == [f"{BUCKET}/tree/{name}" for name in ("x/1", "x/y/2", "z")]
    assert sorted(fs.glob(f"{BUCKET}/tree/**/2")) == [f"{BUCKET}/tree/x/y/2"]
    assert fs.du(f"{BUCKET}/tree") == len("x/1x/y/2z")
    fs.get(f"{BUCKET}/tree/", f"{tmp_path / 'down'}/", recursive=True)
    assert (tmp_path / "down" / "x" / "y" / "2").read_text() == "x/y/2"
    fs.rm(f"{BUCKET}/tree", recursive=True)
    assert fs.find(f"{BUCKET}/tree") == []


def test_copy_move_and_metadata(fs: Any) -> None:
    fs.pipe(f"{BUCKET}/from", b"bytes")
    fs.copy(f"{BUCKET}/from", f"{BUCKET}/copied")
    fs.mv(f"{BUCKET}/copied", f"{BUCKET}/moved")
    assert fs.cat(f"{BUCKET}/moved") == b"bytes"
    assert not fs.exists(f"{BUCKET}/copied")
    fs.setxattrs(f"{BUCKET}/moved", colour="blue")
    assert fs.getxattr(f"{BUCKET}/moved", "colour") == "blue"


def test_what_a_program_wrote_as_a_file_is_read(fs: Any, server: RunningServer) -> None:
    path = server.home / "buckets" / BUCKET / "run" / "metrics.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"loss": 0.1}')
    assert fs.cat(f"{BUCKET}/run/metrics.json") == b'{"loss": 0.1}'
    path.write_text('{"loss": 0.05}')
    assert fs.cat(f"{BUCKET}/run/metrics.json") == b'{"loss": 0.05}'
