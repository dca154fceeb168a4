"""What a model needs besides itself: warped values, the logarithm of the expected improvement, several goals as one."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from trainshed.search.arrays import FloatArray

_ERFC = np.vectorize(math.erfc, otypes=[float])
_ASYMPTOTIC_BELOW = -6.0
_LARGE = 1e100  #: squares of larger values may be infinite


def warp(values: FloatArray) -> FloatArray:
    """Values to maximize, with mean 0 and variance 1.

    Those below the median are replaced by normal quantiles of their ranks, since how bad a bad value is matters not.
    """
    if (largest := float(np.abs(values).max())) > _LARGE:
        values = values / largest
    median = float(np.median(values))
    good, bad = values >= median, np.flatnonzero(values < median)
    result = values.astype(float)
    if len(bad):
        spread = math.sqrt(float(np.mean((values[good] - median) ** 2))) or 1.0
        shares = (ranks(values[bad]) + 0.5) / len(values)
        result[bad] = [median + spread * NormalDist().inv_cdf(share) for share in shares]
    deviation = float(result.std())
    standard: FloatArray = (result - result.mean()) / (deviation if deviation > 1e-12 else 1.0)
    return standard


def ranks(values: FloatArray) -> FloatArray:
    """The rank of each value from 0 for the lowest. Equal values have their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts) - 1
    result: FloatArray = (last - (counts - 1) / 2)[inverse]
    return result


def log_expected_improvement(means: FloatArray, deviations: FloatArray, best: float) -> FloatArray:
    """The logarithm, which still tells places apart where the improvement itself is 0 to a computer."""
    scores = (means - best) / deviations
    result = np.empty_like(scores)
    near = scores > _ASYMPTOTIC_BELOW
    z = scores[near]
    density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    below = 0.5 * _ERFC(-z / math.sqrt(2))
    result[near] = np.log(np.maximum(density + z * below, 1e-300))
    z = scores[~near]
    result[~near] = -0.5 * z * z - 0.5 * math.log(2 * math.pi) - 2 * np.log(-z) + np.log1p(-3 / z**2 + 15 / z**4)
    return result + np.log(deviations)


def scalarize(values: FloatArray, weights: FloatArray) -> FloatArray:
    """One value to maximize for each row of several: the worst weighted rank (Tchebycheff), and a little of the sum.

    Any point of the Pareto front is the best one for some weights.
    """
    scaled = np.stack([ranks(column) for column in values.T], axis=1) / max(1, len(values) - 1)
    shortfall = weights * (1 - scaled)
    result: FloatArray = -(shortfall.max(axis=1) + 0.05 * shortfall.sum(axis=1))
    return result
