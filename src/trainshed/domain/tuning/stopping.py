"""Early stopping: whether a trial that runs can still become the best one, judged by the curves of completed ones.

Curves are lists of (place, value) in order, where the place is a step or an elapsed time. Values are to be maximized.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

Curve = Sequence[tuple[float, float]]

MEDIAN_MIN_CURVES, MIN_MEASUREMENTS = 5, 3
GAIN_MIN_CURVES, GAIN_QUANTILE = 8, 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingDecision:
    stop: bool
    reason: str  #: with the numbers, for people


def median_rule(curve: Curve, completed: Sequence[Curve]) -> StoppingDecision:
    """Stop if the best value so far is below the median of the others' running averages up to the same place."""
    others = [values for values in (_values_until(other, curve) for other in completed) if values]
    if missing := _too_little(curve, len(others), MEDIAN_MIN_CURVES):
        return missing
    best, middle = max(value for _, value in curve), median(map(fmean, others))
    relation = "below" if best < middle else "not below"
    return StoppingDecision(
        stop=best < middle,
        reason=f"its best value {best:g} is {relation} {middle:g}, the median of the running averages of "
        f"{len(others)} completed trials",
    )


def gain_rule(curve: Curve, completed: Sequence[Curve], best: float) -> StoppingDecision:
    """Stop if the last value stays below the best one even with what almost all others still gained from there on."""
    gains = []
    for other in completed:
        if values := _values_until(other, curve):
            gains.append(other[-1][1] - values[-1])
    if missing := _too_little(curve, len(gains), GAIN_MIN_CURVES):
        return missing
    gain, last = _quantile(gains, GAIN_QUANTILE), curve[-1][1]
    relation = "below" if last + gain < best else "not below"
    return StoppingDecision(
        stop=last + gain < best,
        reason=f"its value {last:g} and {gain:g}, which {GAIN_QUANTILE:.0%} of {len(gains)} completed trials did not "
        f"exceed from there on, are {relation} the best value {best:g}",
    )


def _values_until(other: Curve, curve: Curve) -> list[float]:
    """The values of another curve up to the last place of this one."""
    return [value for place, value in other if place <= curve[-1][0]] if curve else []


def _too_little(curve: Curve, others: int, needed: int) -> StoppingDecision | None:
    if len(curve) < MIN_MEASUREMENTS:
        return StoppingDecision(stop=False, reason=f"it has {len(curve)} measurements; {MIN_MEASUREMENTS} are needed")
    if others < needed:
        return StoppingDecision(stop=False, reason=f"{others} completed trials can be compared; {needed} are needed")
    return None


def _quantile(values: Sequence[float], share: float) -> float:
    """Linear between the two nearest ranks."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
