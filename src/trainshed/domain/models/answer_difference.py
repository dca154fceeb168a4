"""Whether two answers to one request say the same."""

from __future__ import annotations

import json
import math
from typing import Any

RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE = 1e-3, 1e-5  #: tolerances within which floats count as equal


def same_answers(before: str, after: str) -> bool:
    """Whether two bodies of answers have the same values. Floats are compared with a tolerance."""
    return before == after or same(outputs(json_value(before)), outputs(json_value(after)))


def same(old: Any, new: Any) -> bool:
    """Whether two JSON values are equal, floats within a tolerance."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(same(old[key], new[key]) for key in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(same, old, new))
    if isinstance(old, float) and isinstance(new, float):
        both_nan = math.isnan(old) and math.isnan(new)
        return both_nan or math.isclose(old, new, rel_tol=RELATIVE_TOLERANCE, abs_tol=ABSOLUTE_TOLERANCE)
    return type(old) is type(new) and bool(old == new)


def outputs(response: Any) -> Any:
    """The outputs of a response by another protocol, which may name the version too."""
    return response.get("outputs", response) if isinstance(response, dict) else response


def json_value(text: str) -> Any:
    """Parse JSON. Other text is returned unchanged."""
    try:
        return json.loads(text)
    except ValueError:
        return text
