"""What the store of buckets, and the service on it, promise on every database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainshed.buckets.backend import BackendRouter
from trainshed.buckets.file_backend import FileBackend
from trainshed.domain.objects import Bucket, ListQuery, ObjectDraft, Preconditions
from trainshed.errors import (
    AbortedError,
    AlreadyExistsError,
    CannotProceedError,
    ConditionNotMetError,
    ConflictError,
    FailedPreconditionError,
    NotFoundError,
)
from trainshed.services.storage.buckets import BucketChange, Buckets
from trainshed.store.buckets import BucketStore
from trainshed.store.database import Database


def bucket(name: str, project: str = "one-project") -> Bucket:
    return Bucket(
        name=name, project=project, location="US", storage_class="STANDARD", labels={}, created_us=1, updated_us=1
    )


@pytest.fixture
def store(database: Database) -> BucketStore:
    return BucketStore(database)


@pytest.fixture
def tree(tmp_path: Path) -> FileBackend:
    return FileBackend(tmp_path / "buckets", tmp_path / "uploads")


@pytest.fixture
def buckets(store: BucketStore, tree: FileBackend) -> Buckets:
    return Buckets(store, tree)


def test_names_are_shared_by_all_projects(store: BucketStore) -> None:
    store.add(bucket("taken"))
    with pytest.raises(AlreadyExistsError):
        store.add(bucket("taken", "another-project"))
    assert store.get("taken").project == "one-project"


def test_pages_hold_one_project_and_one_prefix(store: BucketStore) -> None:
    for name in ("a_b", "axb", "a_c", "b"):
        store.add(bucket(name))
    store.add(bucket("a_d", "another-project"))
    assert {found.name for found in store.page("one-project", prefix="a_", after="", limit=10)} == {"a_b", "a_c"}
    first = store.page("one-project", prefix="", after="", limit=3)
    second = store.page("one-project", prefix="", after=first[-1].name, limit=3)
    assert {found.name for found in (*first, *second)} == {"a_b", "axb", "a_c", "b"}
    assert (len(first), len(second)) == (3, 1)


def test_a_write_over_a_changed_bucket_is_refused(store: BucketStore) -> None:
    old = store.add(bucket("changed"))
    assert store.record(old).metageneration == 2
    with pytest.raises(AbortedError):
        store.record(old)


def test_labels_are_merged_replaced_and_taken_away(buckets: Buckets) -> None:
    buckets.make("one-project", "labelled", labels={"a": "1", "b": "2"})
    merged = buckets.patch("labelled", BucketChange(labels={"b": None, "c": "3"}), Preconditions(metageneration=1))
    assert (merged.labels, merged.metageneration) == ({"a": "1", "c": "3"}, 2)
    assert buckets.patch("labelled", BucketChange(labels={"d": "4"}, replace=True), Preconditions()).labels == {
        "d": "4"
    }
    assert buckets.patch("labelled", BucketChange(), Preconditions()).metageneration == 3
    with pytest.raises(ConditionNotMetError):
        buckets.patch("labelled", BucketChange(labels={}), Preconditions(metageneration=1))


def test_one_of_many_makers_wins(buckets: Buckets) -> None:
    def make(number: int) -> bool:
        try:
            buckets.make(f"project-{number}", "wanted")
        except AlreadyExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(make, range(16))) == 1


def test_a_bucket_with_objects_stays(store: BucketStore, trees: BackendRouter) -> None:
    buckets = Buckets(store, trees)
    buckets.make("one-project", "shown")
    with trees.stage() as staged:
        trees.commit(staged, ObjectDraft(bucket="shown", name="a"))
    with pytest.raises((ConflictError, FailedPreconditionError), match=r"not empty|is kept in (s3|gs)://"):
        buckets.delete("shown", Preconditions())
    assert buckets.owner("shown") == "one-project"
    assert [item.name for item in trees.list("shown", ListQuery()).items] == ["a"]


def test_a_bucket_that_is_a_folder_goes_and_a_new_one_shows_nothing_of_an_old(
    buckets: Buckets, tree: FileBackend, tmp_path: Path
) -> None:
    buckets.make("one-project", "shown")
    buckets.delete("shown", Preconditions())
    with pytest.raises(NotFoundError):
        buckets.owner("shown")
    (tmp_path / "buckets" / "shown").mkdir()
    (tmp_path / "buckets" / "shown" / "late").write_text("written by a program after the bucket was deleted")
    with pytest.raises(ConflictError, match="objects of an earlier one"):
        buckets.make("another-project", "shown")
    with pytest.raises(NotFoundError):
        buckets.owner("shown")
    assert [item.name for item in tree.list("shown", ListQuery()).items] == ["late"], "kept, and in no bucket"


def test_a_bucket_in_a_cloud_is_made_once_and_for_one_project(buckets: Buckets) -> None:
    made = buckets.adopt("one-project", "bucket", url="s3://lab-data")
    assert (made.project, made.location) == ("one-project", "S3")
    assert buckets.adopt("one-project", "bucket", url="s3://lab-data") == made
    with pytest.raises(CannotProceedError, match="a bucket of project one-project"):
        buckets.adopt("another-project", "bucket", url="s3://lab-data")
    with pytest.raises(AlreadyExistsError):
        buckets.make("another-project", "bucket")
