"""Whether a trial that runs is stopped early: two rules over the curves of trials, as pure functions.

All values are such that higher is better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median
from typing import NamedTuple

MIN_MEASUREMENTS = 3  #: of the trial that runs, before either rule is asked
MIN_CURVES_MEDIAN = 5  #: of completed trials
MIN_CURVES_GAIN = 8
_GAIN_QUANTILE = 0.95


class CurvePoint(NamedTuple):
    """A value at a step, or at a time since the start."""

    step: float
    value: float


Curve = Sequence[CurvePoint]


class Stop(NamedTuple):
    """Why a trial is stopped, for people."""

    reason: str


def should_stop(curve: Curve, completed: Sequence[Curve], *, sign: int = 1) -> Stop | None:
    """Return why to stop a trial, or None. Both rules must agree, once there are curves enough for both.

    `sign` turns values back into those of the user, for the sentence.
    """
    by_median = median_rule(curve, completed, sign=sign)
    if by_median is None or len(completed) < MIN_CURVES_GAIN:
        return by_median
    best = max(each.value for other in completed for each in other)
    by_gain = gain_rule(curve, completed, best=best, sign=sign)
    return None if by_gain is None else Stop(f"{by_median.reason} {by_gain.reason}")


def median_rule(curve: Curve, completed: Sequence[Curve], *, sign: int = 1) -> Stop | None:
    """Stop if the best value so far is worse than the median of the others' running averages up to the same step."""
    if len(curve) < MIN_MEASUREMENTS or len(completed) < MIN_CURVES_MEDIAN:
        return None
    last = curve[-1].step
    averages = [fmean(values) for other in completed if (values := [each.value for each in other if each.step <= last])]
    if len(averages) < MIN_CURVES_MEDIAN:
        return None
    best, middle = max(each.value for each in curve), median(averages)
    if best >= middle:
        return None
    return Stop(
        f"Its best value up to {last:g} is {sign * best:.6g}; the median of the averages of {len(averages)} completed "
        f"trials is {sign * middle:.6g}."
    )


def gain_rule(curve: Curve, completed: Sequence[Curve], *, best: float, sign: int = 1) -> Stop | None:
    """Stop if even the gain that one of 20 completed trials still had after this step would not reach the best."""
    if len(curve) < MIN_MEASUREMENTS or len(completed) < MIN_CURVES_GAIN:
        return None
    last = curve[-1]
    gains = []
    for other in completed:
        before = [each.value for each in other if each.step <= last.step]
        if before:
            gains.append(max(each.value for each in other) - before[-1])
    if len(gains) < MIN_CURVES_GAIN:
        return None
    gain = sorted(gains)[math.ceil(_GAIN_QUANTILE * len(gains)) - 1]
    if last.value + gain >= best:
        return None
    return Stop(
        f"It has {sign * last.value:.6g}, and completed trials gained up to {gain:.6g} from there on; the best value "
        f"is {sign * best:.6g}."
    )
