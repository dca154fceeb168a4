"""The sweep of lifecycle rules: deletes versions of objects, or changes their storage class, when their time comes.

It ends uploads in parts too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

from trainshed.background import BackgroundLoop, PassFailures
from trainshed.buckets.backend import BucketBackend
from trainshed.buckets.uploads import PartSessions
from trainshed.domain.objects import ListQuery, ObjectInfo, Preconditions
from trainshed.domain.storage.lifecycle import DELETE, LifecycleAction, action_for, ends_upload
from trainshed.domain.times import now_us
from trainshed.errors import (
    ConditionNotMetError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from trainshed.store.buckets import BucketStore

LOG = logging.getLogger("trainshed.lifecycle")

SWEEP_INTERVAL_S = 600.0


class LifecycleSweeper:
    """Applies the lifecycle rules of all buckets, again and again. Thread-safe."""

    def __init__(
        self,
        store: BucketStore,
        backend: BucketBackend,
        *,
        uploads: PartSessions | None = None,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self._store = store
        self._backend = backend
        self._uploads = uploads
        self._clock = clock
        self.loop = BackgroundLoop("lifecycle", self._step)

    def _step(self) -> float:
        failures = PassFailures(LOG, "lifecycle.failed")
        for name, lifecycle in self._store.lifecycles():
            if self.loop.stopping.is_set():
                break
            try:
                self.sweep(name, lifecycle)
                self._end_uploads(name, lifecycle)
            except Exception as exc:  # noqa: BLE001 - logged with the bucket's name; others go on
                failures.add(name, exc)
        return SWEEP_INTERVAL_S

    def sweep(self, bucket: str, lifecycle: Mapping[str, Any]) -> int:
        """Apply the rules of a bucket now. Returns how many versions were deleted or changed.

        What a hold or a retention policy protects stays. An object that is replaced meanwhile stays too.
        """
        count = 0
        for _, group in groupby(self._versions(bucket), key=lambda info: info.name):
            versions = list(group)
            for index, info in enumerate(versions):
                action = action_for(lifecycle, info, newer=len(versions) - index - 1, now_us=self._clock())
                if action is not None and self._apply(action, info):
                    count += 1
        if count:
            LOG.info("lifecycle.applied bucket=%s versions=%d", bucket, count)
        return count

    def _end_uploads(self, bucket: str, lifecycle: Mapping[str, Any]) -> None:
        """End the uploads in parts whose time has come. One that a request uses is ended by a later sweep."""
        if self._uploads is None:
            return
        for each in self._uploads.uploads(bucket):
            if not ends_upload(lifecycle, each.name, begun_us=each.begun_us, now_us=self._clock()):
                continue
            try:
                self._uploads.end(self._uploads.open(bucket, each.upload))
            except (NotFoundError, UnavailableError):
                continue
            LOG.info("lifecycle.upload_ended bucket=%s", bucket)

    def _versions(self, bucket: str) -> Iterator[ObjectInfo]:
        query = ListQuery(versions=True, checksums=False)
        while not self.loop.stopping.is_set():
            page = self._backend.list(bucket, query)
            yield from page.items
            if not page.next:
                return
            query = replace(query, after=page.next)

    def _apply(self, action: LifecycleAction, info: ObjectInfo) -> bool:
        unchanged = Preconditions(generation=info.generation, metageneration=info.metageneration)
        try:
            if action.kind == DELETE:
                generation = info.generation if info.deleted_us else None
                self._backend.delete(info.bucket, info.name, unchanged, generation=generation)
                return True

            def with_class(found: ObjectInfo) -> Any:
                unchanged.check_write(found)
                return replace(found.traits, storage_class=action.storage_class)

            self._backend.patch(info.bucket, info.name, with_class, generation=info.generation)
        except (ConditionNotMetError, NotFoundError, PermissionDeniedError):
            return False
        return True
