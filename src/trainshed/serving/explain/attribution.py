"""How much each value of an instance adds to a score, against a baseline: two methods, on plain arrays.

Instances and baselines are arrays by the name of their input, without a first dimension for the batch; functions that
are passed in take them with one.
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

ROWS = 64  #: instances in one call of the model


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """What each value of the explained inputs adds, and how far that may be off."""

    values: Mapping[str, NDArray[np.float64]]
    spread: float  #: the greatest standard error among the values, 0 for a method without chance


def integrated_gradients(gradient: Gradient, instance: Values, baseline: Values, *, steps: int) -> Attribution:
    """The gradient along the straight line from the baseline to the instance, at the middle of each step.

    Only inputs that the baseline has are moved and explained. Exact for a linear model, whatever the steps.
    """
    totals = {name: np.zeros(np.shape(baseline[name])) for name in baseline}
    middles = (np.arange(steps) + 0.5) / steps
    for part in np.array_split(middles, -(-steps // ROWS)):
        rows = {name: _repeated(value, len(part)) for name, value in instance.items()}
        for name, start in baseline.items():
            along = part.reshape(-1, *[1] * start.ndim)
            rows[name] = (start + along * (instance[name] - start)).astype(instance[name].dtype)
        found = gradient(rows)
        for name in totals:
            totals[name] += np.asarray(found[name], np.float64).sum(axis=0)
    values = {n: totals[n] / steps * (instance[n].astype(np.float64) - baseline[n]) for n in baseline}
    return Attribution(values=values, spread=0.0)


def sampled_shapley(
    score: Score, instance: Values, baseline: Values, *, paths: int, chance: np.random.Generator
) -> Attribution:
    """What each value changes when it takes its place, averaged over orders in which the values may do so.

    Every value of the inputs that the baseline has is one feature. Exact for a linear model, whatever the paths.
    """
    sizes = {name: int(np.size(value)) for name, value in baseline.items()}
    count = sum(sizes.values())
    gains = np.zeros((paths, count))
    for path in range(paths):
        order = chance.permutation(count)
        scores = np.concatenate([score(rows) for rows in _walk(instance, baseline, order)])
        gains[path, order] = np.diff(scores)
    means = gains.mean(axis=0)
    errors = gains.std(axis=0, ddof=1) / np.sqrt(paths) if paths > 1 else np.zeros(count)
    ends = np.cumsum(list(sizes.values()))
    parts = zip(baseline.items(), np.split(means, ends[:-1]), strict=True)
    values = {name: part.reshape(np.shape(value)) for (name, value), part in parts}
    return Attribution(values=values, spread=float(errors.max(initial=0.0)))


def _walk(instance: Values, baseline: Values, order: NDArray[np.intp]) -> Iterator[dict[str, NDArray[Any]]]:
    """The way from the baseline to the instance, one value more in each row, in batches."""
    current = {name: np.array(value, copy=True).reshape(-1) for name, value in baseline.items()}
    place = [(name, at) for name, value in baseline.items() for at in range(np.size(value))]
    for start in range(-1, len(order), ROWS):  # the first row is the baseline itself
        rows: dict[str, list[NDArray[Any]]] = {name: [] for name in baseline}
        for step in range(start, min(start + ROWS, len(order))):
            if step >= 0:
                name, at = place[order[step]]
                current[name][at] = instance[name].reshape(-1)[at]
            for name, values in current.items():
                rows[name].append(values.copy())
        count = len(next(iter(rows.values())))
        moved = {name: np.stack(kept).reshape(count, *np.shape(baseline[name])) for name, kept in rows.items()}
        yield {name: moved.get(name, _repeated(value, count)) for name, value in instance.items()}


def _repeated(value: NDArray[Any], count: int) -> NDArray[Any]:
    return np.repeat(value[np.newaxis], count, axis=0)
