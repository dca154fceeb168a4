"""L-BFGS: minimizes a smooth function of a few dozen variables."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from trainshed.search.arrays import FloatArray

Objective = Callable[[FloatArray], tuple[float, FloatArray]]  #: value and gradient at a place

_MEMORY = 8  #: steps that the curvature is estimated from
_MAX_STEP = 2.0  #: in any one variable
_MAX_HALVINGS = 12
_SUFFICIENT_DECREASE = 1e-4
_TOLERANCE = 1e-4  #: of the value, between two steps


def minimize(objective: Objective, start: FloatArray, *, max_steps: int) -> tuple[FloatArray, float]:
    """Return the lowest place that was found from `start`, and its value."""
    place, (value, gradient) = start, objective(start)
    memory: deque[tuple[FloatArray, FloatArray]] = deque(maxlen=_MEMORY)
    for _ in range(max_steps):
        direction = -_inverse_hessian_times(gradient, memory)
        direction *= min(1.0, _MAX_STEP / (float(abs(direction).max()) + 1e-12))
        slope = float(gradient @ direction)
        if slope > -1e-12:
            break
        step = _line_search(objective, place, value, direction, slope)
        if step is None:
            break
        moved, new_value, new_gradient = step
        change = new_gradient - gradient
        if change @ moved > 1e-10:
            memory.append((moved, change))
        improvement = value - new_value
        place, value, gradient = place + moved, new_value, new_gradient
        if improvement < _TOLERANCE:
            break
    return place, value


def _line_search(
    objective: Objective, place: FloatArray, value: float, direction: FloatArray, slope: float
) -> tuple[FloatArray, float, FloatArray] | None:
    """The first step along a direction that is low enough, with value and gradient there. Returns None if none is."""
    length = 1.0
    for _ in range(_MAX_HALVINGS):
        moved = length * direction
        new_value, new_gradient = objective(place + moved)
        if new_value <= value + _SUFFICIENT_DECREASE * length * slope:
            return moved, new_value, new_gradient
        length *= 0.4
    return None


def _inverse_hessian_times(gradient: FloatArray, memory: deque[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """The two-loop recursion. Without memory, a gradient of length 1 at most."""
    if not memory:
        return gradient * min(1.0, 1 / (float(abs(gradient).sum()) + 1e-12))
    result, weights = gradient.copy(), []
    for moved, change in reversed(memory):
        weight = (moved @ result) / (change @ moved)
        weights.append(weight)
        result -= weight * change
    moved, change = memory[-1]
    result *= (moved @ change) / (change @ change)
    for (moved, change), weight in zip(memory, reversed(weights), strict=True):
        result += (weight - (change @ result) / (change @ moved)) * moved
    return result
