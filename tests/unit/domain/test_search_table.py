"""Tables of searches: columns, thinned curves and the Pareto front."""

from __future__ import annotations

from itertools import product

import pytest

from trainshed.domain.tuning.scales import Scale
from trainshed.domain.tuning.search import front
from trainshed.domain.tuning.search_table import (
    MAX_CURVE_POINTS,
    CurveValue,
    TrialRow,
    column_body,
    columns_of,
    curves_body,
    optimal_numbers,
)
from trainshed.domain.tuning.space import ChildParameter, ParameterKind, ParameterSpec, Space

RATE = ParameterSpec(name="rate", kind=ParameterKind.DOUBLE, minimum=0.1, maximum=1.0, scale=Scale.LOG)
BATCH = ParameterSpec(name="batch", kind=ParameterKind.DISCRETE, values=(32.0, 64.0))
DEPTH = ParameterSpec(name="depth", kind=ParameterKind.INTEGER, minimum=1, maximum=8)
KIND = ParameterSpec(
    name="kind",
    kind=ParameterKind.CATEGORICAL,
    values=("tree", "net"),
    children=tuple(ChildParameter(parent_values=(value,), parameter=DEPTH) for value in ("tree", "net")),
)


def row(number: int, *values: float | None, steps: int = 0, step: int = 10, **point: float | str) -> TrialRow:
    curve = [CurveValue(step=step * index, seconds=index / 2, value=index / 7) for index in range(1, steps + 1)]
    return TrialRow(
        number=number,
        job="",
        state="COMPLETED",
        point=point,
        values=values,
        last_values=values,
        started_us=1,
        ended_us=None,
        stopped_early=False,
        reason="",
        client="",
        curve=curve,
    )


def test_columns_are_the_parameters_with_children_once() -> None:
    columns = columns_of(Space(parameters=(RATE, BATCH, KIND)))
    assert [column.name for column in columns] == ["rate", "batch", "kind", "depth"]
    rate, batch, kind, _ = map(column_body, columns)
    assert (rate["minimum"], rate["maximum"], rate["scale"], rate["values"]) == (0.1, 1.0, "LOG", [])
    assert (batch["minimum"], batch["maximum"], batch["values"]) == (32.0, 64.0, ["32", "64"])
    assert (kind["minimum"], kind["values"]) == (None, ["tree", "net"])


def test_a_value_that_a_trial_does_not_have_or_has_in_another_kind_is_null() -> None:
    body = row(1, 0.5, rate="fast", kind="tree").body([RATE, KIND, DEPTH])
    assert body["values"] == [None, "tree", None]
    assert (body["metrics"], body["startTime"] is None, body["endTime"]) == ([0.5], False, None)


@pytest.mark.parametrize(("trials", "points", "kept"), [(2, 8, 4), (1, 10_000, 200), (1000, MAX_CURVE_POINTS, 20)])
def test_curves_are_thinned_together_and_keep_both_ends(trials: int, points: int, kept: int) -> None:
    curves = curves_body([row(number, steps=500) for number in range(trials)], points)["curves"]
    assert [len(curve["x"]) for curve in curves] == [kept] * trials
    assert (curves[0]["x"][0], curves[0]["x"][-1]) == (10, 5000)
    assert len(curves[0]["y"]) == kept


def test_curves_are_over_time_if_a_trainer_counts_no_steps_and_can_be_left_out() -> None:
    rows = [row(1, steps=3), row(2, steps=3, step=0), row(3)]
    found = curves_body(rows, 100)
    assert (found["unit"], [curve["trial"] for curve in found["curves"]]) == ("second", [1, 2])
    assert found["curves"][1]["x"] == [0.5, 1.0, 1.5]
    assert curves_body(rows[:1], 100)["unit"] == "step"
    assert curves_body(rows, 0)["curves"] == []


def test_the_best_trials_are_those_that_no_other_beats_in_all_metrics() -> None:
    rows = [row(1, 0.9, 5.0), row(2, 0.8, 3.0), row(3, 0.7, 4.0), row(4, 0.9, 5.0), row(5, None, 1.0)]
    assert optimal_numbers(rows, (1, -1)) == [1, 4, 2]
    assert optimal_numbers([row(1, 2.0), row(2, 1.0), row(3, None)], (-1,)) == [2]
    assert optimal_numbers([], (1,)) == []


def test_the_front_is_what_comparing_each_with_each_gives() -> None:
    results = [(float(a % 5), float(b % 4), float((a * b) % 7)) for a, b in product(range(9), range(9))]

    def beaten(one: tuple[float, ...]) -> bool:
        return any(other != one and all(x >= y for x, y in zip(other, one, strict=True)) for other in results)

    assert sorted(front(results)) == [index for index, one in enumerate(results) if not beaten(one)]
