"""The order of queued jobs, in memory: the position of a job is found without a look at the jobs ahead of it."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import JobState
from trainshed.store.database import Database, load_queries

QueueKey = tuple[int, int, str, str]  #: sorts as the query `queued_jobs` does

_QUEUED_KEYS = load_queries("jobs")["queued_keys"]


class QueueOrder:
    """The queued jobs of each engine, by priority, then age. Thread-safe.

    One server owns the database, and every write of a job goes through `change`. The rows are read at the first use,
    after a write whose outcome is unknown, and after another server may have written.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._state = threading.Condition()  # guards all below
        self._keys: dict[str, list[QueueKey]] = {}  # sorted, by engine
        self._loaded_under: int | None = None  # the number of the fence; None while the keys are not to be trusted
        self._loading = False  # new writes wait
        self._writes = 0  # transactions in progress

    @contextmanager
    def change(self) -> Iterator[Callable[[Job], None]]:
        """Surround a transaction that writes jobs. Gives the function that the transaction calls last, with each job.

        The transaction still holds the lock of the row then. So changes of one job come in the order of their commits.
        """
        changed = False

        def put(job: Job) -> None:
            nonlocal changed
            changed = True
            with self._state:
                self._put(job)

        with self._state:
            self._state.wait_for(lambda: not self._loading)
            self._writes += 1
        try:
            yield put
        except BaseException:
            if changed:  # a failed commit may or may not have written
                with self._state:
                    self._loaded_under = None
            raise
        finally:
            with self._state:
                self._writes -= 1
                self._state.notify_all()

    def ahead_of(self, jobs: Iterable[Job]) -> list[int]:
        """The number of queued jobs of the same engine before each of these, at one moment."""
        with self._state:
            while self._loaded_under != self._database.fence_number:
                self._load()
            return [bisect_left(self._keys.get(job.engine, ()), _key(job)) for job in jobs]

    def _put(self, job: Job) -> None:
        keys, key = self._keys.setdefault(job.engine, []), _key(job)
        index = bisect_left(keys, key)
        present = keys[index : index + 1] == [key]
        if job.state is JobState.QUEUED and not present:
            keys.insert(index, key)
        elif job.state is not JobState.QUEUED and present:
            del keys[index]

    def _load(self) -> None:
        """Read the rows while no write is in progress, or wait until another thread has done so."""
        if self._loading:
            self._state.wait_for(lambda: not self._loading)
            return
        self._loading = True
        try:
            self._state.wait_for(lambda: self._writes == 0)
            number = self._database.fence_number
            keys: defaultdict[str, list[QueueKey]] = defaultdict(list)
            with self._database.read() as tx:
                for row in tx.rows(_QUEUED_KEYS):
                    keys[row["engine"]].append((-row["priority"], row["order_us"], row["id"], row["project"]))
            self._keys = {engine: sorted(each) for engine, each in keys.items()}
            self._loaded_under = number
        finally:
            self._loading = False
            self._state.notify_all()


def _key(job: Job) -> QueueKey:
    return (-job.priority, job.order_us or job.created_us, job.id, job.project)
