"""Attributions: how much each value of an instance adds to a score, relative to a baseline. Two methods on arrays.

Instances and baselines are arrays by input name, without a batch dimension. The score and gradient functions take
arrays with one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = Mapping[str, NDArray[Any]]
Gradient = Callable[[dict[str, NDArray[Any]]], Mapping[str, NDArray[Any]]]
Score = Callable[[dict[str, NDArray[Any]]], NDArray[np.float64]]

MAX_BATCH_ROWS = 64  #: instances in one call of the model


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """What each value of the explained inputs adds, and the error of that."""

    values: Mapping[str, NDArray[np.float64]]
    spread: float  #: greatest standard error of the values; 0 for a deterministic method


def integrated_gradients(gradient: Gradient, instance: Values, baseline: Values, *, steps: int) -> Attribution:
    """Sum gradients along the straight line from the baseline to the instance, at the middle of each step.

    Only inputs with a baseline are varied and explained. Exact for a linear model with any number of steps.
    """
    totals = {name: np.zeros(np.shape(baseline[name])) for name in baseline}
    middles = (np.arange(steps) + 0.5) / steps
    for part in np.array_split(middles, -(-steps // MAX_BATCH_ROWS)):
        rows = {name: _repeat(value, len(part)) for name, value in instance.items()}
        for name, start in baseline.items():
            along = part.reshape(-1, *[1] * start.ndim)
            rows[name] = (start + along * (instance[name] - start)).astype(instance[name].dtype)
        gradients = gradient(rows)
        for name in totals:
            totals[name] += np.asarray(gradients[name], np.float64).sum(axis=0)
    values = {n: totals[n] / steps * (instance[n].astype(np.float64) - baseline[n]) for n in baseline}
    return Attribution(values=values, spread=0.0)


def sampled_shapley(
    score: Score, instance: Values, baseline: Values, *, paths: int, rng: np.random.Generator
) -> Attribution:
    """Average what each value changes when it replaces the baseline's, over random orders of replacement.

    Every value of an input with a baseline is one feature. Exact for a linear model with any number of paths.
    """
    sizes = {name: int(np.size(value)) for name, value in baseline.items()}
    count = sum(sizes.values())
    gains = np.zeros((paths, count))
    for path in range(paths):
        order = rng.permutation(count)
        scores = np.concatenate([score(rows) for rows in _walk(instance, baseline, order)])
        gains[path, order] = np.diff(scores)
    means = gains.mean(axis=0)
    errors = gains.std(axis=0, ddof=1) / np.sqrt(paths) if paths > 1 else np.zeros(count)
    ends = np.cumsum(list(sizes.values()))
    parts = zip(baseline.items(), np.split(means, ends[:-1]), strict=True)
    values = {name: part.reshape(np.shape(value)) for (name, value), part in parts}
    return Attribution(values=values, spread=float(errors.max(initial=0.0)))


def _walk(instance: Values, baseline: Values, order: NDArray[np.intp]) -> Iterator[dict[str, NDArray[Any]]]:
    """Rows from the baseline to the instance, each with one more value replaced, in batches."""
    current = {name: np.array(value, copy=True).reshape(-1) for name, value in baseline.items()}
    features = [(name, at) for name, value in baseline.items() for at in range(np.size(value))]
    for start in range(-1, len(order), MAX_BATCH_ROWS):  # the first row is the baseline itself
        rows: dict[str, list[NDArray[Any]]] = {name: [] for name in baseline}
        for step in range(start, min(start + MAX_BATCH_ROWS, len(order))):
            if step >= 0:
                name, at = features[order[step]]
                current[name][at] = instance[name].reshape(-1)[at]
            for name, values in current.items():
                rows[name].append(values.copy())
        count = len(next(iter(rows.values())))
        varied = {name: np.stack(values).reshape(count, *np.shape(baseline[name])) for name, values in rows.items()}
        yield {name: varied.get(name, _repeat(value, count)) for name, value in instance.items()}


def _repeat(value: NDArray[Any], count: int) -> NDArray[Any]:
    return np.repeat(value[np.newaxis], count, axis=0)
