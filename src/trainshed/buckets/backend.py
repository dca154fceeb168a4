"""All buckets of a server: those that are folders of its own, and those that its operator keeps in a cloud."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from trainshed.buckets.staging import ObjectReader, StagedObject
from trainshed.domain.objects import ListQuery, ObjectDraft, ObjectInfo, ObjectMetadata, ObjectPage, Preconditions
from trainshed.errors import FailedPreconditionError


class ObjectBackend(Protocol):
    """The objects of buckets. What is answered is stored; what is half-written is not seen. Threads may share it."""

    def info(self, bucket: str, name: str, *, checksums: bool = True) -> ObjectInfo:
        """The object as it is now, with its checksums as far as they can be known. `NotFoundError` if there is none."""

    def open(self, bucket: str, name: str, *, checksums: bool = False) -> ObjectReader:
        """The object's bytes; close it."""

    def list(self, bucket: str, query: ListQuery) -> ObjectPage:
        """A page of the bucket's objects."""

    def commit(self, staged: StagedObject, draft: ObjectDraft) -> ObjectInfo:
        """Make the staged bytes the object, all at once, if the draft's conditions and checksums hold.

        On any error the object is as it was, and the staged file is still the caller's to discard.
        """

    def delete(self, bucket: str, name: str, conditions: Preconditions, *, generation: int | None = None) -> None:
        """Remove the object. `NotFoundError` if it isn't this generation."""

    def patch(self, bucket: str, name: str, change: Callable[[ObjectInfo], ObjectMetadata]) -> ObjectInfo:
        """Write other traits to an object. `change` may look at it and refuse."""

    def check_plain(self, bucket: str, name: str) -> None:
        """`FailedPreconditionError` if a folder holds what is no object. `NotFoundError` if there is no such folder."""


class CloudObjectBackend(ObjectBackend, Protocol):
    """The objects of the one bucket that is kept in a cloud, and where: at s3://lab-data/mnist, say."""

    url: str


class BucketBackend(ObjectBackend, Protocol):
    """The same, with what makes and removes buckets and takes bytes in."""

    def make_bucket(self, bucket: str) -> None:
        """Make an empty bucket."""

    def remove_bucket(self, bucket: str, *, forget: Callable[[], None]) -> None:
        """`forget` an empty bucket and take it away. `ConflictError` if it holds objects, with all left as it was."""

    def stage(self) -> StagedObject:
        """A new empty file for an object to come. Give it to `commit`, or discard it."""

    def sweep(self) -> None:
        """Remove what interrupted writes left. Only before the first write."""


class BackendRouter:
    """A `BucketBackend` of the folders `here` and the buckets in `clouds`, each by its name."""

    def __init__(self, here: BucketBackend, clouds: Mapping[str, CloudObjectBackend]) -> None:
        self._here = here
        self._clouds = clouds

    def cloud_of(self, bucket: str) -> str:
        """Where a bucket is kept, such as s3://lab-data/mnist; empty if it is a folder."""
        return self._clouds[bucket].url if bucket in self._clouds else ""

    def make_bucket(self, bucket: str) -> None:
        """Make the folder. One of a bucket in a cloud stays empty: it is what is left if that is no longer named."""
        self._here.make_bucket(bucket)

    def remove_bucket(self, bucket: str, *, forget: Callable[[], None]) -> None:
        if url := self.cloud_of(bucket):
            raise FailedPreconditionError(
                f"gs://{bucket} is kept in {url}, as [buckets.{bucket}] in config.toml says. Take that table out and "
                f"start the server again; then it can be removed, and what is in the cloud stays there."
            )
        self._here.remove_bucket(bucket, forget=forget)

    def stage(self) -> StagedObject:
        return self._here.stage()

    def sweep(self) -> None:
        self._here.sweep()

    def info(self, bucket: str, name: str, *, checksums: bool = True) -> ObjectInfo:
        return self._of(bucket).info(bucket, name, checksums=checksums)

    def open(self, bucket: str, name: str, *, checksums: bool = False) -> ObjectReader:
        return self._of(bucket).open(bucket, name, checksums=checksums)

    def list(self, bucket: str, query: ListQuery) -> ObjectPage:
        return self._of(bucket).list(bucket, query)

    def commit(self, staged: StagedObject, draft: ObjectDraft) -> ObjectInfo:
        return self._of(draft.bucket).commit(staged, draft)

    def delete(self, bucket: str, name: str, conditions: Preconditions, *, generation: int | None = None) -> None:
        self._of(bucket).delete(bucket, name, conditions, generation=generation)

    def patch(self, bucket: str, name: str, change: Callable[[ObjectInfo], ObjectMetadata]) -> ObjectInfo:
        return self._of(bucket).patch(bucket, name, change)

    def check_plain(self, bucket: str, name: str) -> None:
        self._of(bucket).check_plain(bucket, name)

    def _of(self, bucket: str) -> ObjectBackend:
        return self._clouds.get(bucket, self._here)
