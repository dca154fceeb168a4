"""The usage ledger: decaying slot-seconds of users of projects, in memory and written to rows from time to time."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping

from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.queue_order import (
    LOOKAHEAD_S,
    ProjectUser,
    QueuePolicy,
    SlotUsage,
    accrued,
    decayed,
)
from trainshed.domain.times import now_us
from trainshed.errors import TrainshedError
from trainshed.store.rows import ReadRows
from trainshed.store.slot_usage import SlotUsageStore, StoredUsage

LOG = logging.getLogger("trainshed.control.jobs.usage_ledger")

WRITE_INTERVAL_S = 30.0  #: between two writes; a server that is killed forgets no more
MIN_SLOT_SECONDS = 1.0  #: less than this is nothing, and its row is deleted


class UsageLedger:
    """What users of projects have in use lately. Thread-safe.

    Rows survive a restart. What ran while no server did counts for the jobs that still run.
    """

    def __init__(
        self, policy: QueuePolicy, store: SlotUsageStore | None = None, *, clock: Callable[[], int] = now_us
    ) -> None:
        """Without a store, a new ledger is empty. The rows are read at the first use."""
        self._half_life_s = policy.half_life_s
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()  # guards all below
        self._slot_seconds: dict[ProjectUser, float] = {}
        self._running: Mapping[ProjectUser, int] = {}  # slots that are in use
        self._as_of_us: int | None = None  # None until the rows are read
        self._unwritten: set[ProjectUser] = set()
        self._written_us = clock()

    def accrue(self, running: Mapping[ProjectUser, int]) -> None:
        """Count the time since the last call for the slots that were in use then. `running` are in use from now on.

        At the first call they are taken to run since the last write of an earlier server.
        """
        with self._lock:
            if self._as_of_us is None:
                self._read()
                self._running = running
            self._advance()
            self._running = dict(running)

    def admit(self, user: ProjectUser, slots: int) -> None:
        """Count slots that a job gets now as in use, until the next `accrue`."""
        with self._lock:
            self._running = Counter(self._running) + Counter({user: slots})

    def usage(self) -> SlotUsage:
        """The slot-seconds of all users, each with ten seconds in advance of each replica that runs."""
        with self._lock:
            if self._as_of_us is None:
                self._read()
            users = dict(self._slot_seconds)
            for user, slots in self._running.items():
                users[user] = users.get(user, 0.0) + slots * LOOKAHEAD_S
        return SlotUsage(users=users)

    def write_if_due(self) -> None:
        """Write what changed, if the last write is long ago. A failure is logged, and the next call tries again."""
        with self._lock:
            due = self._clock() - self._written_us >= WRITE_INTERVAL_S * 1e6
        if due:
            self.write()

    def write(self) -> None:
        """Write what changed since the last write. A failure is logged."""
        with self._lock:
            self._written_us = self._clock()
            if self._store is None or self._as_of_us is None:
                return
            nothing = [user for user, each in self._slot_seconds.items() if self._is_nothing(user, each)]
            for user in nothing:
                del self._slot_seconds[user]
            changed = {
                user: StoredUsage(self._slot_seconds[user], self._as_of_us)
                for user in self._unwritten
                if user in self._slot_seconds
            }
            written, self._unwritten = self._unwritten, set()
        if not changed and not nothing:
            return
        try:
            self._store.write(changed, nothing)
        except TrainshedError as exc:
            LOG.warning("usage.not_written reason=%s", exc)
            with self._lock:
                self._unwritten |= written

    def _is_nothing(self, user: ProjectUser, slot_seconds: float) -> bool:
        return slot_seconds < MIN_SLOT_SECONDS and user not in self._running

    def _read(self) -> None:
        """Read the rows, as they count at the time of the last write."""
        rows = self._store.all() if self._store is not None else {}
        self._as_of_us = max((row.as_of_us for row in rows.values()), default=self._clock())
        self._as_of_us = min(self._as_of_us, self._clock())
        self._slot_seconds = {
            user: self._decayed(row.slot_seconds, (self._as_of_us - row.as_of_us) / 1e6) for user, row in rows.items()
        }

    def _advance(self) -> None:
        """Bring all slot-seconds to the current time."""
        now = self._clock()
        assert self._as_of_us is not None
        elapsed_s = max(0.0, (now - self._as_of_us) / 1e6)  # the clock may have been set back
        self._as_of_us = now
        if elapsed_s == 0.0:
            return
        used = {user: self._decayed(each, elapsed_s) for user, each in self._slot_seconds.items()}
        for user, slots in self._running.items():
            used[user] = used.get(user, 0.0) + accrued(slots, elapsed_s=elapsed_s, half_life_s=self._half_life_s)
        self._slot_seconds = used
        self._unwritten |= self._running.keys()

    def _decayed(self, slot_seconds: float, elapsed_s: float) -> float:
        return decayed(slot_seconds, elapsed_s=elapsed_s, half_life_s=self._half_life_s)


def slots_in_use(active: ReadRows[Job]) -> Mapping[ProjectUser, int]:
    """The slots that active jobs have, by project and user."""
    slots: Counter[ProjectUser] = Counter()
    for job in active.values:
        slots[job.project, job.user] += job.replicas
    for row in active.unreadable:
        slots[row["project"], row["user_name"]] += row["replicas"]
    return slots
