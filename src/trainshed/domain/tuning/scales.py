"""Scales: how the range of a number maps to the unit interval."""

from __future__ import annotations

import math
from enum import StrEnum


class Scale(StrEnum):
    """How a numeric parameter is searched. The API's names have UNIT_ before and _SCALE after them."""

    NONE = "NONE"  #: not declared. Linear, and evenly spaced for DISCRETE
    LINEAR = "LINEAR"
    LOG = "LOG"  #: fine near the minimum
    REVERSE_LOG = "REVERSE_LOG"  #: fine near the maximum


LOGARITHMIC = frozenset({Scale.LOG, Scale.REVERSE_LOG})  #: need a range above 0


def to_unit(value: float, minimum: float, maximum: float, scale: Scale) -> float:
    """The position of a value in the unit interval. 0.5 for a range of one value."""
    if maximum <= minimum:
        return 0.5
    if scale is Scale.LOG:
        return math.log(value / minimum) / math.log(maximum / minimum)
    if scale is Scale.REVERSE_LOG:
        return 1 - math.log((minimum + maximum - value) / minimum) / math.log(maximum / minimum)
    return (value - minimum) / (maximum - minimum)


def from_unit(unit: float, minimum: float, maximum: float, scale: Scale) -> float:
    """The value at a position in the unit interval, within the range."""
    if scale is Scale.LOG:
        value = minimum * math.exp(unit * math.log(maximum / minimum))
    elif scale is Scale.REVERSE_LOG:
        value = minimum + maximum - minimum * math.exp((1 - unit) * math.log(maximum / minimum))
    else:
        value = minimum + unit * (maximum - minimum)
    return min(max(value, minimum), maximum)
