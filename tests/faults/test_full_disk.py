"""A disk that fills up under a running server, and has space again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.resources import small_disk
from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.workloads.submitter import COUNT_UNTIL, Submitter

PROJECT = "full"
MEBIBYTE = 1 << 20


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Leave no byte of a disk free inside the block."""
    filler = disk / "filler"
    with open(filler, "wb", buffering=0) as file:
        for size in (MEBIBYTE, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    try:
        yield
    finally:
        filler.unlink()


@pytest.mark.fault("F10")
def test_writes_are_refused_while_a_disk_is_full_and_the_rest_goes_on(tmp_path: Path) -> None:
    disk, enough = tmp_path / "disk", tmp_path / "enough"
    disk.mkdir()
    with small_disk(disk, "48m"):
        server = RunningServer(disk / "home").start()
        try:
            jobs = Submitter(server, PROJECT, tmp_path / "trainers")
            jobs.submit("steady", COUNT_UNTIL, args=[str(enough)])
            eventually(lambda: jobs.lines("steady"), lambda lines: "line 3" in lines)
            upload = f"/upload/storage/v1/b/{jobs.bucket}/o?uploadType=media&name="
            server.call("POST", f"{upload}kept", b"kept")
            caller = Caller(server.url)
            with filled(disk):
                writes = {
                    "object": ("POST", f"{upload}new", os.urandom(MEBIBYTE)),
                    "model": ("POST", f"/v1/projects/{PROJECT}/models", {"name": "m", "description": "x" * 60_000}),
                }
                for what, (method, path, body) in writes.items():
                    status, answer = caller(method, path, token=server.token, body=body)
                    assert (status, answer["error"]["status"]) == (507, "RESOURCE_EXHAUSTED"), what
                    assert "Free some space and try again." in answer["error"]["message"]
                kept = f"/storage/v1/b/{jobs.bucket}/o/kept?alt=media"
                assert caller("GET", kept, token=server.token) == (200, b"kept")
                assert jobs.get("steady")["state"] == "RUNNING"
                listed = server.call("GET", f"/storage/v1/b/{jobs.bucket}/o")["items"]
                assert "new" not in [each["name"] for each in listed]
            for method, path, body in writes.values():
                server.call(method, path, body)
            enough.touch()
            assert jobs.wait("steady")["state"] == "SUCCEEDED"
            assert not [path for path in (disk / "home").rglob("*") if ".partial" in path.name]
        finally:
            server.close()
