"""Searches without a model: the grid, random points without replacement, low-discrepancy points."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from trainshed.domain.tuning.documents import read_request, read_result
from trainshed.domain.tuning.search import Algorithm, Goal, MeasuredPoint, SearchRequest, SearchResult
from trainshed.domain.tuning.simple_search import grid, simple_search
from trainshed.domain.tuning.space import ChildParameter, ParameterKind, ParameterSpec, Space, point_key

UNITS = ParameterSpec(name="units", kind=ParameterKind.INTEGER, minimum=1, maximum=3)
BATCH = ParameterSpec(name="batch", kind=ParameterKind.DISCRETE, values=(32.0, 64.0))
RATE = ParameterSpec(name="rate", kind=ParameterKind.DOUBLE, minimum=0.0, maximum=1.0)
KIND = ParameterSpec(
    name="kind",
    kind=ParameterKind.CATEGORICAL,
    values=("linear", "deep"),
    children=(ChildParameter(parent_values=("deep",), parameter=BATCH),),
)
SPACE = Space(parameters=(KIND, UNITS)).checked("params")


def ask(space: Space, algorithm: Algorithm, count: int, **others: object) -> SearchResult:
    request = SearchRequest(space=space, algorithm=algorithm, count=count, seed="s", number=1)
    return simple_search(replace(request, **others))  # type: ignore[arg-type]


def test_the_grid_is_walked_in_order() -> None:
    points = ask(SPACE, Algorithm.GRID, 9).points
    assert points == tuple(grid(SPACE))
    assert [tuple(point.values()) for point in points] == [
        *(("linear", 1), ("linear", 2), ("linear", 3)),
        *(("deep", 32.0, 1), ("deep", 32.0, 2), ("deep", 32.0, 3)),
        *(("deep", 64.0, 1), ("deep", 64.0, 2), ("deep", 64.0, 3)),
    ]


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_finite_spaces_are_used_up_without_a_repeat(algorithm: Algorithm) -> None:
    result = ask(SPACE, algorithm, 12)
    assert len({point_key(point) for point in result.points}) == len(result.points) == 9 == SPACE.size
    assert result.exhausted
    tried = tuple(MeasuredPoint(point=point) for point in result.points[:4])
    rest = ask(SPACE, algorithm, 12, observations=tried, pending=result.points[4:7])
    assert {point_key(point) for point in rest.points} == {point_key(point) for point in result.points[7:]}
    assert not ask(SPACE, algorithm, 8).exhausted


@pytest.mark.parametrize("algorithm", [Algorithm.RANDOM, Algorithm.BAYESIAN])
def test_numbers_are_spread_over_the_space(algorithm: Algorithm) -> None:
    points = ask(Space(parameters=(RATE, UNITS)), algorithm, 60).points
    rates = sorted(float(point["rate"]) for point in points)
    assert rates[0] < 0.15 and rates[-1] > 0.85 and len(set(rates)) == 60
    assert {point["units"] for point in points} == {1, 2, 3}


def test_low_discrepancy_points_are_more_even_than_random_ones() -> None:
    def largest_gap(algorithm: Algorithm) -> float:
        points = ask(Space(parameters=(RATE,)), algorithm, 64).points
        rates = [0.0, *sorted(float(point["rate"]) for point in points), 1.0]
        return max(high - low for low, high in zip(rates, rates[1:], strict=False))  # noqa: RUF007

    assert largest_gap(Algorithm.BAYESIAN) < largest_gap(Algorithm.RANDOM)


def test_searches_pass_through_json() -> None:
    request = SearchRequest(
        space=SPACE,
        algorithm=Algorithm.RANDOM,
        goals=(Goal.MINIMIZE, Goal.MAXIMIZE),
        observations=(
            MeasuredPoint(point={"kind": "linear", "units": 1}, values=(1.0, 2.0)),
            MeasuredPoint(point={"kind": "linear", "units": 2}),
        ),
        pending=({"kind": "deep", "batch": 32.0, "units": 1},),
        count=2,
        seed="projects/p/locations/l/studies/s",
        number=3,
    )
    assert read_request(orjson.loads(orjson.dumps(request))) == request
    result = SearchResult(points=({"rate": 0.1},), exhausted=True)
    assert read_result(orjson.loads(orjson.dumps(result))) == result
