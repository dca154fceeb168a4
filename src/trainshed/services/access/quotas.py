"""Quotas: limits of projects and users. New jobs and versions are checked in the transaction that writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from trainshed.domain import names
from trainshed.domain.access.quotas import (
    EACH,
    LEVELS,
    RETENTION,
    AppliedLimit,
    Quota,
    QuotaName,
    check_limit,
    check_quota,
)
from trainshed.domain.jobs.job import Job
from trainshed.domain.json_fields import int64
from trainshed.domain.times import now_us
from trainshed.errors import NotFoundError
from trainshed.store.access.quotas import QuotaStore, lock_quotas, used_of
from trainshed.store.database import Transaction


class Quotas:
    """The limits of all projects. Thread-safe."""

    def __init__(
        self,
        store: QuotaStore,
        *,
        clock: Callable[[], int] = now_us,
        live: Mapping[QuotaName, Callable[[AppliedLimit], int]] = MappingProxyType({}),
    ) -> None:
        """`live` counts what is in use where no rows are, by limit."""
        self._store = store
        self._clock = clock
        self._live = live
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Register a callback that runs before a change is acknowledged, on the thread that made it."""
        self._listeners.append(listener)

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()

    def listed(self, project: str) -> list[dict[str, Any]]:
        """Return the limits that apply in a project, with what is in use: of the project, then of its users.

        A limit for each user has no use of its own. Limits of users that are set for all projects are left out.
        """
        limits = list(self._store.applied(project))
        users = sorted({each.user for each in self._store.all() if each.project == project and each.user})
        for user in users:
            limits += (limit for limit in self._store.applied(project, user) if limit.user)
        return [self._body(limit) for limit in limits]

    def of_user(self, project: str, user: str) -> list[dict[str, Any]]:
        """Return the limits that apply to a user of a project, with what is in use."""
        limits = self._store.applied(project, names.user_name(user))
        return [self._body(limit) for limit in limits if limit.user]

    def all(self) -> list[dict[str, Any]]:
        """Return all limits as they were set."""
        return [quota_body(quota) for quota in self._store.all()]

    def set(self, project: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Set a limit of a project, or of each one. Replaces the one that was set before."""
        user, value = _user(body), int(int64(body.get("value"), "value"))
        name = check_quota(str(body.get("name", "")), value, user=user)
        quota = Quota(project=_project(project), user=user, name=name, value=value)
        self._store.put(quota)
        self._changed()
        return quota_body(quota)

    def unset(self, project: str, body: Mapping[str, Any]) -> None:
        """Remove a limit. Raises `NotFoundError` if it is not set."""
        user = _user(body)
        name = check_quota(str(body.get("name", "")), 1, user=user)
        if not self._store.remove(project=_project(project), user=user, name=name):
            what = f"user {user} of project {project}" if user else f"project {project}"
            raise NotFoundError(
                f"There is no limit {name} of {what}. `trainshed quotas list` shows those that are set."
            )
        self._changed()

    def check_job(self, job: Job, gang_size: int) -> Callable[[Transaction], None]:
        """Return what the transaction of a new job does after the insert: raise `QuotaExceededError` beyond a limit.

        A tuning job is a job of the day; its trials wait for their turn as jobs do.
        """
        limits = self._store.applied(job.project, job.user)

        def check(tx: Transaction) -> None:
            if limits:
                lock_quotas(tx, job.project)
            for limit in limits:
                if limit.name is QuotaName.HIGHEST_PRIORITY:
                    check_limit(limit, 0, job.priority)
                elif limit.name is QuotaName.RUNNING_REPLICAS:  # beyond it, a job waits; one that never fits is refused
                    check_limit(limit, 0, gang_size)
                elif limit.name in _OF_JOBS:
                    wanted = 1 if limit.name is QuotaName.JOBS_PER_DAY else job.replicas
                    check_limit(limit, used_of(tx, limit, now_us=job.created_us) - wanted, wanted)

        return check

    def check_version(self, project: str, hosts: int) -> Callable[[Transaction], None]:
        """Return what the transaction of a new version does after the insert. It can have so many hosts."""
        return self._check_versions(project, {QuotaName.VERSIONS: 1, QuotaName.HOSTS: hosts})

    def check_hosts(self, project: str, more: int) -> Callable[[Transaction], None]:
        """Return what the transaction does after the change of a version, which can have so many hosts `more` then."""
        return self._check_versions(project, {QuotaName.HOSTS: more} if more > 0 else {})

    def _check_versions(self, project: str, wanted: Mapping[QuotaName, int]) -> Callable[[Transaction], None]:
        limits = [limit for limit in self._store.applied(project) if limit.name in wanted]

        def check(tx: Transaction) -> None:
            if limits:
                lock_quotas(tx, project)
            for limit in limits:
                more = wanted[limit.name]
                check_limit(limit, used_of(tx, limit, now_us=self._clock()) - more, more)

        return check

    def _body(self, limit: AppliedLimit) -> dict[str, Any]:
        counts = limit.user != EACH and limit.name not in LEVELS | RETENTION
        return {
            "name": limit.name.value,
            "project": limit.project,
            "user": limit.user,
            "value": limit.value,
            "used": self._used(limit) if counts else None,
            "default": limit.default,
        }

    def _used(self, limit: AppliedLimit) -> int:
        if (count := self._live.get(limit.name)) is not None:
            return count(limit)
        return self._store.used(limit, now_us=self._clock())


_OF_JOBS = (QuotaName.QUEUED_REPLICAS, QuotaName.JOBS_PER_DAY)


def quota_body(quota: Quota) -> dict[str, Any]:
    """Return a limit as it was set."""
    return {"name": quota.name.value, "project": quota.project, "user": quota.user, "value": quota.value}


def _project(project: str) -> str:
    return project if project == EACH else names.project_id(project)


def _user(body: Mapping[str, Any]) -> str:
    user = str(body.get("user") or "")
    return user if user in ("", EACH) else names.user_name(user)
