"""The queue of each engine: its order, which admission follows and positions are counted in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from trainshed.control.jobs.usage_ledger import UsageLedger
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.queue_order import QueuedJob, QueuePolicy, queue_order
from trainshed.domain.jobs.states import JobState
from trainshed.domain.times import now_us
from trainshed.store.jobs import JobStore
from trainshed.store.queue_index import JobKey

ORDER_TTL_S = 1.0  #: after which it is computed again though no job came or went: usage changes with time
MAX_EXACT = 500  #: queued jobs; the order of more is computed at most every `SECONDS_PER_JOB` of each
SECONDS_PER_JOB = 1e-4  #: about 20 times what a queued job adds to the computation


@dataclass(frozen=True, slots=True)
class QueueOrderSnapshot:
    """The order of one engine's queue, as it was computed."""

    version: int
    time_us: int
    jobs: tuple[QueuedJob, ...]
    positions: Mapping[JobKey, int]  #: 1 for the head


class JobQueue:
    """The queues of all engines. Thread-safe. Reads no row of a job."""

    def __init__(
        self,
        jobs: JobStore,
        policy: QueuePolicy,
        ledger: UsageLedger,
        *,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self.policy = policy
        self.ledger = ledger
        self._jobs = jobs
        self._clock = clock
        self._lock = threading.Lock()
        self._orders: dict[str, QueueOrderSnapshot] = {}  # by engine

    def order(self, engine: str) -> tuple[QueuedJob, ...]:
        """The queued jobs of an engine in the order in which they are offered capacity.

        With many jobs it may be a moment old: then some have left, and the newest are not in it.
        """
        return self._snapshot(engine).jobs

    def positions(self, jobs: Iterable[Job]) -> Mapping[JobKey, int]:
        """Positions, 1 for the head, of the queued ones among these jobs, by project and id."""
        queued = [job for job in jobs if job.state is JobState.QUEUED]
        snapshots = {engine: self._snapshot(engine) for engine in {job.engine for job in queued}}
        positions = {}
        for job in queued:
            snapshot, key = snapshots[job.engine], (job.project, job.id)
            # One that is too new for the order goes behind all of its priority until it is computed again.
            positions[key] = snapshot.positions.get(key) or 1 + sum(
                each.priority >= job.priority for each in snapshot.jobs
            )
        return positions

    def next_of(self, project: str, engines: Iterable[str], *, limit: int) -> list[tuple[str, int]]:
        """Ids and positions of the next queued jobs of a project on these engines."""
        found = [
            (snapshot.positions[job.key], job.id)
            for engine in engines
            for snapshot in (self._snapshot(engine),)
            for job in snapshot.jobs
            if job.project == project
        ]
        return [(job_id, position) for position, job_id in sorted(found)[:limit]]

    def _snapshot(self, engine: str) -> QueueOrderSnapshot:
        with self._lock:
            cached, now = self._orders.get(engine), self._clock()
            if cached is not None and not self._is_stale(engine, cached, now):
                return cached
            queued = self._jobs.queued(engine)
            order = queue_order(queued.jobs, self.ledger.usage(), self.policy, now_us=now)
            positions = {job.key: position for position, job in enumerate(order, start=1)}
            self._orders[engine] = QueueOrderSnapshot(queued.version, now, order, positions)
            return self._orders[engine]

    def _is_stale(self, engine: str, cached: QueueOrderSnapshot, now_us: int) -> bool:
        age_s = (now_us - cached.time_us) / 1e6
        if age_s < 0 or age_s >= max(ORDER_TTL_S, len(cached.jobs) * SECONDS_PER_JOB):
            return bool(cached.jobs) or self._jobs.queue_version(engine) != cached.version
        if self._jobs.queue_version(engine) == cached.version:
            return False
        return len(cached.jobs) <= MAX_EXACT or age_s >= len(cached.jobs) * SECONDS_PER_JOB
