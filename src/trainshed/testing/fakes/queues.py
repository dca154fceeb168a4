"""Queues on a store, for tests of what asks for positions."""

from __future__ import annotations

from collections.abc import Callable

from trainshed.control.jobs.queue import JobQueue
from trainshed.control.jobs.usage_ledger import UsageLedger
from trainshed.domain.jobs.queue_order import QueuePolicy
from trainshed.domain.times import now_us
from trainshed.store.jobs import JobStore
from trainshed.store.slot_usage import SlotUsageStore


def job_queue(
    jobs: JobStore,
    policy: QueuePolicy | None = None,
    usage: SlotUsageStore | None = None,
    *,
    clock: Callable[[], int] = now_us,
) -> JobQueue:
    """Return a queue. Without `usage`, nobody has used anything."""
    policy = policy or QueuePolicy()
    return JobQueue(jobs, policy, UsageLedger(policy, usage, clock=clock), clock=clock)
