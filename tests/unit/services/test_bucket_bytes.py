"""Bytes in buckets against the limit of a project: every way to write an object, on real files."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from trainshed.buckets.file_backend import FileBackend
from trainshed.buckets.noncurrent import bytes_of_versions
from trainshed.buckets.uploads import UploadSession, UploadSessions
from trainshed.domain.access.quotas import AppliedLimit, QuotaName
from trainshed.domain.iam import Principal, Role
from trainshed.domain.objects import ObjectDraft
from trainshed.domain.storage.rules import BucketRules
from trainshed.domain.work_budget import unlimited
from trainshed.errors import ConditionNotMetError, NotFoundError, StorageQuotaExceededError
from trainshed.services.storage.bucket_bytes import BucketBytes
from trainshed.services.storage.objects import Objects, ObjectSource

PROJECT = "p-one"
OWNER = Principal(user="ada", project="*", role=Role.OWNER)


class Shed:
    def __init__(self, folder: Path, limit: int | None) -> None:
        self.root = folder / "buckets"
        self.limit = limit
        self.now = 0.0
        self.scans = 0
        self.rules = BucketRules()
        backend = FileBackend(self.root, folder / "uploads", rules=lambda bucket: self.rules)
        for bucket in ("mine", "other"):
            backend.make_bucket(bucket)
        self.stored = BucketBytes(self.scan, self.limits, owner=self.owner, clock=lambda: self.now)
        self.objects = Objects(backend, UploadSessions(folder / "uploads"), owner=self.owner, stored=self.stored)

    def limits(self, project: str) -> Sequence[AppliedLimit]:
        if self.limit is None or project != PROJECT:
            return ()
        return [AppliedLimit(name=QuotaName.BUCKET_BYTES, value=self.limit, project=project)]

    def owner(self, bucket: str) -> str:
        if bucket == "absent":
            raise NotFoundError("There is no bucket.")
        return PROJECT if bucket == "mine" else "p-two"

    def scan(self, project: str) -> int:
        self.scans += 1
        return bytes_of_versions(self.root, "mine" if project == PROJECT else "other")

    def put(self, name: str, size: int, bucket: str = "mine") -> None:
        self.objects.store(None, b"x" * size, ObjectDraft(bucket=bucket, name=name))


@pytest.fixture
def shed(tmp_path: Path) -> Shed:
    return Shed(tmp_path, 100)


def test_a_write_beyond_the_limit_is_refused_and_leaves_nothing(shed: Shed) -> None:
    shed.put("a", 60)
    shed.put("b", 40)
    with pytest.raises(StorageQuotaExceededError) as caught:
        shed.put("c", 1)
    assert str(caught.value) == (
        "Project p-one has reached a limit: 100 bytes of 100 bytes of objects in buckets are in use (bucket-bytes), "
        "and this needs 1 bytes more. An owner of all projects can raise it: `trainshed quotas set bucket-bytes NUMBER "
        "--project p-one`."
    )
    assert sorted(each.name for each in (shed.root / "mine").iterdir()) == ["a", "b"]
    assert list((shed.root.parent / "uploads").iterdir()) == []
    shed.put("c", 1000, bucket="other")
    assert shed.scans == 1, "the counts are of the same moment"


def test_what_was_deleted_or_written_as_a_file_counts_before_a_refusal(shed: Shed) -> None:
    shed.put("a", 90)
    shed.now += 10
    shed.objects.delete(ObjectSource(bucket="mine", name="a"))
    shed.put("b", 90)
    (shed.root / "mine" / "file").write_bytes(b"x" * 50)
    assert shed.stored.known(PROJECT) == 90
    assert shed.stored.rescan(PROJECT) == 140
    with pytest.raises(StorageQuotaExceededError, match="140 bytes of 100 bytes"):
        shed.put("c", 0)


def test_copies_compositions_and_uploads_count(shed: Shed) -> None:
    shed.put("a", 40)
    source = ObjectSource(bucket="mine", name="a")
    shed.objects.copy(source, ObjectDraft(bucket="mine", name="b"), OWNER, unlimited(), keep_traits=True)
    with pytest.raises(StorageQuotaExceededError, match="80 bytes of 100 bytes"):
        shed.objects.copy(source, ObjectDraft(bucket="mine", name="c"), OWNER, unlimited(), keep_traits=True)
    with pytest.raises(StorageQuotaExceededError):
        shed.objects.compose([source], ObjectDraft(bucket="mine", name="c"), unlimited())
    shed.objects.copy(source, ObjectDraft(bucket="other", name="c"), OWNER, unlimited(), keep_traits=True)
    upload = shed.objects.begin(ObjectDraft(bucket="mine", name="d"))
    session = shed.objects.resume("mine", upload, "d")
    assert isinstance(session, UploadSession)
    session.write(b"x" * 15)
    with pytest.raises(StorageQuotaExceededError):
        session.write(b"x" * 15)
    shed.objects.finish(session)
    assert shed.stored.used(PROJECT) == 95


def test_a_large_body_is_refused_before_it_is_on_the_disk(shed: Shed) -> None:
    with shed.objects.stage(ObjectDraft(bucket="mine", name="a")) as staged:
        staged.write(b"x" * 100)
        with pytest.raises(StorageQuotaExceededError):
            staged.write(b"x")
        assert staged.path.stat().st_size == 100


def test_a_write_that_fails_does_not_count(shed: Shed) -> None:
    shed.put("a", 50)
    draft = ObjectDraft(bucket="mine", name="a")
    with pytest.raises(ConditionNotMetError):
        shed.objects.store(None, b"x" * 50, replace(draft, conditions=replace(draft.conditions, generation=0)))
    assert shed.stored.used(PROJECT) == 50


def test_noncurrent_versions_count(shed: Shed) -> None:
    shed.rules = BucketRules(versioned=True)
    shed.put("a", 50)
    shed.put("a", 40)
    assert shed.stored.rescan(PROJECT) == 90
    with pytest.raises(StorageQuotaExceededError):
        shed.put("a", 20)


def test_what_is_being_written_counts_although_no_scan_sees_it(shed: Shed) -> None:
    with shed.stored.taken("mine", 70):
        assert shed.stored.rescan(PROJECT) == 70
        with pytest.raises(StorageQuotaExceededError):
            shed.put("a", 40)
        shed.put("b", 30)
    assert shed.stored.known(PROJECT) == 100
    assert shed.stored.rescan(PROJECT) == 30


@pytest.mark.parametrize("scans", [False, True])
def test_of_many_at_once_no_more_get_through_than_fit(shed: Shed, scans: bool) -> None:
    if not scans:
        shed.stored.rescan(PROJECT)
    gate = threading.Barrier(16)

    def write(number: int) -> bool:
        gate.wait()
        try:
            shed.put(f"o{number}", 10)
        except StorageQuotaExceededError:
            return False
        return True

    with ThreadPoolExecutor(20) as pool:
        scanning = [pool.submit(shed.stored.rescan, PROJECT) for _ in range(4) if scans]
        written = sum(pool.map(write, range(16)))
        for scan in scanning:
            scan.result()
    assert written <= 10 if scans else written == 10  # what a scan sees and what is counted may be the same
    assert shed.stored.rescan(PROJECT) == written * 10


def test_without_a_limit_nothing_is_scanned(tmp_path: Path) -> None:
    shed = Shed(tmp_path, None)
    shed.put("a", 1000)
    assert shed.scans == 0
