"""Predictions a second: counts them against the limits of projects and users."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainshed.domain.access.quotas import AppliedLimit, Quota, QuotaName, applied, check_limit
from trainshed.domain.iam import Principal

MAX_REMEMBERED = 10_000  #: pairs of a project and a user
LEASES_PER_S = 20  #: that a process which answers predictions alone takes of a limit


@dataclass(slots=True)
class _Allowance:
    """Requests that a limit still lets through: as many as it has for a second, and refilled all the time."""

    limit: AppliedLimit
    level: float
    at_s: float

    def refill(self, now_s: float) -> None:
        value = self.limit.value
        self.level = min(float(value), self.level + max(0.0, now_s - self.at_s) * value)
        self.at_s = now_s


def limited_user(holder: Principal) -> str:
    """Return the user whose limits count. Limits of users are not for the tokens of jobs and versions."""
    return "" if holder.job or holder.version else holder.user


class RequestRates:
    """Event loop only, except `used`. Reads no rows, so it never waits for the database.

    A limit is of the server: where several processes answer predictions, one has this object and the others ask it.
    """

    def __init__(self, quotas: Callable[[], Sequence[Quota]], *, clock: Callable[[], float] = time.monotonic) -> None:
        """`quotas` returns all limits, the same object as long as none has changed."""
        self._quotas = quotas
        self._clock = clock
        self._known: Sequence[Quota] = ()
        self._relevant: tuple[Quota, ...] = ()
        self._applied: dict[tuple[str, str], tuple[_Allowance, ...]] = {}
        self._allowances: dict[tuple[str, str], _Allowance] = {}

    def take(self, project: str, holder: Principal) -> bool:
        """Count a request, unless it is beyond a limit. Returns whether it was counted."""
        if not self._refresh():
            return True
        allowances = self._of(project, holder)
        if any(each.level < 1 for each in allowances):
            return False
        for each in allowances:
            each.level -= 1
        return True

    def check(self, project: str, holder: Principal) -> None:
        """Count a request. Raises `QuotaExceededError` if it is beyond a limit."""
        if self.take(project, holder):
            return
        for each in self._of(project, holder):
            if each.level < 1:
                check_limit(each.limit, each.limit.value, 1)

    def is_unlimited(self, project: str, holder: Principal) -> bool:
        """Return whether no limit applies."""
        return not self._refresh() or not self._of(project, holder)

    def lease(self, project: str, holder: Principal, *, parts: int) -> int | None:
        """Count requests in advance, for one of `parts` processes. Returns how many, or None if there is no limit."""
        if self.is_unlimited(project, holder):
            return None
        allowances = self._of(project, holder)
        share = max(1, min(each.limit.value for each in allowances) // (LEASES_PER_S * parts))
        number = max(0, min(share, *(int(each.level) for each in allowances)))
        for each in allowances:
            each.level -= number
        return number

    def give_back(self, project: str, holder: Principal, number: int) -> None:
        """Count requests no longer, which were leased and did not come."""
        if self._refresh():
            for each in self._of(project, holder):
                each.level = min(float(each.limit.value), each.level + number)

    def used(self, limit: AppliedLimit) -> int:
        """Return how many of the requests of a second are in use. Thread-safe."""
        found = self._allowances.get((limit.project, limit.user))
        if found is None:
            return 0
        refilled = found.level + max(0.0, self._clock() - found.at_s) * limit.value
        return max(0, round(limit.value - min(refilled, limit.value)))

    def _refresh(self) -> bool:
        """Follow changes of the limits. Returns whether there are any of this kind."""
        if (quotas := self._quotas()) is not self._known:
            self._known = quotas
            self._relevant = tuple(each for each in quotas if each.name is QuotaName.REQUESTS_PER_SECOND)
            self._forget()
        return bool(self._relevant)

    def _of(self, project: str, holder: Principal) -> tuple[_Allowance, ...]:
        """Return the allowances that apply, refilled."""
        user = limited_user(holder)
        if (found := self._applied.get((project, user))) is None:
            if len(self._applied) >= MAX_REMEMBERED:
                self._forget()
            found = tuple(self._allowance(limit) for limit in applied(self._relevant, project, user))
            self._applied[project, user] = found
        now_s = self._clock()
        for each in found:
            each.refill(now_s)
        return found

    def _allowance(self, limit: AppliedLimit) -> _Allowance:
        key = limit.project, limit.user
        if key not in self._allowances:
            self._allowances[key] = _Allowance(limit, float(limit.value), self._clock())
        return self._allowances[key]

    def _forget(self) -> None:
        self._applied.clear()
        self._allowances = {}
