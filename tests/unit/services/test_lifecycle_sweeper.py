"""The sweep of lifecycle rules, on real files: what jobs write into a bucket is nobody else's trouble."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from trainshed.buckets.file_backend import FileBackend
from trainshed.buckets.xattrs import ATTRIBUTE
from trainshed.domain.objects import ListQuery, ObjectDraft
from trainshed.services.storage.lifecycle import LifecycleSweeper
from trainshed.store.buckets import BucketStore

RULES = {"rule": [{"action": {"type": "Delete"}, "condition": {"age": 0}}]}


class Lifecycles:
    """A store with two buckets that have rules."""

    def lifecycles(self) -> Sequence[tuple[str, Any]]:
        return [("first", RULES), ("second", RULES)]


@pytest.fixture
def backend(tmp_path: Path) -> FileBackend:
    made = FileBackend(tmp_path / "buckets", tmp_path / "uploads")
    for bucket in ("first", "second"):
        made.make_bucket(bucket)
        made.commit(made.stage(), ObjectDraft(bucket=bucket, name="a"))
    return made


def left(backend: FileBackend, bucket: str) -> list[str]:
    return [info.name for info in backend.list(bucket, ListQuery(checksums=False)).items]


def step(backend: FileBackend) -> float:
    return LifecycleSweeper(cast(BucketStore, Lifecycles()), backend).loop._step()


def test_a_time_that_a_job_wrote_is_no_time(backend: FileBackend, tmp_path: Path) -> None:
    path = tmp_path / "buckets" / "first" / "a"
    os.setxattr(path, ATTRIBUTE, orjson.dumps(orjson.loads(os.getxattr(path, ATTRIBUTE)) | {"custom_time": "soon"}))
    assert step(backend) > 60
    assert (left(backend, "first"), left(backend, "second")) == ([], [])


def test_a_bucket_that_fails_keeps_no_other_from_its_rules(
    backend: FileBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = backend.list

    def list_page(bucket: str, *rest: Any) -> Any:
        if bucket == "first":
            raise ValueError("unforeseen")
        return whole(bucket, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(backend, "list", list_page)
        assert step(backend) > 60
    assert (left(backend, "first"), left(backend, "second")) == (["a"], [])
