"""Time series of bounded size."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple


class SeriesPoint(NamedTuple):
    time_us: int
    step: int
    value: float


class TimeSeries:
    """A time series of at most `limit` points. When it is full, each pair of neighbours is merged into one point.

    A point covers the values since the previous point: their mean, or with `peak` their maximum. Once pairs are merged,
    later points cover twice as many values.
    """

    def __init__(self, *, limit: int = 1000, peak: bool = False) -> None:
        self._limit = limit
        self._peak = peak
        self._times, self._steps, self._values = array("q"), array("q"), array("d")
        self._weights = array("d")
        self._counts = array("q")  #: values per point
        self._stride = 1  #: values per complete point
        self._sum = self._weight = 0.0
        self.max: float | None = None

    @property
    def mean(self) -> float | None:
        """Weighted mean of all values that were added. Returns None if there are none."""
        return self._sum / self._weight if self._weight else None

    def add(self, time_us: int, value: float, *, step: int = 0, weight: float = 1.0) -> None:
        """Add a value. `weight` is its weight in a mean and must be positive."""
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
        """Merge a later point into the one at `index`."""
        weight_before, total = self._weights[index], self._weights[index] + weight
        if self._peak:
            self._values[index] = max(self._values[index], point.value)
        else:
            self._values[index] += (point.value - self._values[index]) * (weight / total)
        self._times[index], self._steps[index] = point.time_us, point.step
        self._weights[index] = weight_before + weight
        self._counts[index] += count

    def _halve(self) -> None:
        points = list(zip(self, self._weights, self._counts, strict=True))
        for column in (self._times, self._steps, self._counts):
            del column[:]
        del self._values[:], self._weights[:]
        self._stride *= 2
        for number, (point, weight, count) in enumerate(points):
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

    def points(self, limit: int) -> list[SeriesPoint]:
        """At most `most` points. Neighbours are merged if there are more."""
        if len(self) <= limit:
            return list(self)
        series = TimeSeries(limit=max(limit, 2), peak=self._peak)
        for point, weight in zip(self, self._weights, strict=True):
            series.add(point.time_us, point.value, step=point.step, weight=weight)
        return list(series)
