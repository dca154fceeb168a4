"""Folders as deep as names allow, and deeper ones that a program left."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.buckets.dirfd import DirectoryWalk, open_directory, remove_tree, stored_bytes
from trainshed.buckets.file_backend import FileBackend
from trainshed.domain.objects import ListQuery, ObjectDraft, Preconditions
from trainshed.errors import FailedPreconditionError, UnavailableError

DEEPEST = "a/" * 511 + "b"  #: a name of 1,023 bytes
PLANTED = 1500


@pytest.fixture
def tree(tmp_path: Path) -> FileBackend:
    made = FileBackend(tmp_path / "buckets", tmp_path / "uploads")
    made.make_bucket("bucket")
    return made


@pytest.fixture
def few_files() -> Iterator[None]:
    """A limit on open files that a descriptor a level would break. Threads that wait for connections have descriptors
    that are not listed: there is room for them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 200, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def put(tree: FileBackend, name: str) -> None:
    with tree.stage() as staged:
        tree.commit(staged, ObjectDraft(bucket="bucket", name=name))


def plant(folder: Path, *, depth: int = PLANTED, file: str = "") -> None:
    """Nested folders named x below a folder, perhaps with a file in the last."""
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("x", dir_fd=fd)
        below = os.open("x", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    if file:
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)


def names(tree: FileBackend, **query: str) -> list[str]:
    page = tree.list("bucket", ListQuery(**query))  # type: ignore[arg-type]
    return [item.name for item in page.items] + list(page.prefixes)


@pytest.mark.usefixtures("few_files")
def test_the_deepest_name_is_listed_kept_from_being_a_file_and_deleted(tree: FileBackend, tmp_path: Path) -> None:
    put(tree, DEEPEST)
    put(tree, "z")
    assert names(tree) == [DEEPEST, "z"]
    assert names(tree, delimiter="/") == ["z", "a/"]
    assert names(tree, prefix=DEEPEST[:-3]) == [DEEPEST]
    with pytest.raises(FailedPreconditionError, match="objects below a/"):
        put(tree, "a")
    tree.delete("bucket", DEEPEST, Preconditions())
    put(tree, "a")
    assert names(tree) == ["a", "z"]


@pytest.mark.usefixtures("few_files")
@pytest.mark.parametrize("file", ["", "file"])
def test_folders_deeper_than_any_name_are_passed_over(tree: FileBackend, tmp_path: Path, file: str) -> None:
    plant(tmp_path / "buckets" / "bucket", file=file)
    put(tree, "z")
    assert names(tree) == ["z"]
    assert names(tree, delimiter="/") == ["z"]
    tree.delete("bucket", "z", Preconditions())
    tree.remove_bucket("bucket", forget=lambda: None)
    assert list((tmp_path / "uploads").iterdir()) == []


@pytest.mark.usefixtures("few_files")
def test_deep_empty_folders_give_way_to_an_object(tree: FileBackend, tmp_path: Path) -> None:
    plant(tmp_path / "buckets" / "bucket")
    put(tree, "x")
    assert names(tree) == ["x"]


@pytest.mark.usefixtures("few_files")
def test_a_sweep_removes_folders_of_any_depth_and_goes_on(tree: FileBackend, tmp_path: Path) -> None:
    uploads = tmp_path / "uploads"
    (uploads / "gone-deep").mkdir()
    plant(uploads / "gone-deep", file="file")
    (uploads / "gone-link").symlink_to(tmp_path / "buckets")
    (uploads / "gone-file").touch()
    (uploads / "put-folder" / "below").mkdir(parents=True)
    (uploads / "other").touch()
    tree.sweep()
    assert [path.name for path in uploads.iterdir()] == ["other"]
    assert (tmp_path / "buckets" / "bucket").is_dir()


def test_steps_notice_that_a_folder_was_moved_away(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    with open_directory(tmp_path, ()) as folder, DirectoryWalk(folder) as place:
        place.down("a")
        place.down("b")
        (tmp_path / "a" / "b").rename(tmp_path / "elsewhere" / "b")
        with pytest.raises(UnavailableError, match="moved"):
            place.up()


def test_files_of_all_folders_count_and_links_lead_nowhere(tmp_path: Path) -> None:
    bucket = tmp_path / "b"
    (bucket / "a" / "b").mkdir(parents=True)
    (bucket / "one").write_bytes(b"x" * 10)
    (bucket / "a" / "b" / "two").write_bytes(b"x" * 100)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "large").write_bytes(b"x" * 1000)
    (bucket / "a" / "link").symlink_to(outside / "large")
    (bucket / "folder").symlink_to(outside)
    os.mkfifo(bucket / "pipe")
    assert stored_bytes(tmp_path, "b") == 110
    os.link(bucket / "one", bucket / "again")
    assert stored_bytes(tmp_path, "b") == 120
    assert stored_bytes(tmp_path, "absent") == 0


def test_a_tree_deeper_than_paths_and_recursion_go(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir(tmp_path / "b")
        for _ in range(3000):
            os.mkdir("d")
            os.chdir("d")
        Path("last").write_bytes(b"x" * 7)
    finally:
        os.fchdir(before)
        os.close(before)
    assert stored_bytes(tmp_path, "b") == 7
    with open_directory(tmp_path, ()) as folder:
        remove_tree("b", folder=folder)  # pytest's own removal recurses, and would end the session
    assert not (tmp_path / "b").exists()
