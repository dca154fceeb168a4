"""Rows of slot usage: the slot-seconds that users of projects have in use lately."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainshed.domain.jobs.queue_order import ProjectUser
from trainshed.store.database import Database, load_queries

QUERY = load_queries("slot_usage")


@dataclass(frozen=True, slots=True)
class StoredUsage:
    """Slot-seconds, as they counted at a time."""

    slot_seconds: float
    as_of_us: int


class SlotUsageStore:
    """Rows of slot usage. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> Mapping[ProjectUser, StoredUsage]:
        with self._database.read() as tx:
            rows = tx.rows(QUERY["all_usage"])
        return {(row["project"], row["user_name"]): StoredUsage(row["slot_seconds"], row["as_of_us"]) for row in rows}

    def write(self, changed: Mapping[ProjectUser, StoredUsage], removed: Iterable[ProjectUser]) -> None:
        """Write changed rows and delete others, in one transaction."""
        with self._database.write() as tx:
            tx.run_many(
                QUERY["put_usage"],
                [
                    {"project": project, "user_name": user, "slot_seconds": row.slot_seconds, "as_of_us": row.as_of_us}
                    for (project, user), row in changed.items()
                ],
            )
            tx.run_many(QUERY["delete_usage"], [{"project": project, "user_name": user} for project, user in removed])
