"""Rows of quotas, and how much of each is in use."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import orjson

from trainshed.domain.access.quotas import PROJECTS_ONLY, AppliedLimit, Quota, QuotaName, applied
from trainshed.domain.models.version import hosts_of
from trainshed.store.database import Database, Transaction, load_queries

QUERY = load_queries("quotas")
_DAY_US = 86_400_000_000
_COUNTED = {
    QuotaName.RUNNING_REPLICAS: "running_replicas",
    QuotaName.QUEUED_REPLICAS: "queued_replicas",
    QuotaName.JOBS_PER_DAY: "jobs_since",
    QuotaName.VERSIONS: "versions",
}


class QuotaStore:
    """Rows of quotas. Thread-safe.

    They are few, so they are kept in memory. They are read again after another server may have written.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._quotas: tuple[Quota, ...] = ()
        self._loaded_under: int | None = None  # the number of the fence; None while the rows are not to be trusted

    def all(self) -> tuple[Quota, ...]:
        """All limits that are set. Reads no row if nothing has changed."""
        with self._lock:
            number = self._database.fence_number
            if self._loaded_under != number:
                with self._database.read() as tx:
                    self._quotas = _load(tx)
                self._loaded_under = number
            return self._quotas

    @property
    def known(self) -> tuple[Quota, ...]:
        """The limits as they were last read or written. Does no I/O, for the event loop."""
        return self._quotas

    def applied(self, project: str, user: str = "") -> tuple[AppliedLimit, ...]:
        """The limits that apply to a project, and to a user of it if one is named."""
        quotas = self.all()
        return applied(quotas, project, user) if quotas else ()

    def projects(self) -> list[str]:
        """All projects that have jobs or models."""
        with self._database.read() as tx:
            return [row["project"] for row in tx.rows(QUERY["projects_with_work"])]

    def put(self, quota: Quota) -> None:
        """Set a limit, in place of the one that was set before."""
        self._write(partial(_put, quota))

    def remove(self, *, project: str, user: str, name: QuotaName) -> bool:
        """Remove a limit. Returns whether it was set."""
        values = {"project": project, "user_name": user, "name": name.value}
        removed = 0

        def delete(tx: Transaction) -> None:
            nonlocal removed
            removed = tx.run(QUERY["delete_quota"], values)

        self._write(delete)
        return removed > 0

    def _write(self, work: Callable[[Transaction], None]) -> None:
        with self._lock:
            self._loaded_under, number = None, self._database.fence_number
            with self._database.write() as tx:
                work(tx)
                quotas = _load(tx)
            self._quotas, self._loaded_under = quotas, number

    def used(self, limit: AppliedLimit, *, now_us: int) -> int:
        with self._database.read() as tx:
            return used_of(tx, limit, now_us=now_us)


def _put(quota: Quota, tx: Transaction) -> None:
    values = {"project": quota.project, "user_name": quota.user, "name": quota.name.value, "value": quota.value}
    tx.run(QUERY["put_quota"], values)


def _load(tx: Transaction) -> tuple[Quota, ...]:
    known = set(QuotaName)
    return tuple(
        Quota(project=row["project"], user=row["user_name"], name=QuotaName(row["name"]), value=row["value"])
        for row in tx.rows(QUERY["all_quotas"])
        if row["name"] in known
    )


def lock_quotas(tx: Transaction, project: str) -> None:
    """Let other transactions that count towards limits of a project wait until this one ends."""
    tx.lock(QUERY["lock_quotas"], {"project": project})


def used_of(tx: Transaction, limit: AppliedLimit, *, now_us: int) -> int:
    """What counts towards a limit now, with what the transaction has written."""
    if limit.name is QuotaName.HOSTS:
        return sum(hosts_of(orjson.loads(row["body"])) for row in tx.rows(QUERY["version_bodies"], _of(limit)))
    if limit.name not in _COUNTED:
        return 0
    values = _of(limit)
    if limit.name not in PROJECTS_ONLY:
        values["user_name"] = limit.user
    if limit.name is QuotaName.JOBS_PER_DAY:
        values["since_us"] = now_us - _DAY_US
    [row] = tx.rows(QUERY[_COUNTED[limit.name]], values)
    return int(row["used"])


def _of(limit: AppliedLimit) -> dict[str, object]:
    return {"project": limit.project}
