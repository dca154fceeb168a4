"""Request metrics of versions: counts, errors and latencies per minute for the last hour, and since the start."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from trainshed.domain.times import rfc3339

RETENTION_MINUTES = 60
_EDGE_RATIO = 1.08  #: ratio of two bucket edges: a reported latency is at most 8 % off
_EDGES_S = tuple(0.0001 * _EDGE_RATIO**n for n in range(180))  # 0.1 ms to 100 s

_EDGES_PER_BUCKET = 9  #: so that the upper edges of LATENCY_EDGES_S double
LATENCY_EDGES_S = tuple(float(f"{edge_s:.6g}") for edge_s in _EDGES_S[::_EDGES_PER_BUCKET])  #: of `Totals.latencies`

VersionName = tuple[str, str, str]  #: project, model, version


@dataclass(slots=True)
class _Minute:
    number: int  #: minutes since 1970
    count: int = 0
    errors: int = 0
    times: list[int] = field(default_factory=lambda: [0] * (len(_EDGES_S) + 1))


@dataclass(slots=True)
class Totals:
    """All requests of a version since the server started."""

    count: int = 0
    errors: int = 0
    seconds: float = 0.0
    times: list[int] = field(default_factory=lambda: [0] * (len(_EDGES_S) + 1))

    def latencies(self) -> list[int]:
        """Return the number of requests in each bucket that ends at an edge of LATENCY_EDGES_S, and above the last."""
        step = _EDGES_PER_BUCKET
        inner = [sum(self.times[max(0, at - step + 1) : at + 1]) for at in range(0, len(_EDGES_S), step)]
        return [*inner, sum(self.times) - sum(inner)]

    def percentile_ms(self, share: float) -> float:
        """Return the upper edge of the latency bucket of the percentile. Returns 0 if there is no request."""
        return _percentile_ms(self.times, share)

    def add(self, seconds: float, *, ok: bool) -> None:
        self.count += 1
        self.errors += not ok
        self.seconds += seconds
        self.times[bisect_left(_EDGES_S, seconds)] += 1

    def copy(self) -> Totals:
        return Totals.sum([self])

    def since(self, earlier: Totals) -> Totals:
        """Return what was added since an earlier copy. If that has more, the count has begun anew since."""
        if earlier.count > self.count:
            return self.copy()
        return Totals(
            count=self.count - earlier.count,
            errors=self.errors - earlier.errors,
            seconds=self.seconds - earlier.seconds,
            times=[now - then for now, then in zip(self.times, earlier.times, strict=True)],
        )

    @classmethod
    def sum(cls, all_: Iterable[Totals]) -> Totals:
        result = cls()
        for each in all_:
            result.count += each.count
            result.errors += each.errors
            result.seconds += each.seconds
            result.times = [one + other for one, other in zip(result.times, each.times, strict=True)]
        return result


class Counters:
    """Counters of one version. One thread adds; readers on other threads may miss the latest request."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._minutes: deque[_Minute] = deque(maxlen=RETENTION_MINUTES)
        self._current = _Minute(0)
        self.totals = Totals()
        self.last = 0.0  #: time of the last request, in seconds since 1970

    def add(self, seconds: float, *, ok: bool) -> None:
        self.last = now = self._clock()
        minute = self._current
        if int(now) // 60 != minute.number:
            minute = self._current = _Minute(int(now) // 60)
            self._minutes.append(minute)
        totals, bucket = self.totals, bisect_left(_EDGES_S, seconds)
        minute.count += 1
        minute.times[bucket] += 1
        totals.count += 1
        totals.times[bucket] += 1
        totals.seconds += seconds
        if not ok:
            minute.errors += 1
            totals.errors += 1

    def merge(self, totals: Totals, last: float) -> None:
        """Add requests that another process counted in the second before `last`."""
        self.last = max(self.last, last)
        minute = self._current
        if (number := int(last) // 60) > minute.number:
            minute = self._current = _Minute(number)
            self._minutes.append(minute)
        minute.count += totals.count
        minute.errors += totals.errors
        minute.times = [one + other for one, other in zip(minute.times, totals.times, strict=True)]
        self.totals = Totals.sum((self.totals, totals))  # replaced: readers on other threads see all of it or nothing

    def minutes(self) -> list[_Minute]:
        """Return the minutes of the last hour that had a request."""
        first = int(self._clock()) // 60 - RETENTION_MINUTES + 1
        return [minute for minute in tuple(self._minutes) if minute.number >= first]

    def body(self) -> dict[str, Any]:
        """Return the last hour as a whole and by minute. Minutes without a request are left out."""
        minutes = self.minutes()
        last = {"lastRequestTime": rfc3339(int(self.last * 1_000_000))} if self.last else {}
        return {
            **_summary(minutes),
            **last,
            "minutes": [{"time": rfc3339(each.number * 60_000_000, digits=0), **_summary([each])} for each in minutes],
        }


class VersionMetrics:
    """The counters of all versions since this server started."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._counters: dict[VersionName, Counters] = {}

    def of(self, name: VersionName) -> Counters:
        counters = self._counters.get(name)
        if counters is None:
            counters = self._counters[name] = Counters(self._clock)
        return counters

    def retain(self, names: Collection[VersionName]) -> None:
        """Drop the counters of all other versions: a later version of the same name starts at zero."""
        self._counters = {name: counters for name, counters in self._counters.items() if name in names}

    def last_used_us(self, project: str, model: str, version: str) -> int:
        counters = self._counters.get((project, model, version))
        return int(counters.last * 1_000_000) if counters else 0

    def take(self) -> dict[VersionName, tuple[Totals, float]]:
        """Return the totals and the time of the last request of each version, and start at zero."""
        counters, self._counters = self._counters, {}
        return {name: (each.totals, each.last) for name, each in counters.items()}

    def totals(self) -> dict[VersionName, Totals]:
        """Return the totals of all versions that had a request."""
        return {name: counters.totals for name, counters in tuple(self._counters.items())}

    def totals_of(self, name: VersionName) -> Totals:
        """Return a copy of the totals of one version."""
        counters = self._counters.get(name)
        return counters.totals.copy() if counters is not None else Totals()

    def traffic(self, project: str, model: str) -> dict[str, Any]:
        """Return the last hour of each version of a model. Versions without requests are left out."""
        versions = [
            (name, counters) for name, counters in tuple(self._counters.items()) if name[:2] == (project, model)
        ]
        return {name[2]: counters.body() for name, counters in sorted(versions, key=lambda item: item[0])}

    def hour(self, project: str, model: str) -> dict[str, Any]:
        """Return the last hour of all versions of a model together."""
        versions = [counters for name, counters in tuple(self._counters.items()) if name[:2] == (project, model)]
        return _summary(minute for counters in versions for minute in counters.minutes())


def _summary(minutes: Iterable[_Minute]) -> dict[str, Any]:
    selected = list(minutes)
    times = [sum(column) for column in zip(*(minute.times for minute in selected), strict=True)]
    return {
        "count": sum(minute.count for minute in selected),
        "errors": sum(minute.errors for minute in selected),
        "p50Ms": _percentile_ms(times, 0.50),
        "p99Ms": _percentile_ms(times, 0.99),
    }


def _percentile_ms(times: list[int], share: float) -> float:
    """Return the upper edge of the latency bucket of the percentile. Returns 0 if there is no request."""
    rank = share * sum(times)
    total = 0
    for index, number in enumerate(times):
        total += number
        if number and total >= rank:
            return round(_EDGES_S[min(index, len(_EDGES_S) - 1)] * 1000, 3)
    return 0.0
