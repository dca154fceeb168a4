"""Bayesian search: the next points of a request, by a Gaussian process over what was measured.

First come the centre of the space and low-discrepancy points. Then the model is fitted, trials that run are taken in at
their predicted values, and the point with the greatest expected improvement is looked for among random points and
mutations of the best ones. The same request has the same result.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace

import numpy as np

from trainshed.domain.tuning.search import Algorithm, Goal, SearchRequest, SearchResult
from trainshed.domain.tuning.simple_search import grid, is_exhausted, low_discrepancy_point, simple_search
from trainshed.domain.tuning.space import Point, PointKey, point_key
from trainshed.search.acquisition import log_expected_improvement, scalarize, warp
from trainshed.search.arrays import FloatArray
from trainshed.search.encoding import Encoding
from trainshed.search.gaussian_process import GaussianProcess

_MAX_FITTED = 250  #: points of a model; the time of a suggestion grows with their square
_MAX_LEARNED = 120  #: of them, that its length scales and noise are learned from
_MAX_DISTANCES = 8_000_000  #: that a fit keeps, one for each column and pair of points
_ENUMERATED_BELOW = 2000  #: points of a space that are all scored
_RANDOM_CANDIDATES, _PARENTS, _MUTATIONS_OF_BEST, _FIRST_SIGMA = 1000, 5, 60, 0.1
_SURVIVORS, _MUTATIONS = 24, 12  #: of each round
_SIGMAS = (0.2, 0.1, 0.1, 0.05, 0.05, 0.03, 0.02, 0.01, 0.005)  #: of the rounds of mutations


def search(request: SearchRequest) -> SearchResult:
    """Return the next points of a request."""
    if request.algorithm is not Algorithm.BAYESIAN:
        return simple_search(request)
    tried = {point_key(point) for point in request.tried}
    points: list[Point] = []
    model = _Model(request)
    for number in range(request.number, request.number + request.count):
        following = replace(request, number=number, pending=(*request.pending, *points))
        point = model.next_point(following, tried) if _has_data(following) else low_discrepancy_point(following, tried)
        if point is None:
            break
        tried.add(point_key(point))
        points.append(point)
    exhausted = len(points) < request.count or is_exhausted(request.space, tried)
    return SearchResult(points=tuple(points), exhausted=exhausted)


def _has_data(request: SearchRequest) -> bool:
    """Whether there is enough for a model: as many points as the space has dimensions, 4 at least and 10 at most."""
    measured = sum(observation.values is not None for observation in request.observations)
    dimensions = sum(1 for _ in request.space.all_parameters())
    return measured >= 2 and measured + len(request.pending) >= max(4, min(10, dimensions + 1))


class _Model:
    """What the next points of one request share."""

    def __init__(self, request: SearchRequest) -> None:
        self._encoding = Encoding(request.space)
        self._rows = self._encoding.encode([each.point for each in request.observations])
        self._values = _values_to_maximize(request)
        self._fitted: GaussianProcess | None = None

    def next_point(self, request: SearchRequest, tried: set[PointKey]) -> Point | None:
        rng = np.random.default_rng(_seed(f"{request.seed}/{request.number}"))
        rows, values = self._data(request, rng)
        model = self._fitted or GaussianProcess.fit(
            rows, warp(values), self._encoding.categorical, max_learned=_MAX_LEARNED
        )
        if len(request.goals) == 1:
            self._fitted = model  # several goals have other weights at each point
        means, _ = model.predict(rows)
        best = float(means.max())
        if request.pending:
            model = model.with_predicted(self._encoding.encode(list(request.pending)))
        parents = rows[np.argsort(-means, kind="stable")[:_PARENTS]]
        for row in self._ranked(request, _Candidates(self._encoding, rng), model, best, parents):
            point = self._encoding.decode(row)
            if point_key(point) not in tried:
                return point
        return low_discrepancy_point(request, tried)

    def _data(self, request: SearchRequest, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """The rows and values to fit: all of them, or the best ones and others at random."""
        values = self._values[:, 0]
        if len(request.goals) > 1:
            values = scalarize(self._values, rng.dirichlet(np.ones(len(request.goals))))
        most = min(_MAX_FITTED, math.isqrt(_MAX_DISTANCES // len(self._encoding)))
        if len(values) <= most:
            return self._rows, values
        order = np.argsort(-values, kind="stable")
        chance = np.random.default_rng(_seed(request.seed)).permutation(order[most // 2 :])
        kept = np.concatenate([order[: most // 2], chance[: most - most // 2]])
        return self._rows[kept], values[kept]

    def _ranked(
        self,
        request: SearchRequest,
        candidates: _Candidates,
        model: GaussianProcess,
        best: float,
        parents: FloatArray,
    ) -> FloatArray:
        """Rows to suggest, the most promising ones first."""

        def scores(rows: FloatArray) -> FloatArray:
            return log_expected_improvement(*model.predict(rows), best)

        size = request.space.size
        if size is not None and size <= _ENUMERATED_BELOW:
            rows = self._encoding.encode(list(grid(request.space)))
            return rows[np.argsort(-scores(rows), kind="stable")]
        rows = np.vstack([candidates.random(), candidates.mutations(parents, _MUTATIONS_OF_BEST, _FIRST_SIGMA)])
        first_scores = scores(rows)
        order = np.argsort(-first_scores, kind="stable")
        survivors, survivor_scores = rows[order[:_SURVIVORS]], first_scores[order[:_SURVIVORS]]
        for sigma in _SIGMAS:
            mutations = candidates.mutations(survivors, _MUTATIONS, sigma)
            pool = np.vstack([survivors, mutations])
            pool_scores = np.concatenate([survivor_scores, scores(mutations)])
            _, unique = np.unique(pool.round(7), axis=0, return_index=True)
            chosen = unique[np.argsort(-pool_scores[unique], kind="stable")[:_SURVIVORS]]
            survivors, survivor_scores = pool[chosen], pool_scores[chosen]
        return np.vstack([survivors, rows[order]])


class _Candidates:
    """Makes rows that are points of the space."""

    def __init__(self, encoding: Encoding, rng: np.random.Generator) -> None:
        self._encoding, self._rng = encoding, rng

    def random(self) -> FloatArray:
        return self._encoding.draw(self._rng.random((_RANDOM_CANDIDATES, len(self._encoding))))

    def mutations(self, parents: FloatArray, count: int, sigma: float) -> FloatArray:
        """`count` changed copies of each parent. Each is changed in one column at least, and in a third of all."""
        rows = np.repeat(parents, count, axis=0)
        total, columns = rows.shape
        changed = self._rng.random((total, columns)) < max(0.35, 1.5 / columns)
        changed[np.arange(total), self._rng.integers(columns, size=total)] = True
        for index, column in enumerate(self._encoding.columns):
            places = np.flatnonzero(changed[:, index])
            if column.levels is not None and column.categorical:
                rows[places, index] = self._rng.integers(len(column.levels), size=len(places))
            else:
                rows[places, index] += self._rng.normal(0, max(sigma, 0.7 * column.step), len(places))
        return self._encoding.snap(rows)


def _values_to_maximize(request: SearchRequest) -> FloatArray:
    """A row for each observation, a column for each goal. Infeasible points are as bad as the worst feasible one."""
    signs = np.array([1.0 if goal is Goal.MAXIMIZE else -1.0 for goal in request.goals])
    missing = (math.nan,) * len(signs)
    values: FloatArray = np.array([each.values or missing for each in request.observations]).reshape(-1, len(signs))
    values = values * signs
    if len(values) and not np.isnan(values).all():
        return np.where(np.isnan(values), np.nanmin(values, axis=0), values)
    return values


def _seed(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
