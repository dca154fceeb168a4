"""How versions do: answers counted by the minute, for the last hour."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from trainshed.domain.times import rfc3339

MINUTES = 60
_STEP = 1.08  #: each class of times reaches so much further than the one before: what is told is 8 % off at most
_EDGES_S = tuple(0.0001 * _STEP**n for n in range(180))  # 0.1 ms to 100 s

VersionName = tuple[str, str, str]  #: project, model, version


@dataclass(slots=True)
class _Minute:
    number: int  #: since 1970
    count: int = 0
    errors: int = 0
    times: list[int] = field(default_factory=lambda: [0] * (len(_EDGES_S) + 1))


class Counters:
    """Of one version. One thread adds; others may look at the same time, and see the last request or not."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._minutes: deque[_Minute] = deque(maxlen=MINUTES)
        self._current = _Minute(0)
        self.last = 0.0  #: seconds since 1970

    def add(self, seconds: float, *, ok: bool) -> None:
        self.last = now = self._clock()
        minute = self._current
        if int(now) // 60 != minute.number:
            minute = self._current = _Minute(int(now) // 60)
            self._minutes.append(minute)
        minute.count += 1
        minute.times[bisect_left(_EDGES_S, seconds)] += 1
        if not ok:
            minute.errors += 1

    def minutes(self) -> list[_Minute]:
        """Those of the last hour that had a request."""
        first = int(self._clock()) // 60 - MINUTES + 1
        return [minute for minute in tuple(self._minutes) if minute.number >= first]

    def body(self) -> dict[str, Any]:
        """The last hour as a whole and by the minute; minutes without a request are left out."""
        minutes = self.minutes()
        last = {"last_request": rfc3339(int(self.last * 1_000_000))} if self.last else {}
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
        found = self._counters.get(name)
        if found is None:
            found = self._counters[name] = Counters(self._clock)
        return found

    def retain(self, names: Collection[VersionName]) -> None:
        """Forget all others: they were deleted, and what is created under their name later is something else."""
        self._counters = {name: counters for name, counters in self._counters.items() if name in names}

    def last_used_us(self, project: str, model: str, version: str) -> int:
        found = self._counters.get((project, model, version))
        return int(found.last * 1_000_000) if found else 0

    def traffic(self, project: str, model: str) -> dict[str, Any]:
        """What the versions of a model answered in the last hour, by version. Those that nobody asked are left out."""
        found = [(name, counters) for name, counters in tuple(self._counters.items()) if name[:2] == (project, model)]
        return {name[2]: counters.body() for name, counters in sorted(found, key=lambda item: item[0])}

    def hour(self, project: str, model: str) -> dict[str, Any]:
        """What all versions of a model answered in the last hour, as one."""
        found = [counters for name, counters in tuple(self._counters.items()) if name[:2] == (project, model)]
        return _summary(minute for counters in found for minute in counters.minutes())


def _summary(minutes: Iterable[_Minute]) -> dict[str, Any]:
    chosen = list(minutes)
    times = [sum(column) for column in zip(*(minute.times for minute in chosen), strict=True)]
    return {
        "count": sum(minute.count for minute in chosen),
        "errors": sum(minute.errors for minute in chosen),
        "p50_ms": _percentile_ms(times, 0.50),
        "p99_ms": _percentile_ms(times, 0.99),
    }


def _percentile_ms(times: list[int], share: float) -> float:
    """The end of the class in which it falls; 0 if there is nothing."""
    wanted = share * sum(times)
    seen = 0
    for index, number in enumerate(times):
        seen += number
        if number and seen >= wanted:
            return round(_EDGES_S[min(index, len(_EDGES_S) - 1)] * 1000, 3)
    return 0.0
