"""Points as rows of numbers: ordered parameters as positions in the unit interval, categories as their indices.

Parameters that are not active in a point have a neutral number, so all rows have the same columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainshed.domain.tuning.scales import from_unit
from trainshed.domain.tuning.space import ParameterKind, ParameterSpec, Point, Space, Value
from trainshed.search.arrays import BoolArray, FloatArray

_MAX_LEVELS = 4096  #: of an INTEGER; with more values it is treated as continuous, and rounded at the end
_NEUTRAL_POSITION, _NEUTRAL_CATEGORY = 0.5, -1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedColumn:
    """One parameter of the space. The same name in two branches is two columns."""

    parameter: ParameterSpec
    levels: FloatArray | None  #: the positions of its values, increasing; None if it is continuous
    parent: int | None = None  #: the column of its parent
    parent_numbers: FloatArray | None = None  #: of the parent, where this parameter is active

    @property
    def categorical(self) -> bool:
        return not self.parameter.ordered

    @property
    def neutral(self) -> float:
        return _NEUTRAL_CATEGORY if self.categorical else _NEUTRAL_POSITION

    @property
    def step(self) -> float:
        """The mean distance of neighbouring levels. 0 if it is continuous."""
        return 0.0 if self.levels is None else 1 / max(1, len(self.levels) - 1)

    def encode(self, value: Value) -> float:
        if self.categorical:
            return float(self.parameter.values.index(value))
        return self.parameter.position(value)

    def decode(self, number: float) -> Value:
        parameter = self.parameter
        if self.categorical:
            return parameter.values[round(number)]
        if parameter.kind is ParameterKind.DISCRETE:
            return parameter.values[self._level(number)]
        if self.levels is not None:
            return parameter.value_at(self._level(number))
        value = from_unit(number, parameter.minimum, parameter.maximum, parameter.scale)
        return value if parameter.kind is ParameterKind.DOUBLE else round(value)

    def _level(self, number: float) -> int:
        assert self.levels is not None
        return int(np.abs(self.levels - number).argmin())

    def draw(self, units: FloatArray) -> FloatArray:
        """Numbers of this column for uniform ones in [0, 1)."""
        if self.categorical or self.parameter.kind is ParameterKind.DISCRETE:
            assert self.levels is not None
            drawn: FloatArray = self.levels[(units * len(self.levels)).astype(int)]
            return drawn
        return self.snap(units)

    def snap(self, numbers: FloatArray) -> FloatArray:
        """The nearest numbers that are possible."""
        if self.levels is None:
            return numbers.clip(0, 1)
        right = np.searchsorted(self.levels, numbers).clip(0, len(self.levels) - 1)
        left = (right - 1).clip(0)
        nearer = np.abs(self.levels[left] - numbers) <= np.abs(self.levels[right] - numbers)
        return self.levels[np.where(nearer, left, right)]


class Encoding:
    """The columns of a space, parents before children."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self.columns: list[EncodedColumn] = []
        self._roots = [self._add(parameter, None, None) for parameter in space.parameters]
        self.categorical: BoolArray = np.array([column.categorical for column in self.columns])

    def __len__(self) -> int:
        return len(self.columns)

    def _add(self, parameter: ParameterSpec, parent: int | None, parent_numbers: FloatArray | None) -> int:
        number = len(self.columns)
        column = EncodedColumn(
            parameter=parameter, levels=_levels(parameter), parent=parent, parent_numbers=parent_numbers
        )
        self.columns.append(column)
        for child in parameter.children:
            numbers = np.array([column.encode(value) for value in child.parent_values])
            self._add(child.parameter, number, numbers)
        return number

    def encode(self, points: list[Point]) -> FloatArray:
        rows = np.empty((len(points), len(self)))
        for row, point in zip(rows, points, strict=True):
            for index, column in enumerate(self.columns):
                active = column.parent is None or self._active(column, row[None, :])[0]
                row[index] = column.encode(point[column.parameter.name]) if active else column.neutral
        return rows

    def decode(self, row: FloatArray) -> Point:
        return {
            column.parameter.name: column.decode(float(row[index]))
            for index, column in enumerate(self.columns)
            if self._active(column, row[None, :])[0]
        }

    def draw(self, units: FloatArray) -> FloatArray:
        """Rows for uniform numbers in [0, 1)."""
        drawn = [column.draw(units[:, index]) for index, column in enumerate(self.columns)]
        return self._neutralize(np.stack(drawn, axis=1))

    def snap(self, rows: FloatArray) -> FloatArray:
        """The nearest rows that are points."""
        snapped = [column.snap(rows[:, index]) for index, column in enumerate(self.columns)]
        return self._neutralize(np.stack(snapped, axis=1))

    def _neutralize(self, rows: FloatArray) -> FloatArray:
        for index, column in enumerate(self.columns):
            if column.parent is not None:
                rows[~self._active(column, rows), index] = column.neutral
        return rows

    def _active(self, column: EncodedColumn, rows: FloatArray) -> BoolArray:
        """The rows in which a column is active. Those of its parent are decided before."""
        if column.parent is None or column.parent_numbers is None:
            return np.ones(len(rows), dtype=bool)
        parent = self.columns[column.parent]
        numbers = rows[:, column.parent, None]
        matches: BoolArray = np.abs(numbers - column.parent_numbers).min(axis=1) < 1e-9
        return matches & self._active(parent, rows)


def _levels(parameter: ParameterSpec) -> FloatArray | None:
    size = parameter.size
    if size is None or (size > _MAX_LEVELS and parameter.kind is ParameterKind.INTEGER):
        return None
    if not parameter.ordered:
        return np.arange(size, dtype=float)
    return np.array([parameter.position(parameter.value_at(index)) for index in range(size)])
