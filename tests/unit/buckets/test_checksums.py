"""Checksums: over zeros without reading them, and of large files in the background."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.buckets import file_backend
from trainshed.buckets.checksums import PIECE, checksums_of, crc_add_zeros
from trainshed.buckets.file_backend import FileBackend
from trainshed.domain.objects import ListQuery
from trainshed.domain.times import now_us
from trainshed.domain.work_budget import WorkBudget, WorkLimits
from trainshed.errors import DeadlineExceededError, RequestCancelledError
from trainshed.testing.eventually import eventually

TB = 1 << 40


@pytest.fixture
def backend(tmp_path: Path) -> FileBackend:
    backend = FileBackend(tmp_path / "buckets", tmp_path / "uploads")
    backend.make_bucket("bucket")
    return backend


def written_by_a_program(tmp_path: Path, name: str, data: bytes, *, size: int = 0) -> Path:
    path = tmp_path / "buckets" / "bucket" / name
    path.write_bytes(data)
    os.truncate(path, size or len(data))
    os.utime(path, ns=(now_us() * 1000 - 5_000_000_000,) * 2)
    return path


@given(start=st.binary(max_size=50), zeros=st.integers(0, 5000), end=st.binary(max_size=50))
def test_zeros_are_added_without_being_read(start: bytes, zeros: int, end: bytes) -> None:
    crc = crc_add_zeros(google_crc32c.value(start), zeros)
    assert google_crc32c.extend(crc, end) == google_crc32c.value(start + bytes(zeros) + end)


def test_holes_of_a_file_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.write(b"first")
        file.seek(TB)
        file.write(b"last")
    read: list[int] = []
    with path.open("rb") as file:
        sums = checksums_of(file.fileno(), with_md5=False, on_read=read.append)
    start = crc_add_zeros(google_crc32c.value(b"first"), TB - 5)
    assert sums.crc32c == base64.b64encode(google_crc32c.extend(start, b"last").to_bytes(4, "big")).decode()
    assert (sums.md5, sums.size) == ("", TB + 4)
    assert sum(read) <= 4 * PIECE


def test_a_huge_file_of_a_program_gets_its_crc_later_and_no_md5(backend: FileBackend, tmp_path: Path) -> None:
    written_by_a_program(tmp_path, "huge", b"begin", size=TB)
    assert backend.info("bucket", "huge").size == TB
    known = eventually(lambda: backend.info("bucket", "huge"), lambda info: bool(info.crc32c))
    assert known.md5 == ""
    assert backend.list("bucket", ListQuery(checksums=False)).items == (known,)  # noted on the file


def test_a_large_file_of_a_program_gets_both_checksums_later(
    backend: FileBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_backend, "MAX_INLINE_CHECKSUM_BYTES", 10)
    written_by_a_program(tmp_path, "large", b"more than ten bytes")
    written_by_a_program(tmp_path, "small", b"few")
    small, large = backend.with_checksums([backend.info("bucket", "small"), backend.info("bucket", "large")])
    assert small.md5 == base64.b64encode(hashlib.md5(b"few").digest()).decode()
    large = eventually(lambda: backend.info("bucket", "large"), lambda info: bool(info.crc32c))
    assert large.md5 == base64.b64encode(hashlib.md5(b"more than ten bytes").digest()).decode()


def test_nobody_reads_on_for_a_client_that_is_gone(backend: FileBackend, tmp_path: Path) -> None:
    written_by_a_program(tmp_path, "file", b"x" * 1000)
    info = backend.info("bucket", "file", checksums=False)
    gone = WorkBudget(WorkLimits(max_bytes=PIECE, max_seconds=600))
    gone.cancel()
    with pytest.raises(RequestCancelledError):
        backend.with_checksums([info], gone)


def test_work_that_is_of_no_use_in_part_ends_with_its_time() -> None:
    now = 0.0
    budget = WorkBudget(WorkLimits(max_bytes=10, max_seconds=5), clock=lambda: now)
    now = 4.0
    budget.check(20)
    assert budget.exhausted
    assert not budget.overdue
    budget.begin()
    now = 8.0
    budget.check(0)
    now = 9.0
    with pytest.raises(DeadlineExceededError):
        budget.check(0)
