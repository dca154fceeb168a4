"""Bayesian search: finds optima, repeats neither points nor itself, takes in what runs and what is infeasible."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from trainshed.domain.tuning.scales import Scale
from trainshed.domain.tuning.search import Algorithm, Goal, MeasuredPoint, SearchRequest
from trainshed.domain.tuning.space import ChildParameter, ParameterKind, ParameterSpec, Point, Space, point_key
from trainshed.search import bayesian
from trainshed.search.acquisition import log_expected_improvement, ranks, scalarize, warp
from trainshed.search.bayesian import search
from trainshed.search.gaussian_process import GaussianProcess, _LogPosterior
from trainshed.search.minimize import minimize

X = ParameterSpec(name="x", kind=ParameterKind.DOUBLE, minimum=-5.0, maximum=10.0)
Y = ParameterSpec(name="y", kind=ParameterKind.DOUBLE, minimum=0.0, maximum=15.0)
RATE = ParameterSpec(name="rate", kind=ParameterKind.DOUBLE, minimum=1e-5, maximum=1.0, scale=Scale.LOG)
UNITS = ParameterSpec(name="units", kind=ParameterKind.INTEGER, minimum=1, maximum=5)
KIND = ParameterSpec(name="kind", kind=ParameterKind.CATEGORICAL, values=("a", "b", "c"))


def run(
    space: Space, value: Callable[[Point], float], trials: int, *, parallel: int = 1, seed: str = "s"
) -> list[Point]:
    """Search for the maximum. Returns all points in order."""
    points: list[Point] = []
    for number in range(1, trials + 1):
        done = points[: max(0, len(points) - parallel + 1)]
        request = SearchRequest(
            space=space,
            observations=tuple(MeasuredPoint(point=point, values=(value(point),)) for point in done),
            pending=tuple(points[len(done) :]),
            seed=seed,
            number=number,
        )
        points += search(request).points
    return points


def branin(point: Point) -> float:
    x, y = float(point["x"]), float(point["y"])
    first = (y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6) ** 2
    return -(first + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10)


def test_a_smooth_function_is_maximized() -> None:
    points = run(Space(parameters=(X, Y)), branin, 30)
    assert max(map(branin, points)) > -1  # the optimum is -0.398; the best of 30 random points is at -3 or so


def test_trials_that_run_are_taken_in() -> None:
    points = run(Space(parameters=(X, Y)), branin, 32, parallel=4)
    assert max(map(branin, points)) > -3
    assert len(set(map(point_key, points))) == 32


def test_the_first_point_is_the_centre() -> None:
    assert run(Space(parameters=(X, RATE, UNITS, KIND)), lambda _: 0.0, 1) == [
        {"x": 2.5, "rate": pytest.approx(math.sqrt(1e-5)), "units": 3, "kind": "a"}
    ]


def test_no_point_is_given_twice_and_the_space_is_used_up() -> None:
    space = Space(parameters=(UNITS, KIND))
    points = run(space, lambda point: float(point["units"]), 15)
    assert len(set(map(point_key, points))) == 15 == space.size
    observations = tuple(MeasuredPoint(point=point, values=(1.0,)) for point in points)
    result = search(SearchRequest(space=space, observations=observations, seed="s", number=16))
    assert result.points == () and result.exhausted


def test_fewer_points_than_asked_for_end_the_space() -> None:
    result = search(SearchRequest(space=Space(parameters=(UNITS,)), count=9, seed="s", number=1))
    assert len(result.points) == 5 and result.exhausted


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_the_same_request_has_the_same_result(algorithm: Algorithm) -> None:
    parameters = (UNITS, KIND) if algorithm is Algorithm.GRID else (RATE, UNITS, KIND)
    space = Space(parameters=parameters)
    first = search(SearchRequest(space=space, algorithm=algorithm, count=6, seed="s", number=1))
    observations = tuple(MeasuredPoint(point=p, values=(float(p["units"]),)) for p in first.points)
    request = SearchRequest(space=space, algorithm=algorithm, observations=observations, count=3, seed="s", number=7)
    assert search(request) == search(request)
    if algorithm is not Algorithm.GRID:
        assert search(replace(request, seed="other", observations=())) != search(replace(request, observations=()))


def test_infeasible_points_are_left_alone() -> None:
    """Half of the space is infeasible; the model learns so."""
    space = Space(parameters=(X, Y))
    points: list[Point] = []
    for number in range(1, 31):
        observations = tuple(
            MeasuredPoint(point=point, values=(branin(point),) if float(point["x"]) > 2 else None) for point in points
        )
        points += search(SearchRequest(space=space, observations=observations, seed="s", number=number)).points
    late = points[15:]
    assert sum(float(point["x"]) > 2 for point in late) > len(late) / 2


def test_goals_are_minimized_too() -> None:
    space = Space(parameters=(X, Y))
    observations = tuple(MeasuredPoint(point=p, values=(branin(p),)) for p in run(space, branin, 12))
    negated = tuple(replace(each, values=(-(each.values or (0.0,))[0],)) for each in observations)
    request = SearchRequest(space=space, observations=observations, seed="s", number=13)
    other = replace(request, observations=negated, goals=(Goal.MINIMIZE,))
    assert search(request) == search(other)


def test_several_goals_find_both_ends_of_the_front() -> None:
    """r sin(theta) down and r cos(theta) up, as in Google's notebook: the front is where r is 1."""
    space = Space(
        parameters=(
            ParameterSpec(name="r", kind=ParameterKind.DOUBLE, minimum=0.0, maximum=1.0),
            ParameterSpec(name="theta", kind=ParameterKind.DOUBLE, minimum=0.0, maximum=math.pi / 2),
        )
    )
    points: list[Point] = []
    for number in range(1, 31):
        values = [
            (float(p["r"]) * math.sin(float(p["theta"])), float(p["r"]) * math.cos(float(p["theta"]))) for p in points
        ]
        observations = tuple(MeasuredPoint(point=p, values=v) for p, v in zip(points, values, strict=True))
        request = SearchRequest(
            space=space, goals=(Goal.MINIMIZE, Goal.MAXIMIZE), observations=observations, seed="s", number=number
        )
        points += search(request).points
    assert min(float(p["r"]) * math.sin(float(p["theta"])) for p in points) < 0.1
    assert max(float(p["r"]) * math.cos(float(p["theta"])) for p in points) > 0.9


def test_children_are_searched_where_they_exist() -> None:
    child = ParameterSpec(name="depth", kind=ParameterKind.DOUBLE, minimum=0.0, maximum=1.0)
    kind = replace(KIND, children=(ChildParameter(parent_values=("b",), parameter=child),))
    space = Space(parameters=(kind, RATE)).checked("params")

    def value(point: Point) -> float:
        return 1 - (float(point["depth"]) - 0.7) ** 2 if point["kind"] == "b" else 0.2

    points = run(space, value, 25)
    assert all(("depth" in point) == (point["kind"] == "b") for point in points)
    assert max(map(value, points)) > 0.98


def test_many_trials_are_fitted_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bayesian, "_MAX_FITTED", 40)
    space = Space(parameters=(X, Y))
    rng = np.random.default_rng(0)
    points: list[Point] = [{"x": float(x), "y": float(y)} for x, y in rng.random((90, 2)) * 10]
    observations = tuple(MeasuredPoint(point=point, values=(branin(point),)) for point in points)
    [point] = search(SearchRequest(space=space, observations=observations, seed="s", number=91)).points
    assert branin(point) > -20


def test_the_gradient_of_the_posterior_is_right() -> None:
    rng = np.random.default_rng(3)
    rows = np.column_stack([rng.random((12, 2)), rng.integers(3, size=12)])
    posterior = _LogPosterior(rows, rng.normal(size=12), np.array([False, False, True]))
    place = np.array([-0.4, 0.3, 0.1, -3.0])
    _, gradient = posterior(place)
    for index in range(4):
        step = np.zeros(4)
        step[index] = 1e-5
        numeric = (posterior(place + step)[0] - posterior(place - step)[0]) / 2e-5
        assert gradient[index] == pytest.approx(numeric, rel=1e-4, abs=1e-6)


def test_a_model_predicts_what_it_was_fitted_to() -> None:
    rows = np.linspace(0, 1, 15)[:, None]
    values = np.sin(5 * rows[:, 0])
    model = GaussianProcess.fit(rows, (values - values.mean()) / values.std(), np.array([False]))
    means, deviations = model.predict(np.array([[0.33], [3.0]]))
    assert means[0] * values.std() + values.mean() == pytest.approx(math.sin(1.65), abs=0.05)
    assert deviations[0] < 0.2 < deviations[1]


def test_minimize_finds_the_valley_of_rosenbrock() -> None:
    def rosenbrock(place: np.ndarray) -> tuple[float, np.ndarray]:
        x, y = place
        return (1 - x) ** 2 + 100 * (y - x * x) ** 2, np.array(
            [-2 * (1 - x) - 400 * x * (y - x * x), 200 * (y - x * x)]
        )

    place, value = minimize(rosenbrock, np.array([-1.2, 1.0]), max_steps=200)
    assert value < 1e-2 and abs(place - 1).max() < 0.2


DEGENERATE: dict[str, tuple[ParameterSpec, ...]] = {
    "one value": (replace(X, minimum=2.0, maximum=2.0), replace(UNITS, minimum=3, maximum=3)),
    "five floats": (replace(X, minimum=1.0, maximum=1.0 + 1e-15),),
    "all floats": (replace(X, minimum=-1e308, maximum=1e308),),
    "all positive floats": (replace(RATE, minimum=5e-324, maximum=1e308),),
    "all floats from the end": (replace(RATE, minimum=1e-300, maximum=1e308, scale=Scale.REVERSE_LOG),),
    "all integers": (replace(UNITS, minimum=-(2**62), maximum=2**62),),
    "a thousand categories": (replace(KIND, values=tuple(map(str, range(1000)))),),
    "one category": (replace(KIND, values=("a",)), X),
}
MEASURED: dict[str, Callable[[int], float | None]] = {
    "all alike": lambda number: 1.0,
    "none": lambda number: None,
    "infinitely far apart": lambda number: (-1) ** number * 1e308,
    "one of another world": lambda number: 1e300 if number == 3 else float(number),
    "next to nothing": lambda number: number * 1e-320,
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("parameters", DEGENERATE.values(), ids=DEGENERATE)
@pytest.mark.parametrize("value", MEASURED.values(), ids=MEASURED)
def test_odd_spaces_and_values_have_suggestions(
    parameters: tuple[ParameterSpec, ...], value: Callable[[int], float | None]
) -> None:
    space = Space(parameters=parameters).checked("parameters")
    observations: list[MeasuredPoint] = []
    for number in range(1, 13):
        request = SearchRequest(space=space, observations=tuple(observations), seed="s", number=number)
        result = search(request)
        if result.exhausted and not result.points:
            break
        [point] = result.points
        assert space.read_point(point, "") == point
        measured = value(number)
        observations.append(MeasuredPoint(point=point, values=None if measured is None else (measured,)))
    assert len({point_key(each.point) for each in observations}) == len(observations)
    assert len(observations) == min(12, space.size or 12) or (result.exhausted and parameters[0].maximum < 1.1)


def test_bad_values_are_squeezed() -> None:
    values = np.array([-1e9, -1e3, 1.0, 2.0, 3.0])
    warped = warp(values)
    assert list(np.argsort(warped)) == [0, 1, 2, 3, 4]
    assert warped.min() > -3 and warped.mean() == pytest.approx(0) and warped.std() == pytest.approx(1)
    assert warp(np.ones(4)).tolist() == [0, 0, 0, 0]


def test_equal_values_have_equal_ranks() -> None:
    assert ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [2.5, 0, 2.5, 1]


def test_the_logarithm_of_the_improvement_is_continuous_and_falls() -> None:
    means = np.linspace(2, -40, 2000)
    scores = log_expected_improvement(means, np.ones_like(means), 0.0)
    assert np.isfinite(scores).all() and (np.diff(scores) < 0).all()
    assert np.abs(np.diff(scores, 2)).max() < 0.01
    assert scores[0] == pytest.approx(math.log(2.0085), abs=1e-3)


def test_weights_decide_which_end_of_the_front_is_best() -> None:
    values = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
    assert scalarize(values, np.array([0.9, 0.1])).argmax() == 1
    assert scalarize(values, np.array([0.1, 0.9])).argmax() == 0
