"""Searches that need no model: the grid, random points, and low-discrepancy points. No point is given twice."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from trainshed.domain.tuning.search import Algorithm, SearchRequest, SearchResult
from trainshed.domain.tuning.space import ParameterSpec, Point, PointKey, Space, Value, point_key

_MAX_DRAWS = 200  #: of points that were tried before the first untried one is taken instead

_NextPoint = Callable[[SearchRequest, set[PointKey]], Point | None]


def simple_search(request: SearchRequest) -> SearchResult:
    """Return the next points of a request without a model. For BAYESIAN these are low-discrepancy points."""
    ways: dict[Algorithm, _NextPoint] = {Algorithm.GRID: _next_of_grid, Algorithm.RANDOM: _random_point}
    next_point = ways.get(request.algorithm, low_discrepancy_point)
    tried = {point_key(point) for point in request.tried}
    points: list[Point] = []
    for number in range(request.number, request.number + request.count):
        point = next_point(replace(request, number=number), tried)
        if point is None:
            break
        tried.add(point_key(point))
        points.append(point)
    # a DOUBLE has so many values that they are not counted, but a tiny range of it can be used up
    exhausted = len(points) < request.count or is_exhausted(request.space, tried)
    return SearchResult(points=tuple(points), exhausted=exhausted)


def is_exhausted(space: Space, tried: set[PointKey]) -> bool:
    return space.size is not None and len(tried) >= space.size and next(_untried(space, tried), None) is None


def low_discrepancy_point(request: SearchRequest, tried: set[PointKey]) -> Point | None:
    """The centre of the space, then a scrambled Halton sequence. Returns None if all points were tried."""
    centre = request.space.centre()
    if point_key(centre) not in tried:
        return centre
    columns = {id(parameter): column for column, parameter in enumerate(request.space.all_parameters())}
    bases = _primes(len(columns))
    scrambles = [_scramble(request.seed, base) for base in bases]

    def value_at(parameter: ParameterSpec, index: int) -> Value:
        column = columns[id(parameter)]
        return parameter.sample(_radical_inverse(index, bases[column], *scrambles[column]))

    for draw in range(_MAX_DRAWS):
        # Draws beyond the first are far from the indices of the trials that follow.
        index = request.number + draw * 10_007
        point = request.space.build(lambda parameter, index=index: value_at(parameter, index))  # type: ignore[misc]
        if point_key(point) not in tried:
            return point
    return next(_untried(request.space, tried), None)


def _random_point(request: SearchRequest, tried: set[PointKey]) -> Point | None:
    numbers = random.Random(f"{request.seed}/{request.number}")  # noqa: S311 - a seed gives the same points again
    for _ in range(_MAX_DRAWS):
        point = request.space.build(lambda parameter: parameter.sample(numbers.random()))
        if point_key(point) not in tried:
            return point
    left = list(_first(_untried(request.space, tried), 10_000))
    return numbers.choice(left) if left else None


def _next_of_grid(request: SearchRequest, tried: set[PointKey]) -> Point | None:
    return next(_untried(request.space, tried), None)


def _untried(space: Space, tried: set[PointKey]) -> Iterator[Point]:
    """The points that were not tried, in the order of the grid. None of a space that has no count."""
    if space.size is None:
        return iter(())
    return (point for point in grid(space) if point_key(point) not in tried)


def grid(space: Space) -> Iterator[Point]:
    """All points in order: the last parameter changes first. Only for spaces that have a size."""
    return _grid_below(space.parameters, {})


def _grid_below(parameters: tuple[ParameterSpec, ...], point: dict[str, Value]) -> Iterator[Point]:
    if not parameters:
        yield point
        return
    first, *others = parameters
    for index in range(first.size or 0):
        value = first.value_at(index)
        yield from _grid_below((*first.active_children(value), *others), {**point, first.name: value})


def _first(points: Iterator[Point], count: int) -> Iterator[Point]:
    return (point for point, _ in zip(points, range(count), strict=False))


def _primes(count: int) -> list[int]:
    primes: list[int] = []
    candidate = 2
    while len(primes) < count:
        if all(candidate % prime for prime in primes if prime <= math.isqrt(candidate)):
            primes.append(candidate)
        candidate += 1
    return primes


def _scramble(seed: str, base: int) -> tuple[list[int], float]:
    """A permutation of the digits that keeps 0, and a shift."""
    numbers = random.Random(f"{seed}/halton/{base}")  # noqa: S311 - a seed gives the same points again
    digits = list(range(1, base))
    numbers.shuffle(digits)
    return [0, *digits], numbers.random()


def _radical_inverse(index: int, base: int, digits: list[int], shift: float) -> float:
    """The number of a Halton sequence, in [0, 1)."""
    result, weight = shift, 1.0
    while index:
        index, digit = divmod(index, base)
        weight /= base
        result += weight * digits[digit]
    return result % 1.0
