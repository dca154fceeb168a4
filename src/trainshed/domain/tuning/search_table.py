"""A search as a table to draw: a column for each parameter, a row for each trial, and its learning curve.

Jobs and studies give the same table, so that one page can draw both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from trainshed.domain.times import rfc3339
from trainshed.domain.tuning.search import front
from trainshed.domain.tuning.space import ParameterKind, ParameterSpec, Point, Space, Value

MAX_CURVE_POINTS = 20_000  #: of all curves together, whatever is asked for
MAX_POINTS_OF_CURVE = 200


class CurveValue(NamedTuple):
    """A value of the first metric on the way."""

    step: int
    seconds: float  #: since the start of the trial
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """A trial as it is drawn."""

    number: int
    job: str  #: the tuning job that ran it; empty in a study
    state: str
    point: Point
    values: Sequence[float | None]  #: final ones, in the order of the metrics
    last_values: Sequence[float | None]  #: the last ones so far
    started_us: int | None
    ended_us: int | None
    stopped_early: bool
    reason: str  #: why it was stopped, failed or is infeasible
    client: str  #: of a study
    curve: Sequence[CurveValue]

    def body(self, columns: Sequence[ParameterSpec]) -> dict[str, Any]:
        """The row as JSON. A parameter that the trial does not have, or has in another kind, is null."""
        return {
            "trial": self.number,
            "job": self.job,
            "state": self.state,
            "values": [_shown(column, self.point.get(column.name)) for column in columns],
            "metrics": list(self.values),
            "lastMetrics": list(self.last_values),
            "startTime": rfc3339(self.started_us) if self.started_us else None,
            "endTime": rfc3339(self.ended_us) if self.ended_us else None,
            "stoppedEarly": self.stopped_early,
            "reason": self.reason,
            "client": self.client,
        }


def columns_of(space: Space) -> list[ParameterSpec]:
    """The parameters of a space by name. Children of one name, for different values of their parent, are the first."""
    named: dict[str, ParameterSpec] = {}
    for parameter in space.all_parameters():
        named.setdefault(parameter.name, parameter)
    return list(named.values())


def column_body(column: ParameterSpec) -> dict[str, Any]:
    """A parameter as JSON. The range of DISCRETE is that of its values; CATEGORICAL has none."""
    is_list, is_number = bool(column.values), column.kind is not ParameterKind.CATEGORICAL
    low, high = (column.values[0], column.values[-1]) if is_list else (column.minimum, column.maximum)
    return {
        "name": column.name,
        "type": column.kind.value,
        "scale": column.scale.value,
        "minimum": low if is_number else None,
        "maximum": high if is_number else None,
        "values": [column.text(value) for value in column.values],
    }


def curves_body(rows: Sequence[TrialRow], points: int) -> dict[str, Any]:
    """All curves, thinned out to this number of points together, and what they are drawn over.

    That is the step, or the time if a trainer does not count steps.
    """
    measured = [row for row in rows if row.curve]
    by_step = all(_steps_increase(row.curve) for row in measured)
    share = max(2, min(MAX_POINTS_OF_CURVE, min(points, MAX_CURVE_POINTS) // max(1, len(measured))))
    return {
        "unit": "step" if by_step else "second",
        "curves": [_curve_body(row, share, by_step=by_step) for row in measured] if points else [],
    }


def _curve_body(row: TrialRow, points: int, *, by_step: bool) -> dict[str, Any]:
    kept = list(_thinned(row.curve, points))
    return {
        "trial": row.number,
        "x": [each.step if by_step else round(each.seconds, 3) for each in kept],
        "y": [each.value for each in kept],
    }


def _thinned(curve: Sequence[CurveValue], points: int) -> Iterator[CurveValue]:
    """Yield at most this number of values, evenly spaced, the first and the last included."""
    count = len(curve)
    if count <= points:
        yield from curve
        return
    for index in range(points):
        yield curve[round(index * (count - 1) / (points - 1))]


def _steps_increase(curve: Sequence[CurveValue]) -> bool:
    return len(curve) < 2 or curve[-1].step > curve[0].step


def _shown(column: ParameterSpec, value: Value | None) -> Value | None:
    """The value of a trial. An earlier search may have had another kind of parameter under this name."""
    is_text = column.kind is ParameterKind.CATEGORICAL
    return value if value is not None and isinstance(value, str) == is_text else None


def optimal_numbers(rows: Sequence[TrialRow], signs: Sequence[int]) -> list[int]:
    """The numbers of the trials that no other one is better than in all metrics, the best of the first metric first."""
    known = [row for row in rows if None not in row.values]
    scores = [
        tuple(sign * value for sign, value in zip(signs, row.values, strict=True) if value is not None) for row in known
    ]
    return [known[index].number for index in front(scores)]
