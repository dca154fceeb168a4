"""The backend contract for objects, and the router over a server's folders and its cloud buckets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from trainshed.buckets.staging import ObjectReader, StagedObject
from trainshed.domain.objects import ListQuery, ObjectDraft, ObjectInfo, ObjectMetadata, ObjectPage, Preconditions
from trainshed.domain.work_budget import WorkBudget
from trainshed.errors import FailedPreconditionError


class ObjectBackend(Protocol):
    """The objects of buckets. Acknowledged writes are stored; partial writes are invisible. Thread-safe."""

    def info(self, bucket: str, name: str, *, checksums: bool = True, generation: int | None = None) -> ObjectInfo:
        """The object as it is now, with its checksums if they are known. Raises `NotFoundError` if there is none.

        A generation may be that of a noncurrent version, as in `open` and `patch`.
        """

    def lacks_checksums(self, info: ObjectInfo) -> bool:
        """Whether `with_checksums` may add some."""

    def with_checksums(self, items: Sequence[ObjectInfo], budget: WorkBudget | None = None) -> tuple[ObjectInfo, ...]:
        """The objects of one bucket, with the checksums that can be had within the budget."""

    def open(self, bucket: str, name: str, *, generation: int | None = None) -> ObjectReader:
        """Open the object's bytes. The caller closes the reader."""

    def list(self, bucket: str, query: ListQuery, budget: WorkBudget | None = None) -> ObjectPage:
        """One page of the bucket's objects. It ends early, with a `next`, when the budget is used up."""

    def commit(self, staged: StagedObject, draft: ObjectDraft, budget: WorkBudget | None = None) -> ObjectInfo:
        """Turn the staged bytes into the object, atomically, if the draft's preconditions and checksums hold.

        Bytes whose checksums are unknown are read for them. Raises what `WorkBudget.check` raises meanwhile.

        On any error the object is unchanged, and the caller still owns the staged file.
        """

    def delete(self, bucket: str, name: str, conditions: Preconditions, *, generation: int | None = None) -> None:
        """Delete the object, or one version of it. Raises `NotFoundError` if there is no such generation."""

    def patch(
        self,
        bucket: str,
        name: str,
        change: Callable[[ObjectInfo], ObjectMetadata],
        *,
        generation: int | None = None,
    ) -> ObjectInfo:
        """Write new metadata to an object. `change` gets the object and may raise."""

    def check_plain(self, bucket: str, name: str) -> None:
        """Raises `FailedPreconditionError` if a folder has an entry that is not an object.

        Raises `NotFoundError` if the folder does not exist.
        """


class CloudObjectBackend(ObjectBackend, Protocol):
    """The objects of one cloud bucket at `url`, such as s3://lab-data/mnist."""

    url: str


class BucketBackend(ObjectBackend, Protocol):
    """An `ObjectBackend` that also creates and removes buckets and stages uploads."""

    def make_bucket(self, bucket: str) -> None:
        """Create an empty bucket. Raises `ConflictError` if objects of a lost bucket are in its place."""

    def clear_bucket(self, bucket: str, budget: WorkBudget | None = None) -> None:
        """Remove the empty folders of a bucket without objects. Raises `ConflictError` if it has objects.

        A `remove_bucket` that follows is fast then.
        """

    def remove_bucket(self, bucket: str, *, forget: Callable[[], None], budget: WorkBudget | None = None) -> None:
        """Call `forget`, then remove an empty bucket. Raises `ConflictError`, without any change, if it has objects.

        Raises what `WorkBudget.check` raises, without any change.
        """

    def cloud_of(self, bucket: str) -> str:
        """The URL of a cloud bucket, such as s3://lab-data/mnist. Empty for a local bucket."""

    def stage(self) -> StagedObject:
        """A new empty file for an upload. The caller passes it to `commit` or discards it."""

    def sweep(self) -> None:
        """Remove what interrupted writes left. Call it only before the first write."""


class BackendRouter:
    """Routes each bucket to its backend: the one in `clouds` with its name, or else the `local` one."""

    def __init__(self, local: BucketBackend, clouds: Mapping[str, CloudObjectBackend]) -> None:
        self._local = local
        self._clouds = clouds

    def cloud_of(self, bucket: str) -> str:
        """The URL of a cloud bucket, such as s3://lab-data/mnist. Empty for a local bucket."""
        return self._clouds[bucket].url if bucket in self._clouds else ""

    def make_bucket(self, bucket: str) -> None:
        """Create the folder. That of a cloud bucket stays empty; it remains if the bucket leaves the configuration."""
        self._local.make_bucket(bucket)

    def clear_bucket(self, bucket: str, budget: WorkBudget | None = None) -> None:
        if not self.cloud_of(bucket):
            self._local.clear_bucket(bucket, budget)

    def remove_bucket(self, bucket: str, *, forget: Callable[[], None], budget: WorkBudget | None = None) -> None:
        if url := self.cloud_of(bucket):
            raise FailedPreconditionError(
                f"gs://{bucket} is kept in {url}, as [buckets.{bucket}] in config.toml says. Take that table out and "
                f"start the server again; then it can be removed, and what is in the cloud stays there."
            )
        self._local.remove_bucket(bucket, forget=forget, budget=budget)

    def stage(self) -> StagedObject:
        return self._local.stage()

    def sweep(self) -> None:
        self._local.sweep()

    def info(self, bucket: str, name: str, *, checksums: bool = True, generation: int | None = None) -> ObjectInfo:
        return self._backend_of(bucket).info(bucket, name, checksums=checksums, generation=generation)

    def lacks_checksums(self, info: ObjectInfo) -> bool:
        return self._backend_of(info.bucket).lacks_checksums(info)

    def with_checksums(self, items: Sequence[ObjectInfo], budget: WorkBudget | None = None) -> tuple[ObjectInfo, ...]:
        return self._backend_of(items[0].bucket).with_checksums(items, budget) if items else ()

    def open(self, bucket: str, name: str, *, generation: int | None = None) -> ObjectReader:
        return self._backend_of(bucket).open(bucket, name, generation=generation)

    def list(self, bucket: str, query: ListQuery, budget: WorkBudget | None = None) -> ObjectPage:
        return self._backend_of(bucket).list(bucket, query, budget)

    def commit(self, staged: StagedObject, draft: ObjectDraft, budget: WorkBudget | None = None) -> ObjectInfo:
        return self._backend_of(draft.bucket).commit(staged, draft, budget)

    def delete(self, bucket: str, name: str, conditions: Preconditions, *, generation: int | None = None) -> None:
        self._backend_of(bucket).delete(bucket, name, conditions, generation=generation)

    def patch(
        self,
        bucket: str,
        name: str,
        change: Callable[[ObjectInfo], ObjectMetadata],
        *,
        generation: int | None = None,
    ) -> ObjectInfo:
        return self._backend_of(bucket).patch(bucket, name, change, generation=generation)

    def check_plain(self, bucket: str, name: str) -> None:
        self._backend_of(bucket).check_plain(bucket, name)

    def _backend_of(self, bucket: str) -> ObjectBackend:
        return self._clouds.get(bucket, self._local)
