"""Attributes and times that other programs put on files: they say nothing, and harm nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from trainshed.buckets.file_backend import FileBackend
from trainshed.buckets.xattrs import ATTRIBUTE, MAX_TIME_US
from trainshed.domain.objects import ListQuery, ObjectDraft, ObjectInfo, ObjectMetadata, Preconditions
from trainshed.errors import FailedPreconditionError, InvalidArgumentError

JUNK: list[bytes] = [b"", b"notjson", b"[]", b"{}", b"5", b'{"size":2}', b"\xff", b'"' + b"x" * 3600 + b'"']
WRONG: list[tuple[str, Any]] = [
    ("created_us", 10**18),
    ("updated_us", -1),
    ("created_us", 1.5),
    ("metageneration", "x"),
    ("metageneration", True),
    ("metageneration", None),
    ("content_type", 5),
    ("content_type", "text/html\r\nset-cookie: a=b"),
    ("content_type", "text/\u20ac"),
    ("content_disposition", "a\nb"),
    ("cache_control", ["a"]),
    ("custom_time", "soon"),
    ("metadata", 7),
    ("metadata", {"a": 1}),
    ("metadata", ["a"]),
    ("md5", "y"),
    ("crc32c", "x"),
    ("upload", "../x"),
    ("components", -1),
    ("components", "2"),
]


@pytest.fixture
def tree(tmp_path: Path) -> FileBackend:
    made = FileBackend(tmp_path / "buckets", tmp_path / "uploads")
    made.make_bucket("bucket")
    return made


@pytest.fixture
def bucket(tree: FileBackend, tmp_path: Path) -> Path:
    return tmp_path / "buckets" / "bucket"


def put(tree: FileBackend, name: str, data: bytes = b"", **draft: Any) -> ObjectInfo:
    with tree.stage() as staged:
        staged.write(data)
        return tree.commit(staged, ObjectDraft(bucket="bucket", name=name, **draft))


def changed(path: Path, key: str, value: Any) -> bytes:
    return orjson.dumps(orjson.loads(os.getxattr(path, ATTRIBUTE)) | {key: value})


def check_file(tree: FileBackend) -> None:
    """It is listed, read, described, overwritten and deleted as if the attribute weren't there."""
    (listed,) = tree.list("bucket", ListQuery()).items
    assert (listed.traits, listed.metageneration) == (ObjectMetadata(content_type="text/plain"), 1)
    assert tree.info("bucket", "a.txt").md5 == "SfaKXIST7CwL9ImCHCH8Ow=="
    with tree.open("bucket", "a.txt") as reader:
        assert reader.read(0) == b"hi"
    assert tree.patch("bucket", "a.txt", lambda info: ObjectMetadata(metadata={"k": "v"})).metageneration == 2
    assert put(tree, "a.txt", b"new").size == 3
    tree.delete("bucket", "a.txt", Preconditions())


@pytest.mark.parametrize("data", JUNK, ids=lambda data: str(data[:12]))
def test_junk_on_a_file_says_nothing(tree: FileBackend, bucket: Path, data: bytes) -> None:
    (bucket / "a.txt").write_bytes(b"hi")
    os.setxattr(bucket / "a.txt", ATTRIBUTE, data)
    check_file(tree)


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_one_wrong_value_makes_the_whole_say_nothing(tree: FileBackend, bucket: Path, key: str, value: Any) -> None:
    put(tree, "a.txt", b"hi", traits=ObjectMetadata(content_type="text/x-odd", metadata={"a": "b"}))
    os.setxattr(bucket / "a.txt", ATTRIBUTE, changed(bucket / "a.txt", key, value))
    check_file(tree)


@pytest.mark.parametrize("data", JUNK, ids=lambda data: str(data[:12]))
def test_junk_on_a_folder_is_no_mark(tree: FileBackend, bucket: Path, data: bytes) -> None:
    (bucket / "d").mkdir()
    os.setxattr(bucket / "d", ATTRIBUTE, data)
    for query in (ListQuery(), ListQuery(delimiter="/")):
        page = tree.list("bucket", query)
        assert (page.items, page.prefixes) == ((), ())
    put(tree, "d", b"x")
    assert [item.name for item in tree.list("bucket", ListQuery()).items] == ["d"]


def test_what_is_said_here_is_believed(tree: FileBackend) -> None:
    traits = ObjectMetadata(
        content_type="text/x-odd",
        content_encoding="gzip",
        content_disposition="attachment; filename=é",
        custom_time="2026-01-01T00:00:00Z",
        metadata={"line": "a\nb", "é": "ü"},
    )
    info = put(tree, "a", b"hi", traits=traits, upload="0" * 32, components=3)
    assert tree.info("bucket", "a") == info


@pytest.mark.parametrize("seconds", [-(10**9), 10**10, 2**33, 2**40])
def test_files_of_any_time_are_listed_and_overwritten(tree: FileBackend, bucket: Path, seconds: int) -> None:
    path = bucket / "a.txt"
    path.write_bytes(b"hi")
    os.utime(path, (seconds, seconds))
    (listed,) = tree.list("bucket", ListQuery()).items
    assert 0 <= listed.created_us <= MAX_TIME_US
    assert tree.info("bucket", "a.txt").crc32c
    if not 0 <= listed.generation <= MAX_TIME_US:
        with pytest.raises(FailedPreconditionError, match="modification time"):
            tree.patch("bucket", "a.txt", lambda info: ObjectMetadata(metadata={"k": "v"}))
    new = put(tree, "a.txt", b"new")
    assert tree.info("bucket", "a.txt") == new


def test_metadata_leaves_room_for_checksums_that_are_noted_later(tree: FileBackend, bucket: Path) -> None:
    (bucket / "a.txt").write_bytes(b"hi")
    os.utime(bucket / "a.txt", (10**9, 10**9))
    size = next(size for size in range(3500, 0, -1) if told(tree, ObjectMetadata(metadata={"k": "x" * size})))
    assert size > 3000
    assert tree.info("bucket", "a.txt").crc32c
    assert tree.list("bucket", ListQuery(checksums=False)).items[0].crc32c


def told(tree: FileBackend, traits: ObjectMetadata) -> bool:
    try:
        tree.patch("bucket", "a.txt", lambda info: traits)
    except InvalidArgumentError:
        return False
    return True
