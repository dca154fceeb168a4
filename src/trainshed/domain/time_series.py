"""A series of numbers over time that stays small however long it goes on."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple


class SeriesPoint(NamedTuple):
    time_us: int
    step: int
    value: float


class TimeSeries:
    """At most `limit` points. When there would be more, each two neighbours become one, and so do those to come.

    A point stands for the values since the one before it: their mean, or with `peak` the largest of them.
    """

    def __init__(self, *, limit: int = 1000, peak: bool = False) -> None:
        self._limit = limit
        self._peak = peak
        self._times, self._steps, self._values = array("q"), array("q"), array("d")
        self._weights = array("d")
        self._counts = array("q")  #: values in each point
        self._stride = 1  #: values in a full point
        self._sum = self._weight = 0.0
        self.max: float | None = None

    @property
    def mean(self) -> float | None:
        """Of all values ever added, by their weights; None if there are none."""
        return self._sum / self._weight if self._weight else None

    def add(self, time_us: int, value: float, *, step: int = 0, weight: float = 1.0) -> None:
        """`weight` is more than 0: how much the value counts in a mean."""
        self._sum += value * weight
        self._weight += weight
        self.max = value if self.max is None else max(self.max, value)
        if self._counts and self._counts[-1] < self._stride:
            self._merge(-1, SeriesPoint(time_us, step, value), weight, 1)
            return
        if len(self._times) == self._limit:
            self._halve()
        self._append(SeriesPoint(time_us, step, value), weight, 1)

    def _append(self, point: SeriesPoint, weight: float, count: int) -> None:
        for column, value in ((self._times, point.time_us), (self._steps, point.step), (self._counts, count)):
            column.append(value)
        self._values.append(point.value)
        self._weights.append(weight)

    def _merge(self, index: int, point: SeriesPoint, weight: float, count: int) -> None:
        """Take a later point into the one at `index`."""
        before, total = self._weights[index], self._weights[index] + weight
        if self._peak:
            self._values[index] = max(self._values[index], point.value)
        else:
            self._values[index] += (point.value - self._values[index]) * (weight / total)
        self._times[index], self._steps[index] = point.time_us, point.step
        self._weights[index] = before + weight
        self._counts[index] += count

    def _halve(self) -> None:
        old = list(zip(self, self._weights, self._counts, strict=True))
        for column in (self._times, self._steps, self._counts):
            del column[:]
        del self._values[:], self._weights[:]
        self._stride *= 2
        for number, (point, weight, count) in enumerate(old):
            if number % 2 == 0:
                self._append(point, weight, count)
            else:
                self._merge(-1, point, weight, count)

    def __len__(self) -> int:
        return len(self._times)

    def __iter__(self) -> Iterator[SeriesPoint]:
        return map(SeriesPoint, self._times, self._steps, self._values)

    @property
    def last(self) -> SeriesPoint | None:
        return SeriesPoint(self._times[-1], self._steps[-1], self._values[-1]) if self._times else None

    def points(self, most: int) -> list[SeriesPoint]:
        """All points, or as many of them as asked for, made of neighbours in the same way."""
        if len(self) <= most:
            return list(self)
        fewer = TimeSeries(limit=max(most, 2), peak=self._peak)
        for point, weight in zip(self, self._weights, strict=True):
            fewer.add(point.time_us, point.value, step=point.step, weight=weight)
        return list(fewer)
