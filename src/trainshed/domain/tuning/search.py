"""What is asked of a search, and what it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from trainshed.domain.tuning.space import Point, Space


class Algorithm(StrEnum):
    BAYESIAN = "BAYESIAN"  #: a Gaussian process; what the API calls ALGORITHM_UNSPECIFIED and GAUSSIAN_PROCESS_BANDIT
    RANDOM = "RANDOM"  #: no point twice
    GRID = "GRID"  #: all points in order; not for DOUBLE parameters


class Goal(StrEnum):
    MAXIMIZE = "MAXIMIZE"
    MINIMIZE = "MINIMIZE"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPoint:
    """A trial that has ended."""

    point: Point
    values: tuple[float, ...] | None = None  #: in the order of the goals; None if the point is infeasible


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """Asks for the next points. The same request has the same answer."""

    space: Space
    algorithm: Algorithm = Algorithm.BAYESIAN
    goals: tuple[Goal, ...] = (Goal.MAXIMIZE,)
    observations: tuple[MeasuredPoint, ...] = ()
    pending: tuple[Point, ...] = ()  #: of trials that run, or wait to run
    count: int = 1
    seed: str  #: the search, such as the name of the study or the job
    number: int  #: of the first trial that is asked for, from 1

    @property
    def tried(self) -> tuple[Point, ...]:
        """All points that are not to be given again."""
        return (*(observation.point for observation in self.observations), *self.pending)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The next points, different from each other and from all that were tried.

    There are fewer than asked for only if the space has no more.
    """

    points: tuple[Point, ...]
    exhausted: bool = False  #: the space has no point that was not tried, these included


Scores = tuple[float, ...]  #: of one result, one for each metric; higher is better


def front(results: Sequence[Scores]) -> list[int]:
    """Return the indexes of the Pareto front: results that no other one dominates, the best of the first metric first.

    With one metric these are the best ones. Equal results all stay.
    """
    found: list[int] = []
    # what dominates a result comes before it in this order, so one comparison with the front is enough
    for index in sorted(range(len(results)), key=lambda each: (tuple(-score for score in results[each]), each)):
        if not any(_dominates(results[other], results[index]) for other in found):
            found.append(index)
    return found


def _dominates(first: Scores, second: Scores) -> bool:
    return first != second and all(one >= other for one, other in zip(first, second, strict=True))
