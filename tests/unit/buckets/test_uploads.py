"""Resumable uploads on their own: who may write to one, what of it is on the disk, and when it is given up."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from trainshed.buckets.backend import BackendRouter
from trainshed.buckets.checksums import PIECE
from trainshed.buckets.file_backend import FileBackend
from trainshed.buckets.uploads import SESSION_RETENTION_US, SWEEP_INTERVAL_US, UploadSession, UploadSessions
from trainshed.domain.objects import ObjectDraft
from trainshed.domain.work_budget import WorkBudget, WorkLimits, unlimited
from trainshed.errors import NotFoundError, RequestCancelledError
from trainshed.services.storage.objects import Objects


@pytest.fixture
def tree(tmp_path: Path) -> FileBackend:
    made = FileBackend(tmp_path / "buckets", tmp_path / "uploads")
    made.make_bucket("bucket")
    return made


@pytest.fixture
def sessions(tree: FileBackend, tmp_path: Path) -> UploadSessions:
    return UploadSessions(tmp_path / "uploads")


def begin(sessions: UploadSessions, name: str = "a") -> str:
    return sessions.begin(ObjectDraft(bucket="bucket", name=name))


@pytest.mark.parametrize("end", ["finished", "cancelled"])
def test_a_session_that_ends_just_before_it_is_locked_is_gone(
    tree: FileBackend, sessions: UploadSessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    upload = begin(sessions)
    first = sessions.open("bucket", upload)
    first.write(b"acknowledged")
    lock = fcntl.flock

    def end_then_lock(fd: int, operation: int) -> None:
        if first.fd >= 0:
            if end == "finished":
                tree.commit(first, first.draft)
            sessions.end(first)
        lock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", end_then_lock)
    with pytest.raises(NotFoundError, match="finished, cancelled or given up"):
        sessions.open("bucket", upload)
    assert list((tmp_path / "uploads").iterdir()) == []
    if end == "finished":
        assert (tmp_path / "buckets" / "bucket" / "a").read_bytes() == b"acknowledged"


def test_a_new_session_is_on_the_disk_before_it_is_told(
    sessions: UploadSessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, set[str]]] = []
    fsync = os.fsync

    def noting(fd: int) -> None:
        fsync(fd)
        synced.append((os.fstat(fd).st_ino, {path.suffix for path in uploads.iterdir()}))

    uploads = tmp_path / "uploads"
    monkeypatch.setattr(os, "fsync", noting)
    upload = begin(sessions)
    files = {(uploads / f"session-{upload}.{kind}").stat().st_ino for kind in ("data", "json")}
    assert files <= {inode for inode, _ in synced}
    assert synced[-1] == (uploads.stat().st_ino, {".data", ".json"})


def test_abandoned_sessions_go_when_new_ones_begin_but_not_at_each(tree: FileBackend, tmp_path: Path) -> None:
    now = 10**15
    sessions = UploadSessions(tmp_path / "uploads", clock=lambda: now)
    old = [begin(sessions) for _ in range(3)]
    for upload in old:
        data = tmp_path / "uploads" / f"session-{upload}.data"
        os.utime(data, ns=((now - SESSION_RETENTION_US) * 1000 - 10**9,) * 2)
    now += SWEEP_INTERVAL_US - 1
    begin(sessions)
    held = sessions.open("bucket", old[0])
    now += 1
    begin(sessions)
    left = {path.name.partition(".")[0] for path in (tmp_path / "uploads").iterdir()}
    assert f"session-{old[0]}" in left, "one that a request holds must stay"
    assert not {f"session-{upload}" for upload in old[1:]} & left
    assert len(left) == 3
    sessions.keep(held)
    now += SWEEP_INTERVAL_US - 1
    begin(sessions)
    assert sessions.open("bucket", old[0])


def test_a_session_that_is_being_begun_is_no_orphan(tree: FileBackend, tmp_path: Path) -> None:
    now = 10**15
    sessions = UploadSessions(tmp_path / "uploads", clock=lambda: now)
    half = tmp_path / "uploads" / f"session-{'0' * 32}.data"
    half.touch()
    os.utime(half, ns=(now * 1000,) * 2)
    sessions.sweep()
    assert half.exists()
    now += SWEEP_INTERVAL_US
    sessions.sweep()
    assert not half.exists()


@pytest.mark.parametrize("record", [b"", b"{", b"[]", b"{}", b'{"conditions": 5}', b'[["conditions", {}]]'])
def test_a_record_that_can_not_be_read_is_no_session(sessions: UploadSessions, tmp_path: Path, record: bytes) -> None:
    upload = begin(sessions)
    (tmp_path / "uploads" / f"session-{upload}.json").write_bytes(record)
    with pytest.raises(NotFoundError):
        sessions.open("bucket", upload)


def test_what_is_no_session_is_left_alone_by_a_sweep(sessions: UploadSessions, tmp_path: Path) -> None:
    uploads = tmp_path / "uploads"
    for name in ("session-zz.data", "session-", f"session-{'1' * 32}.data"):
        (uploads / name).touch()
        os.utime(uploads / name, (0, 0))
    odd = uploads / f"session-{'2' * 32}.data"
    odd.mkdir()
    os.utime(odd, (0, 0))
    sessions.sweep()
    assert {path.name for path in uploads.iterdir()} == {"session-zz.data", "session-", odd.name}


def test_the_checksums_at_the_end_of_a_resumed_upload_can_be_cancelled(
    tree: FileBackend, sessions: UploadSessions, tmp_path: Path
) -> None:
    objects = Objects(BackendRouter(tree, {}), sessions, owner=lambda bucket: "project")
    upload = begin(sessions)
    first = sessions.open("bucket", upload)
    first.write(b"x" * (3 * PIECE))
    objects.keep(first)
    objects = Objects(BackendRouter(tree, {}), UploadSessions(tmp_path / "uploads"), owner=lambda bucket: "project")
    resumed = objects.resume("bucket", upload, "a")
    assert isinstance(resumed, UploadSession)
    budget = WorkBudget(WorkLimits(max_bytes=1 << 40, max_seconds=600))
    budget.cancel()
    with pytest.raises(RequestCancelledError):
        objects.finish(resumed, budget)
    again = objects.resume("bucket", upload, "a")  # nothing of it is lost, and it is not locked
    assert isinstance(again, UploadSession)
    assert objects.finish(again, unlimited()).size == 3 * PIECE


def test_a_finish_that_never_begins_leaves_the_upload_as_it_was(tree: FileBackend, sessions: UploadSessions) -> None:
    objects = Objects(BackendRouter(tree, {}), sessions, owner=lambda bucket: "project")
    upload = begin(sessions)
    first = sessions.open("bucket", upload)
    first.write(b"received")
    objects.suspend(first)
    again = objects.resume("bucket", upload, "a")
    assert isinstance(again, UploadSession)
    assert objects.finish(again).size == 8
