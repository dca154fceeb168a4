"""Buckets: create, get, list, patch and delete. Callers check authorization before."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trainshed.buckets.backend import BucketBackend
from trainshed.buckets.names import bucket_name
from trainshed.buckets.uploads import PartSessions
from trainshed.domain import names
from trainshed.domain.objects import MAX_PAGE, Bucket, Preconditions
from trainshed.domain.storage import settings
from trainshed.domain.storage.rules import BucketRules
from trainshed.domain.times import now_us
from trainshed.domain.work_budget import WorkBudget
from trainshed.errors import CannotProceedError, ConditionNotMetError, InvalidArgumentError, NotFoundError, NotModified
from trainshed.node.crashpoints import crashpoint
from trainshed.services.storage.lifecycle import LifecycleSweeper
from trainshed.store.buckets import BucketStore, bucket_exists
from trainshed.store.database import retry_on_conflict

_LOCATION = re.compile(r"[A-Za-z0-9-]{1,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketChange:
    """A patch of a bucket. None leaves a field unchanged; a label with the value None is removed."""

    labels: Mapping[str, str | None] | None = None
    storage_class: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  #: None takes one out; see `domain.storage.settings`
    replace: bool = False  #: the given labels replace all others


class Buckets:
    """Buckets and their projects. Names are unique across all projects. Thread-safe."""

    def __init__(
        self,
        store: BucketStore,
        backend: BucketBackend,
        *,
        uploads: PartSessions | None = None,
        clock: Callable[[], int] = now_us,
    ) -> None:
        """`uploads` are those in parts, which lifecycle rules end."""
        self._store = store
        self._backend = backend
        self._clock = clock
        self._lock = threading.Lock()
        self._sweeper = LifecycleSweeper(store, backend, uploads=uploads, clock=clock)

    def begin(self) -> None:
        """Apply lifecycle rules from now on."""
        self._sweeper.loop.start()

    def close(self) -> None:
        """Apply no further lifecycle rules. Blocks until the sweep that runs has ended."""
        self._sweeper.loop.stop()
        self._sweeper.loop.join()

    def make(
        self,
        project: str,
        name: str,
        *,
        location: str = "",
        storage_class: str = "",
        labels: object = None,
        given: Mapping[str, Any] | None = None,
    ) -> Bucket:
        """Create an empty bucket. Raises `AlreadyExistsError` if any project has that name.

        `given` has settings. Raises `ConflictError` if its folder holds objects, whose bucket has no row.
        """
        checked_labels = names.labels(labels if labels is not None else {}, field="labels")
        with self._lock:
            if self._exists(bucket_name(name)):
                raise bucket_exists(name)
            return self._new(
                Bucket(
                    name=name,
                    project=project,
                    location=_location(location or "US"),
                    storage_class=_storage_class(storage_class or "STANDARD"),
                    labels=checked_labels,
                    settings=self._settings(name, {}, given or {}),
                    created_us=0,
                    updated_us=0,
                )
            )

    def _new(self, bucket: Bucket) -> Bucket:
        now = self._clock()
        self._backend.make_bucket(bucket_name(bucket.name))
        crashpoint("bucket.create.folder_made")
        added = self._store.add(replace(bucket, created_us=now, updated_us=now))
        crashpoint("bucket.create.recorded")
        return added

    def _settings(self, name: str, old: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
        if (url := self._backend.cloud_of(name)) and any(changes.get(each) for each in settings.RULES):
            raise InvalidArgumentError(
                f"gs://{name} is kept in {url}, where others may write too. Set versioning and retention there.",
                field=next(each for each in settings.RULES if changes.get(each)),
            )
        return settings.merged(old, changes, self._clock())

    def adopt(self, project: str, name: str, *, url: str) -> Bucket:
        """Register a bucket that the operator configured in a cloud. Idempotent.

        Raises `CannotProceedError` if the name belongs to another project.
        """
        with self._lock:
            try:
                bucket = self._store.get(name)
            except NotFoundError:
                location = _location(url.partition(":")[0])
                new = Bucket(
                    name=bucket_name(name),
                    project=project,
                    location=location,
                    storage_class=settings.STORAGE_CLASSES[0],
                    created_us=0,
                    updated_us=0,
                )
                return self._new(new)
        if bucket.project != project:
            raise CannotProceedError(
                f"[buckets.{name}] in config.toml is for project {project}, but gs://{name} is a bucket of project "
                f"{bucket.project}. Name that project there, or choose another name for the bucket."
            )
        return bucket

    def get(self, name: str, conditions: Preconditions | None = None) -> Bucket:
        bucket = self._store.get(name)
        if conditions is not None:
            _check(bucket, conditions)
            if conditions.metageneration_not == bucket.metageneration:
                raise NotModified("The bucket is the one that the request says it has already.")
        return bucket

    def owner(self, name: str) -> str:
        """Return the project of a bucket. Raises `NotFoundError` if there is no such bucket."""
        return self._store.get(name).project

    def list(
        self, project: str, *, prefix: str = "", after: str = "", limit: int = MAX_PAGE
    ) -> tuple[list[Bucket], str]:
        """Return a page of a project's buckets by name, and `after` for the next page; "" at the end."""
        limit = max(1, min(limit, MAX_PAGE))
        buckets = list(self._store.page(project, prefix=prefix, after=after, limit=limit + 1))
        return buckets[:limit], buckets[limit - 1].name if len(buckets) > limit else ""

    def names(self, project: str) -> Iterator[str]:
        """Yield the names of all buckets of a project."""
        after = ""
        while True:
            page, after = self.list(project, after=after)
            yield from (bucket.name for bucket in page)
            if not after:
                return

    def patch(self, name: str, change: BucketChange, conditions: Preconditions) -> Bucket:
        """Change labels or storage class. Without a change the generation stays the same."""
        return retry_on_conflict(lambda: self._patch_once(name, change, conditions))

    def _patch_once(self, name: str, change: BucketChange, conditions: Preconditions) -> Bucket:
        bucket = self._store.get(name)
        _check(bucket, conditions)
        if conditions.metageneration_not == bucket.metageneration:
            raise ConditionNotMetError(f"The bucket's metageneration is {bucket.metageneration}.")
        changed = bucket
        if change.labels is not None:
            base = {} if change.replace else dict(bucket.labels)
            merged = {key: value for key, value in (base | dict(change.labels)).items() if value is not None}
            changed = replace(changed, labels=names.labels(merged, field="labels"))
        if change.storage_class is not None:
            changed = replace(changed, storage_class=_storage_class(change.storage_class))
        if change.settings:
            changed = replace(changed, settings=self._settings(name, bucket.settings, change.settings))
        if changed == bucket:
            return bucket
        recorded = self._store.record(replace(changed, updated_us=self._clock()))
        if changed.settings.get("lifecycle") != bucket.settings.get("lifecycle"):
            self._sweeper.loop.wake()
        return recorded

    def rules(self, name: str) -> BucketRules:
        """Return the rules for objects of a bucket. One that is not there has none."""
        return self._store.rules(name)

    def cors(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Return the CORS rules of a bucket. One that is not there has none."""
        try:
            rules: Sequence[Mapping[str, Any]] = self._store.get(name).settings.get("cors", ())
        except NotFoundError:
            return ()
        return rules

    def are_guarded(self, name: str) -> bool:
        """Return whether the objects of a bucket have versions, holds or a retention. Jobs get it as no folder."""
        return self._store.rules(name).are_guarded

    def lock_retention(self, name: str, conditions: Preconditions) -> Bucket:
        """Lock the retention policy of a bucket, for ever. Raises `InvalidArgumentError` without a metageneration."""
        if conditions.metageneration is None:
            raise InvalidArgumentError("To lock a retention policy takes ifMetagenerationMatch.")
        bucket = self._store.get(name)
        _check(bucket, conditions)
        return self._store.record(replace(bucket, settings=settings.locked(bucket.settings), updated_us=self._clock()))

    def note_hold(self, name: str) -> None:
        """Note that an object of a bucket gets a hold, so that jobs get the bucket no more as a folder. Idempotent.

        Raises `InvalidArgumentError` if the bucket is in a cloud.
        """
        if url := self._backend.cloud_of(name):
            raise InvalidArgumentError(
                f"gs://{name} is kept in {url}, where others may write too. Set holds there.", field="temporaryHold"
            )
        retry_on_conflict(lambda: self._note_hold_once(name))

    def _note_hold_once(self, name: str) -> None:
        bucket = self._store.get(name)
        if not bucket.settings.get(settings.HOLDS):
            self._store.record(replace(bucket, settings={**bucket.settings, settings.HOLDS: True}))
            crashpoint("object.hold.noted")

    def delete(self, name: str, conditions: Preconditions, budget: WorkBudget | None = None) -> None:
        """Delete an empty bucket. Raises `ConflictError` if it holds objects.

        Raises what `WorkBudget.check` raises; then the bucket is still there, with fewer empty folders.
        """
        _check(self._store.get(name), conditions)
        self._backend.clear_bucket(name, budget)  # the slow part, which nobody waits for
        with self._lock:
            _check(self._store.get(name), conditions)
            self._backend.remove_bucket(name, forget=lambda: self._store.delete(name), budget=budget)

    def _exists(self, name: str) -> bool:
        try:
            self._store.get(name)
        except NotFoundError:
            return False
        return True


def _location(text: str) -> str:
    if not _LOCATION.fullmatch(text):
        raise InvalidArgumentError(
            "A bucket's location is 1 to 40 letters, digits and hyphens, such as US.", field="location"
        )
    return text.upper()


def _storage_class(text: str) -> str:
    if text.upper() not in settings.STORAGE_CLASSES:
        raise InvalidArgumentError(
            f"A bucket's storageClass is one of {', '.join(settings.STORAGE_CLASSES)}.", field="storageClass"
        )
    return text.upper()


def _check(bucket: Bucket, conditions: Preconditions) -> None:
    if conditions.metageneration not in (None, bucket.metageneration):
        raise ConditionNotMetError(
            f"The request asks for metageneration {conditions.metageneration} of the bucket, but it has "
            f"{bucket.metageneration}."
        )
