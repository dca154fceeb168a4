"""A listing against a model that sorts plain strings."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainshed.buckets.file_backend import FileBackend
from trainshed.domain.objects import ListQuery, ObjectDraft, Preconditions
from trainshed.domain.work_budget import WorkBudget, WorkLimits
from trainshed.errors import RequestCancelledError
from trainshed.testing.workloads.bucket_objects import expected, walked

PART = st.text(alphabet="ab-./é", min_size=1, max_size=3).filter(
    lambda text: "/" not in text and text not in (".", "..")
)
NAME = st.lists(PART, min_size=1, max_size=3).flatmap(
    lambda parts: st.sampled_from(["/".join(parts), "/".join(parts) + "/"])
)


def fitting(names: list[str]) -> list[str]:
    """The names that can be kept together: none is both a file and a folder."""
    kept: list[str] = []
    for name in dict.fromkeys(names):
        bare = name.rstrip("/")
        clash = any(
            (other == bare and name.endswith("/"))
            or (not name.endswith("/") and other.startswith(bare + "/"))
            or (not other.endswith("/") and name.startswith(other + "/"))
            for other in kept
        )
        if not clash:
            kept.append(name)
    return kept


def fill(root: Path, names: list[str]) -> FileBackend:
    tree = FileBackend(root / "buckets", root / "uploads")
    tree.make_bucket("bucket")
    for name in names:
        with tree.stage() as staged:
            tree.commit(staged, ObjectDraft(bucket="bucket", name=name))
    return tree


@settings(deadline=None, max_examples=150)
@given(
    names=st.lists(NAME, max_size=12),
    prefix=st.one_of(st.just(""), st.text(alphabet="ab-./", max_size=4)),
    delimiter=st.sampled_from(["", "/", "-", "b"]),
    bounds=st.tuples(st.text(alphabet="ab-./", max_size=3), st.text(alphabet="ab-./", max_size=3)),
    limit=st.integers(1, 4),
    delimiter_objects=st.booleans(),
)
def test_paging_gives_what_sorting_all_names_gives(
    names: list[str], prefix: str, delimiter: str, bounds: tuple[str, str], limit: int, delimiter_objects: bool
) -> None:
    query = ListQuery(
        prefix=prefix,
        delimiter=delimiter,
        start=bounds[0],
        end=bounds[1],
        limit=limit,
        delimiter_objects=delimiter_objects,
    )
    kept = fitting(names)
    with tempfile.TemporaryDirectory() as folder:
        tree = fill(Path(folder), kept)
        items, prefixes = walked(partial(tree.list, "bucket"), query)
    wanted_items, wanted_prefixes = expected(kept, query)
    assert sorted(items) == wanted_items
    assert prefixes == wanted_prefixes
    assert len(items) == len(set(items))


def test_names_sort_by_their_bytes_across_folders(tmp_path: Path) -> None:
    names = ["a.b", "a-b", "a/b", "ab", "a/b-c", "a/c/d", "z"]
    tree = fill(tmp_path, names)
    found = [item.name for item in tree.list("bucket", ListQuery()).items]
    assert found == ["a-b", "a.b", "a/b", "a/b-c", "a/c/d", "ab", "z"]


def test_empty_folders_links_and_odd_files_are_not_listed(tmp_path: Path) -> None:
    tree = fill(tmp_path, ["kept/x"])
    bucket = tmp_path / "buckets" / "bucket"
    (bucket / "empty" / "deeper").mkdir(parents=True)
    (bucket / "link").symlink_to("/etc/passwd")
    (bucket / "kept" / "loop").symlink_to(bucket)
    (bucket / "line\nend").touch()
    assert walked(partial(tree.list, "bucket"), ListQuery(delimiter="/")) == ([], ["kept/"])
    assert walked(partial(tree.list, "bucket"), ListQuery()) == (["kept/x"], [])
    tree.delete("bucket", "kept/x", Preconditions())
    assert walked(partial(tree.list, "bucket"), ListQuery(delimiter="/")) == ([], [])


def budget(*, seconds: float) -> WorkBudget:
    return WorkBudget(WorkLimits(max_bytes=1 << 40, max_seconds=seconds))


@pytest.mark.parametrize("delimiter", ["", "/"])
def test_a_listing_that_takes_too_long_goes_on_with_the_next_page(tmp_path: Path, delimiter: str) -> None:
    names = ["a/1", "a/2", "b/1", "c", "d/e/f"]
    tree = fill(tmp_path, names)
    whole = tree.list("bucket", ListQuery(delimiter=delimiter))
    seen: list[str] = []
    query, pages = ListQuery(delimiter=delimiter), 0
    while True:
        page = tree.list("bucket", query, budget(seconds=0))
        seen += [*(item.name for item in page.items), *page.prefixes]
        pages += 1
        if not page.next:
            break
        query = replace(query, after=page.next)
    assert sorted(seen) == sorted([*(item.name for item in whole.items), *whole.prefixes])
    assert pages >= len(seen)  # one thing at a time, and always one


def test_a_listing_that_nobody_waits_for_stops(tmp_path: Path) -> None:
    cancelled = budget(seconds=600)
    cancelled.cancel()
    tree = fill(tmp_path, ["a"])
    with pytest.raises(RequestCancelledError):
        tree.list("bucket", ListQuery(), cancelled)


def test_a_listing_of_folders_without_objects_ends_with_its_budget(tmp_path: Path) -> None:
    tree = fill(tmp_path, ["a/b/1", "m/", "z"])
    bucket = tmp_path / "buckets" / "bucket"
    for name in ("a/a", "a/c", "b/a/a", "b/b", "c"):
        (bucket / name).mkdir(parents=True)
    query, seen, empty = ListQuery(), list[str](), 0
    while True:
        page = tree.list("bucket", query, budget(seconds=0))
        seen += [item.name for item in page.items]
        empty += not page.items
        if not page.next:
            break
        query = replace(query, after=page.next)
    assert seen == ["a/b/1", "m/", "z"]
    assert empty >= 5  # a page for each
