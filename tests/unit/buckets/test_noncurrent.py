"""Noncurrent versions, holds and retention of objects that are files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainshed.buckets.file_backend import FileBackend
from trainshed.domain.objects import ListQuery, ObjectDraft, ObjectInfo, ObjectMetadata, Preconditions
from trainshed.domain.storage.rules import BucketRules
from trainshed.errors import ConditionNotMetError, ConflictError, NotFoundError, PermissionDeniedError

NONE = Preconditions()


class Tree:
    """A bucket with rules that a test changes, and a clock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now_us = 1_700_000_000_000_000
        self.rules = BucketRules(versioned=True)
        self.backend = FileBackend(
            path / "buckets", path / "uploads", clock=lambda: self.now_us, rules=lambda bucket: self.rules
        )
        self.backend.make_bucket("bucket")

    def put(self, name: str, data: bytes, **draft: object) -> ObjectInfo:
        self.now_us += 1_000_000
        with self.backend.stage() as staged:
            staged.write(data)
            made = ObjectDraft(bucket="bucket", name=name, **draft)  # type: ignore[arg-type]
            return self.backend.commit(staged, made)

    def delete(self, name: str, generation: int | None = None) -> None:
        self.now_us += 1_000_000
        self.backend.delete("bucket", name, NONE, generation=generation)

    def get(self, name: str, generation: int | None = None) -> bytes:
        with self.backend.open("bucket", name, generation=generation) as reader:
            return reader.read(0, reader.info.size)

    def versions(self, **query: object) -> list[tuple[str, int, bool]]:
        page = self.backend.list("bucket", ListQuery(versions=True, **query))  # type: ignore[arg-type]
        return [(item.name, item.generation, item.deleted_us > 0) for item in page.items]

    def pages(self, limit: int, **query: object) -> Iterator[tuple[str, int]]:
        after = ""
        while True:
            wanted = ListQuery(versions=True, limit=limit, after=after, **query)  # type: ignore[arg-type]
            page = self.backend.list("bucket", wanted)
            found = [(item.name, item.generation) for item in page.items] + [(each, 0) for each in page.prefixes]
            yield from sorted(found)
            if not page.next:
                return
            after = page.next


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_what_is_replaced_or_deleted_is_still_read_by_its_generation(tree: Tree) -> None:
    first = tree.put("a/b", b"one", traits=ObjectMetadata(metadata={"k": "v"}))
    second = tree.put("a/b", b"two!")
    tree.delete("a/b")
    with pytest.raises(NotFoundError):
        tree.get("a/b")
    assert not (tree.path / "buckets/bucket/a").exists()
    assert (tree.get("a/b", first.generation), tree.get("a/b", second.generation)) == (b"one", b"two!")
    kept = tree.backend.info("bucket", "a/b", generation=first.generation)
    assert (kept.md5, kept.traits, kept.deleted_us) == (first.md5, first.traits, second.generation)
    assert tree.versions() == [("a/b", first.generation, True), ("a/b", second.generation, True)]
    assert tree.backend.list("bucket", ListQuery()).items == ()
    with pytest.raises(NotFoundError, match="#5"):
        tree.get("a/b", 5)


def test_a_generation_is_removed_for_ever_and_the_rest_stays(tree: Tree) -> None:
    first, second = tree.put("a", b"one"), tree.put("a", b"two")
    with pytest.raises(ConditionNotMetError):
        tree.backend.delete("bucket", "a", Preconditions(metageneration=7), generation=first.generation)
    tree.delete("a", first.generation)
    assert tree.versions() == [("a", second.generation, False)]
    tree.delete("a", second.generation)
    assert tree.versions() == []
    assert list((tree.path / "noncurrent").iterdir()) == []
    with pytest.raises(NotFoundError):
        tree.delete("a", first.generation)


def test_a_name_can_have_versions_and_names_below_it(tree: Tree) -> None:
    first = tree.put("a", b"file")
    tree.delete("a")
    second = tree.put("a/b", b"below")
    tree.delete("a/b")
    third = tree.put("a", b"file again")
    assert tree.versions() == [
        ("a", first.generation, True),
        ("a", third.generation, False),
        ("a/b", second.generation, True),
    ]
    assert tree.get("a", first.generation) == b"file"


def test_generations_grow_beyond_those_of_deleted_versions(tree: Tree) -> None:
    first = tree.put("a", b"one")
    tree.delete("a")
    tree.now_us -= 3_600_000_000  # somebody set the clock back
    assert tree.put("a", b"two").generation > first.generation


def test_metadata_of_a_noncurrent_version_changes_alone(tree: Tree) -> None:
    first, second = tree.put("a", b"one"), tree.put("a", b"two")
    changed = tree.backend.patch(
        "bucket", "a", lambda info: ObjectMetadata(metadata={"x": "y"}), generation=first.generation
    )
    assert (changed.metageneration, changed.generation) == (2, first.generation)
    kept = tree.backend.info("bucket", "a", generation=first.generation)
    assert (kept.traits.metadata, tree.backend.info("bucket", "a")) == ({"x": "y"}, second)


def test_a_write_that_was_cut_off_keeps_no_version_twice(tree: Tree) -> None:
    first = tree.put("a", b"one")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="gone"):
        patch.setattr(FileBackend, "_move_into_place", _raise_gone)
        tree.put("a", b"two")
    assert (tree.get("a"), tree.versions()) == (b"one", [("a", first.generation, False)])
    second = tree.put("a", b"two")
    assert tree.versions() == [("a", first.generation, True), ("a", second.generation, False)]
    assert len(list((tree.path / "noncurrent/bucket/a").iterdir())) == 1


def test_what_a_cut_off_write_kept_goes_with_its_object(tree: Tree) -> None:
    first = tree.put("a", b"one")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="gone"):
        patch.setattr(FileBackend, "_move_into_place", _raise_gone)
        tree.put("a", b"two")
    tree.delete("a", first.generation)
    assert (tree.versions(), list((tree.path / "noncurrent").iterdir())) == ([], [])


def _raise_gone(*args: object) -> None:
    raise OSError("gone")


def test_a_bucket_with_noncurrent_versions_is_not_empty(tree: Tree) -> None:
    kept = tree.put("a", b"one")
    tree.delete("a")
    with pytest.raises(ConflictError, match="noncurrent"):
        tree.backend.remove_bucket("bucket", forget=pytest.fail)
    tree.delete("a", kept.generation)
    tree.backend.remove_bucket("bucket", forget=lambda: None)
    assert not (tree.path / "buckets/bucket").exists()


def test_without_versioning_nothing_is_kept(tree: Tree) -> None:
    tree.rules = BucketRules()
    first = tree.put("a", b"one")
    tree.put("a", b"two")
    with pytest.raises(NotFoundError):
        tree.get("a", first.generation)
    tree.delete("a")
    assert tree.versions() == []
    assert not (tree.path / "noncurrent").exists()


def test_a_file_of_another_program_becomes_a_version_as_it_is(tree: Tree) -> None:
    path = tree.path / "buckets/bucket/plain.csv"
    path.write_bytes(b"1,2")
    os.utime(path, ns=(10**18, 10**18))
    tree.put("plain.csv", b"3,4")
    assert tree.get("plain.csv", 10**15) == b"1,2"
    assert tree.backend.info("bucket", "plain.csv", generation=10**15).traits.content_type == "text/csv"


@pytest.mark.parametrize(
    ("traits", "message"),
    [(ObjectMetadata(temporary_hold=True), "Temporary"), (ObjectMetadata(event_based_hold=True), "Event-Based")],
)
@pytest.mark.parametrize("versioned", [True, False])
def test_a_held_object_is_neither_replaced_nor_deleted(
    tree: Tree, traits: ObjectMetadata, message: str, versioned: bool
) -> None:
    held = tree.put("a", b"one", traits=traits)
    tree.rules = BucketRules(versioned=versioned, holds=True)
    for action in (lambda: tree.put("a", b"two"), lambda: tree.delete("a"), lambda: tree.delete("a", held.generation)):
        with pytest.raises(PermissionDeniedError, match=message):
            action()
    assert (tree.get("a"), tree.versions()) == (b"one", [("a", held.generation, False)])
    tree.backend.patch("bucket", "a", lambda info: ObjectMetadata())
    tree.delete("a")


def test_retention_ends_by_age_and_counts_from_the_end_of_a_hold(tree: Tree) -> None:
    tree.rules = BucketRules(retention_s=3600)
    kept = tree.put("a", b"one")
    for action in (lambda: tree.put("a", b"two"), lambda: tree.delete("a"), lambda: tree.delete("a", kept.generation)):
        with pytest.raises(PermissionDeniedError, match="retention policy"):
            action()
    tree.now_us = kept.created_us + 3600_000_000
    tree.backend.patch("bucket", "a", lambda info: ObjectMetadata(hold_released_us=tree.now_us))
    with pytest.raises(PermissionDeniedError, match="retention policy"):
        tree.delete("a")
    tree.now_us += 3600_000_000
    tree.delete("a")


def test_with_versions_a_retained_object_may_become_noncurrent(tree: Tree) -> None:
    tree.rules = BucketRules(versioned=True, retention_s=3600)
    first, second = tree.put("a", b"one"), tree.put("a", b"two")
    with pytest.raises(PermissionDeniedError, match="retention policy"):
        tree.delete("a", first.generation)
    tree.delete("a")
    tree.now_us += 3600_000_000
    tree.delete("a", first.generation)
    assert tree.versions() == [("a", second.generation, True)]


def test_new_objects_get_the_bucket_s_default_hold(tree: Tree) -> None:
    tree.rules = BucketRules(default_hold=True)
    assert tree.put("a", b"x").traits.event_based_hold


def test_folds_with_a_delimiter(tree: Tree) -> None:
    first = tree.put("dir/x", b"1")
    tree.delete("dir/x")
    second = tree.put("e", b"2")
    tree.put("f/y", b"3")
    page = tree.backend.list("bucket", ListQuery(versions=True, delimiter="/"))
    assert (page.prefixes, [item.name for item in page.items]) == (("dir/", "f/"), ["e"])
    assert list(tree.pages(1, delimiter="/")) == [("dir/", 0), ("e", second.generation), ("f/", 0)]
    assert list(tree.pages(1, delimiter="/", prefix="dir/")) == [("dir/x", first.generation)]


NAMES = st.sampled_from(["a", "a/b", "a-b", "a/b/c", "b", "é", "a b", "dir/x", "dir-x"])


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.tuples(NAMES, st.sampled_from(["put", "delete"])), max_size=12),
    limit=st.integers(1, 4),
    prefix=st.sampled_from(["", "a", "a/", "dir", "zz"]),
    start=st.sampled_from(["", "a", "a/b", "b"]),
)
def test_pages_have_every_version_once_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, str]],
    limit: int,
    prefix: str,
    start: str,
) -> None:
    tree = Tree(tmp_path_factory.mktemp("tree"))
    model: set[tuple[str, int]] = set()
    live: set[str] = set()
    for name, action in steps:
        in_the_way = any(name.startswith(f"{each}/") or each.startswith(f"{name}/") for each in live)
        if action == "put" and not in_the_way:
            model.add((name, tree.put(name, b"x").generation))
            live.add(name)
        elif action == "delete" and name in live:
            tree.delete(name)
            live.remove(name)
    expected = sorted(each for each in model if each[0].startswith(prefix) and each[0] >= start)
    assert list(tree.pages(limit, prefix=prefix, start=start)) == expected
