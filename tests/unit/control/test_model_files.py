"""Copying the files of versions out of a bucket that others write to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trainshed.buckets.file_backend import FileBackend
from trainshed.control.deployments.model_files import MAX_FILES, ModelFileStore, ModelSnapshot
from trainshed.domain.objects import ObjectDraft
from trainshed.errors import FailedPreconditionError
from trainshed.testing.fakes.swaps import SWAPS, Swap


class Shed:
    def __init__(self, path: Path) -> None:
        self.tree = FileBackend(path / "buckets", path / "uploads")
        self.tree.make_bucket("bucket")
        self.used: set[tuple[str, str]] = set()
        self.root = path / "models"
        self.pins = ModelFileStore(self.root, self.tree, used=lambda project, digest: (project, digest) in self.used)
        self.folder = path / "buckets" / "bucket"

    def put(self, name: str, data: bytes) -> None:
        with self.tree.stage() as staged:
            staged.write(data)
            self.tree.commit(staged, ObjectDraft(bucket="bucket", name=name))

    def pin(self, uri: str, *, project: str = "p", check: Callable[[], None] = lambda: None) -> ModelSnapshot:
        """Pin files that a version has from then on."""
        with self.pins.snapshot(project, uri, check=check) as pinned:
            self.used.add((project, pinned.digest))
        return pinned

    def left(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.glob("*/*"))


@pytest.fixture
def shed(tmp_path: Path) -> Shed:
    return Shed(tmp_path)


def test_names_and_contents_make_the_digest(shed: Shed) -> None:
    shed.put("a/one", b"1")
    shed.put("a/deep/two", b"22")
    shed.put("b/one", b"1")
    shed.put("b/deep/two", b"22")
    shed.put("c/one", b"22")
    shed.put("c/deep/two", b"1")
    first = shed.pin("gs://bucket/a/")
    assert first.names == ("deep/two", "one")
    assert first.size == 3
    assert (first.folder / "deep" / "two").read_bytes() == b"22"
    assert shed.pin("gs://bucket/b") == first
    assert shed.pin("gs://bucket/c").digest != first.digest
    assert shed.pin("gs://bucket/a", project="q").folder != first.folder
    assert len(shed.left()) == 3


def test_a_whole_bucket_can_be_a_model(shed: Shed) -> None:
    shed.put("model.bst", b"1")
    assert shed.pin("gs://bucket").names == ("model.bst",)


def test_what_no_version_has_is_removed(shed: Shed) -> None:
    shed.put("a/one", b"1")
    with shed.pins.snapshot("p", "gs://bucket/a", check=lambda: None) as pinned:
        shed.pins.release("p", pinned.digest)  # another version with the same files was deleted meanwhile
        assert pinned.folder.is_dir()
    assert shed.left() == []
    kept = shed.pin("gs://bucket/a")
    shed.pins.release("p", kept.digest)
    assert shed.left() == [f"p/{kept.digest}"]
    shed.used.clear()
    shed.pins.release("p", kept.digest)
    assert shed.left() == []


def test_what_a_killed_server_left_is_swept(shed: Shed, caplog: pytest.LogCaptureFixture) -> None:
    shed.put("a/one", b"1")
    kept = shed.pin("gs://bucket/a")
    (shed.root / "p" / "draft-1234").mkdir()
    (shed.root / "p" / "0123abcd").mkdir()
    shed.pins.sweep()
    assert shed.left() == sorted(["p/0123abcd", f"p/{kept.digest}"]), "a snapshot whose version the database lost"
    assert "files.unused" in caplog.text


def test_files_that_change_while_they_are_copied_are_copied_again(shed: Shed) -> None:
    shed.put("a/one", b"old")
    shed.put("a/two", b"old")
    changes = iter((b"new", b""))

    def change() -> None:
        if data := next(changes, b""):
            shed.put("a/one", data)

    pinned = shed.pin("gs://bucket/a", check=change)
    assert (pinned.folder / "one").read_bytes() == b"new"
    assert shed.left() == [f"p/{pinned.digest}"]


def test_files_that_never_rest_are_refused(shed: Shed) -> None:
    shed.put("a/one", b"0")
    count = iter(range(1000))
    with pytest.raises(FailedPreconditionError, match="are being written to"):
        shed.pin("gs://bucket/a", check=lambda: shed.put("a/one", str(next(count)).encode()))
    assert shed.left() == []


def test_whoever_ends_it_leaves_nothing(shed: Shed) -> None:
    shed.put("a/one", b"1")

    def end() -> None:
        raise KeyError("cancelled")

    with pytest.raises(KeyError):
        shed.pin("gs://bucket/a", check=end)
    assert shed.left() == []


def test_too_many_files_are_refused(shed: Shed) -> None:
    (shed.folder / "a").mkdir()
    for number in range(MAX_FILES + 1):
        (shed.folder / "a" / str(number)).touch()
    with pytest.raises(FailedPreconditionError, match="more than 1,000 files"):
        shed.pin("gs://bucket/a")


@pytest.mark.parametrize("name", ["link", "deep/link", "fifo"])
def test_links_and_the_like_are_refused_by_name(shed: Shed, name: str, tmp_path: Path) -> None:
    shed.put("a/deep/one", b"1")
    path = shed.folder / "a" / name
    if name == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path)
    with pytest.raises(FailedPreconditionError, match=f"gs://bucket/a/{name} is a link"):
        shed.pin("gs://bucket/a")
    assert shed.left() == []


def test_a_folder_behind_a_link_is_no_model(shed: Shed, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("secret")
    (shed.folder / "a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FailedPreconditionError, match="no files in gs://bucket/a"):
        shed.pin("gs://bucket/a")


@pytest.mark.parametrize("swap", SWAPS)
def test_a_file_that_becomes_a_link_after_the_check_is_not_copied(
    shed: Shed, swap: Swap, monkeypatch: pytest.MonkeyPatch
) -> None:
    shed.put("a/model.bst", b"ours")
    check_plain = shed.tree.check_plain

    def check_then_swap(bucket: str, name: str) -> None:
        check_plain(bucket, name)
        monkeypatch.undo()
        swap(shed.folder / "a" / "model.bst", b"theirs")

    monkeypatch.setattr(shed.tree, "check_plain", check_then_swap)
    with pytest.raises(FailedPreconditionError, match=r"is a link|no files in"):
        shed.pin("gs://bucket/a")
    assert shed.left() == []
