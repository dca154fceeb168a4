"""Lists while objects are written: what was stored is listed, and pages neither skip nor repeat what stays."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainshed.buckets.file_backend import FileBackend
from trainshed.domain.objects import ListQuery, ObjectDraft, Preconditions
from trainshed.errors import FailedPreconditionError, NotFoundError

#: Names that share folders, so that writes make and remove the folders that a list is in.
NAME = st.lists(st.sampled_from(["a", "b", "ab", "a-b", "c"]), min_size=1, max_size=4).map("/".join)
WRITES = st.lists(st.tuples(st.booleans(), NAME), max_size=4)


def backend(folder: Path) -> FileBackend:
    made = FileBackend(folder / "buckets", folder / "uploads")
    made.make_bucket("bucket")
    return made


def put(tree: FileBackend, name: str) -> bool:
    """Store an object. Returns False if a folder or a file is in its way."""
    with tree.stage() as staged:
        try:
            tree.commit(staged, ObjectDraft(bucket="bucket", name=name))
        except FailedPreconditionError:
            return False
    return True


def delete(tree: FileBackend, name: str) -> None:
    try:
        tree.delete("bucket", name, Preconditions())
    except NotFoundError:
        return


@pytest.mark.fault("F43")
@settings(max_examples=150, deadline=None)
@given(stable=st.sets(NAME, min_size=1, max_size=8), limit=st.integers(1, 3), rounds=st.lists(WRITES, max_size=8))
def test_writes_between_pages_move_nothing_that_stays(
    stable: set[str], limit: int, rounds: list[list[tuple[bool, str]]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = backend(Path(folder))
        kept = {name for name in sorted(stable) if put(tree, name)}
        seen: list[str] = []
        after, writes = "", iter(rounds)
        while True:
            page = tree.list("bucket", ListQuery(limit=limit, after=after))
            seen += [item.name for item in page.items]
            for stores, name in next(writes, []):
                if name in kept:
                    continue
                if not stores:
                    delete(tree, name)
                elif put(tree, name):
                    listed = tree.list("bucket", ListQuery(prefix=name))
                    assert name in [item.name for item in listed.items]
            if not page.next:
                break
            after = page.next
        assert seen == sorted(set(seen), key=str.encode)
        assert kept <= set(seen)


@pytest.mark.fault("F43")
def test_lists_among_writers_have_every_object_that_stays(tmp_path: Path) -> None:
    tree = backend(tmp_path)
    stable = [f"{folder}/{name}/x" for folder in "abc" for name in "abc"]
    for name in stable:
        assert put(tree, name)
    over, stored = threading.Event(), threading.Event()

    def write(worker: int) -> None:
        while not over.is_set():
            for name in (f"a/b/{worker}", f"b/{worker}/deep/er", f"c/c/{worker}"):
                assert put(tree, name)
                assert name in [item.name for item in tree.list("bucket", ListQuery(prefix=name)).items]
            for name in (f"a/b/{worker}", f"b/{worker}/deep/er", f"c/c/{worker}"):
                delete(tree, name)
            stored.set()

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(3)]
    for thread in threads:
        thread.start()
    try:
        assert stored.wait(60)
        for limit in (1, 2, 5):
            for _ in range(5):
                seen: list[str] = []
                after = ""
                while True:
                    page = tree.list("bucket", ListQuery(limit=limit, after=after))
                    seen += [item.name for item in page.items]
                    if not page.next:
                        break
                    after = page.next
                assert len(seen) == len(set(seen))
                assert set(stable) <= set(seen)
    finally:
        over.set()
        for thread in threads:
            thread.join()
