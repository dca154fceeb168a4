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


_MAX_EXPONENT = 700.0  #: that `math.exp` takes


def to_unit(value: float, minimum: float, maximum: float, scale: Scale) -> float:
    """The position of a value in the unit interval. 0.5 for a range of one value."""
    if maximum <= minimum:
        return 0.5
    if scale is Scale.LOG:
        return _log_ratio(value, minimum) / _log_ratio(maximum, minimum)
    if scale is Scale.REVERSE_LOG:
        mirrored = max(minimum, minimum + maximum - value)  # the minimum may be lost beside the maximum
        return 1 - _log_ratio(mirrored, minimum) / _log_ratio(maximum, minimum)
    if math.isinf(maximum - minimum):
        value, minimum, maximum = value / 2, minimum / 2, maximum / 2
    return (value - minimum) / (maximum - minimum)


def from_unit(unit: float, minimum: float, maximum: float, scale: Scale) -> float:
    """The value at a position in the unit interval, within the range."""
    if scale is Scale.LOG:
        value = _grown(minimum, unit * _log_ratio(maximum, minimum))
    elif scale is Scale.REVERSE_LOG:
        value = minimum + maximum - _grown(minimum, (1 - unit) * _log_ratio(maximum, minimum))
    elif math.isinf(maximum - minimum):
        value = (1 - unit) * minimum + unit * maximum
    else:
        value = minimum + unit * (maximum - minimum)
    return min(max(value, minimum), maximum)


def _log_ratio(value: float, minimum: float) -> float:
    """The logarithm of a quotient, which may be too large for a float."""
    ratio = value / minimum
    return math.log(value) - math.log(minimum) if math.isinf(ratio) else math.log(ratio)


def _grown(minimum: float, exponent: float) -> float:
    if exponent <= _MAX_EXPONENT:
        return minimum * math.exp(exponent)
    return math.exp(min(math.log(minimum) + exponent, 709.78))  # the logarithm of the largest float
