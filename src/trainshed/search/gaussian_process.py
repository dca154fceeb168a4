"""A Gaussian process: Matérn 5/2 with a length scale for each column, Hamming distance for categories.

Values have mean 0 and variance 1. Length scales and noise are those of the highest posterior probability, with
log-normal priors.
"""

from __future__ import annotations

import math

import numpy as np

from trainshed.search.arrays import BoolArray, FloatArray
from trainshed.search.minimize import minimize

_MAX_STEPS = 60  #: of the fit
_START_LOG_LENGTH, _START_LOG_NOISE = -0.5, -4.0
_LOG_LENGTH_MEAN, _LOG_LENGTH_SD = 0.0, 1.0  #: plus half the logarithm of the number of columns
_LOG_NOISE_MEAN, _LOG_NOISE_SD = -4.0, 1.0
_BOUND = 7.0  #: of all logarithms
_MIN_NOISE = 1e-6


class GaussianProcess:
    """A model of the values at some rows. Immutable."""

    def __init__(self, rows: FloatArray, values: FloatArray, categorical: BoolArray, log_scales: FloatArray) -> None:
        self._rows, self._values = rows, values
        self._categorical, self._log_scales = categorical, log_scales
        self._weights = np.exp(-2 * log_scales[:-1])
        covariance = self._covariance(rows)
        covariance[np.diag_indices(len(rows))] += math.exp(log_scales[-1]) + _MIN_NOISE
        self._inverse_root = np.linalg.inv(np.linalg.cholesky(covariance))
        self._dual = self._inverse_root.T @ (self._inverse_root @ values)

    @classmethod
    def fit(
        cls, rows: FloatArray, values: FloatArray, categorical: BoolArray, *, max_learned: int = 1 << 20
    ) -> GaussianProcess:
        """The model with the most probable length scales and noise, learned from `max_learned` rows at most.

        Of more rows, every nth one by value is taken.
        """
        columns = rows.shape[1]
        start = np.array([*[_START_LOG_LENGTH] * columns, _START_LOG_NOISE])
        learned = np.arange(len(rows))
        if len(rows) > max_learned:
            places = np.linspace(0, len(rows) - 1, max_learned).round().astype(int)
            learned = np.argsort(values, kind="stable")[places]
        posterior = _LogPosterior(rows[learned], values[learned], categorical)
        log_scales, _ = minimize(posterior, start, max_steps=_MAX_STEPS)
        return cls(rows, values, categorical, np.clip(log_scales, -_BOUND, _BOUND))

    def predict(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means and standard deviations at some rows."""
        covariance = self._covariance(rows)
        explained = covariance @ self._inverse_root.T
        variance = np.maximum(1 - np.einsum("ij,ij->i", explained, explained), 1e-10)
        return covariance @ self._dual, np.sqrt(variance)

    def with_predicted(self, rows: FloatArray) -> GaussianProcess:
        """This model, as if its predictions at some rows had come true there."""
        means, _ = self.predict(rows)
        all_rows, all_values = np.vstack([self._rows, rows]), np.concatenate([self._values, means])
        return GaussianProcess(all_rows, all_values, self._categorical, self._log_scales)

    def _covariance(self, rows: FloatArray) -> FloatArray:
        """Of these rows with those of the model."""
        ordered = ~self._categorical
        roots = np.sqrt(self._weights[ordered])
        left, right = rows[:, ordered] * roots, self._rows[:, ordered] * roots
        squares = (left * left).sum(axis=1)[:, None] + (right * right).sum(axis=1) - 2 * left @ right.T
        for column in np.flatnonzero(self._categorical):
            squares += self._weights[column] * (rows[:, column, None] != self._rows[:, column])
        return _matern(squares)


def _matern(squares: FloatArray) -> FloatArray:
    """The covariance at these squared distances, which are overwritten: most of a suggestion's time is spent here."""
    np.maximum(squares, 1e-20, out=squares)
    squares *= 5
    distance = np.sqrt(squares)
    squares /= 3
    squares += distance
    squares += 1
    np.negative(distance, out=distance)
    squares *= np.exp(distance, out=distance)
    return squares


class _LogPosterior:
    """The negative logarithm of the posterior of length scales and noise, and its gradient."""

    def __init__(self, rows: FloatArray, values: FloatArray, categorical: BoolArray) -> None:
        differences = rows.T[:, :, None] - rows.T[:, None, :]
        self._squares = differences * differences  # columns, rows, rows
        self._squares[categorical] = self._squares[categorical] > 1e-12
        self._values = values
        columns = rows.shape[1]
        self._means = np.array([*[_LOG_LENGTH_MEAN + 0.5 * math.log(columns)] * columns, _LOG_NOISE_MEAN])
        self._sds = np.array([*[_LOG_LENGTH_SD] * columns, _LOG_NOISE_SD])

    def __call__(self, log_scales: FloatArray) -> tuple[float, FloatArray]:
        log_scales = np.clip(log_scales, -_BOUND, _BOUND)
        weights, noise = np.exp(-2 * log_scales[:-1]), math.exp(log_scales[-1])
        distance = np.sqrt(5 * np.maximum(np.tensordot(weights, self._squares, 1), 1e-20))
        decay = np.exp(-distance)
        covariance = (1 + distance + distance * distance / 3) * decay
        covariance[np.diag_indices(len(covariance))] += noise + _MIN_NOISE
        try:
            root = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(log_scales)
        inverse_root = np.linalg.inv(root)
        inverse = inverse_root.T @ inverse_root
        dual = inverse @ self._values
        deviations = (log_scales - self._means) / self._sds
        value = 0.5 * self._values @ dual + np.log(np.diag(root)).sum() + 0.5 * (deviations**2).sum()
        slopes = np.outer(dual, dual) - inverse  # of twice the likelihood, by the covariance
        by_square = slopes * (-5 / 6) * (1 + distance) * decay
        gradient = deviations / self._sds
        gradient[:-1] += np.tensordot(self._squares, by_square, ((1, 2), (0, 1))) * weights
        gradient[-1] -= 0.5 * np.trace(slopes) * noise
        return float(value), gradient
