"""Bytes in buckets: counts them against the limits of projects. Writes through the API are refused beyond a limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from trainshed.domain.access.quotas import AppliedLimit, QuotaName, check_limit
from trainshed.errors import NotFoundError

RESCAN_COST = 20  #: a project is scanned again after so many times what the last scan took
MIN_RESCAN_INTERVAL_S = 1.0


@dataclass(slots=True)
class _Count:
    """What is known of one project. The lock is held by a scan, so that there is one at a time."""

    scanned: int = 0
    written: int = 0  #: through the API since that scan began
    in_flight: int = 0  #: of writes that are not on the disk yet, so no scan has seen them
    at_s: float = float("-inf")  #: when it ended
    took_s: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def bytes(self) -> int:
        return self.scanned + self.written + self.in_flight


class BucketBytes:
    """Counts the bytes of projects that have a limit. Thread-safe.

    A count is that of the last scan and what was written through the API since. Files that programs write, and what is
    deleted, count at the next scan. Before a write is refused, the project is scanned again, if that was not just done.
    """

    def __init__(
        self,
        scan: Callable[[str], int],
        limits: Callable[[str], Sequence[AppliedLimit]],
        *,
        owner: Callable[[str], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`scan` returns the bytes in all buckets of a project that are folders here.

        `owner` returns the project of such a bucket, or "" for one in a cloud. It raises `NotFoundError` if there is
        no such bucket.
        """
        self._scan = scan
        self._limits = limits
        self._owner = owner
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: dict[str, _Count] = {}

    def limit(self, project: str) -> AppliedLimit | None:
        """Return the limit of a project, if it has one."""
        return next((each for each in self._limits(project) if each.name is QuotaName.BUCKET_BYTES), None)

    def known(self, project: str) -> int:
        """Return the bytes in use as far as they are known. Scans nothing."""
        count = self._counts.get(project)
        return count.bytes if count is not None else 0

    def used(self, project: str) -> int:
        """Return the bytes in use. Scans the project if nothing is known of it."""
        count = self._count(project)
        if count.at_s == float("-inf"):
            return self.rescan(project)
        return count.bytes

    def rescan(self, project: str) -> int:
        """Scan the buckets of a project. Returns the bytes in use."""
        count = self._count(project)
        with count.lock:
            started = self._clock()
            with self._lock:
                before = count.written
            scanned = self._scan(project)
            with self._lock:  # what was written during the scan counts in both, until the next one
                count.scanned, count.written = scanned, count.written - before
                count.at_s = self._clock()
                count.took_s = count.at_s - started
                return count.bytes

    def room(self, bucket: str) -> Callable[[int], None] | None:
        """Return what raises `QuotaExceededError` if so many bytes more are too many. None if no limit applies."""
        limit = self._limit_of_bucket(bucket)
        return None if limit is None else lambda size: self._check(limit, size)

    @contextmanager
    def taken(self, bucket: str, size: int) -> Iterator[None]:
        """Count bytes that are written to a bucket in the block. They don't count if the block raises.

        Raises `QuotaExceededError` beyond the limit of the project.
        """
        limit = self._limit_of_bucket(bucket)
        if limit is None:
            yield
            return
        self._check(limit, size)
        with self._lock:
            count = self._counts[limit.project]
            check_limit(limit, count.bytes, size)  # somebody else may have had the last bytes
            count.in_flight += size
        written = 0
        try:
            yield
            written = size
        finally:
            with self._lock:
                count.in_flight -= size
                count.written += written

    def _check(self, limit: AppliedLimit, size: int) -> None:
        used = self.used(limit.project)
        if used + size > limit.value and self._is_rescan_due(limit.project):
            used = self.rescan(limit.project)
        check_limit(limit, used, size)

    def _is_rescan_due(self, project: str) -> bool:
        count = self._count(project)
        return self._clock() - count.at_s >= max(MIN_RESCAN_INTERVAL_S, RESCAN_COST * count.took_s)

    def _limit_of_bucket(self, bucket: str) -> AppliedLimit | None:
        try:
            project = self._owner(bucket)
        except NotFoundError:  # the write says so
            return None
        return self.limit(project) if project else None

    def _count(self, project: str) -> _Count:
        with self._lock:
            return self._counts.setdefault(project, _Count())
