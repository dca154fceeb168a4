"""The limits of running replicas, as one pass over the queue follows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from trainshed.domain.access.quotas import AppliedLimit, QuotaName, running_reason
from trainshed.domain.jobs.queue_order import ProjectUser

Limits = Callable[[str, str], Sequence[AppliedLimit]]  #: those of a project and of a user of it


class RunningLimits:
    """What may start while jobs run. Only `add` changes it."""

    def __init__(
        self, limits: Limits, in_use: Mapping[ProjectUser, int], stored: Callable[[str], int] = lambda project: 0
    ) -> None:
        """`in_use` has the replicas that run or start, by project and user. `stored` has bytes in buckets."""
        self._limits = limits
        self._stored = stored
        self._users = Counter(in_use)
        self._projects: Counter[str] = Counter()
        for (project, _), replicas in in_use.items():
            self._projects[project] += replicas

    def add(self, project: str, user: str, replicas: int) -> None:
        """Count a gang that was admitted."""
        self._users[project, user] += replicas
        self._projects[project] += replicas

    def reason(self, project: str, user: str, replicas: int) -> str:
        """Return why a gang has to wait. Returns "" if no limit keeps it."""
        for limit in self._limits(project, user):
            used = self._users[project, user] if limit.user else self._projects[project]
            if limit.name is QuotaName.RUNNING_REPLICAS and used + replicas > limit.value:
                return running_reason(limit, used)
            if limit.name is QuotaName.BUCKET_BYTES and (stored := self._stored(project)) > limit.value:
                return running_reason(limit, stored)
        return ""
