"""What counts as another answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainshed.domain.models.answer_difference import same
from trainshed.services.models.replays import LoggedRequest, difference


@pytest.mark.parametrize(
    ("old", "new", "equal"),
    [
        (1, 1, True),
        (1, 2, False),
        (1, 1.0, False),
        (True, 1, False),
        ("a", "a", True),
        (None, None, True),
        (0.5, 0.5000001, True),
        (0.5, 0.51, False),
        (0.0, 1e-6, True),
        (float("nan"), float("nan"), True),
        (float("inf"), float("inf"), True),
        (float("inf"), float("-inf"), False),
        ([0.1, [2]], [0.10000001, [2]], True),
        ([1], [1, 1], False),
        ({"a": 0.1}, {"a": 0.1}, True),
        ({"a": 1}, {"b": 1}, False),
    ],
)
def test_numbers_may_differ_by_float_error_and_nothing_else_may(old: Any, new: Any, equal: bool) -> None:
    assert same(old, new) is equal
    assert same(new, old) is equal


def logged(instances: Any, predictions: Any) -> LoggedRequest:
    request, answer = json.dumps({"instances": instances}), json.dumps({"predictions": predictions})
    return LoggedRequest("2026-11-16T00:00:00Z", request, answer, 1.0)


def test_the_first_instance_that_differs_is_shown() -> None:
    before = logged([10, 20, 30], [1, 2, 3])
    assert difference(before, '{"predictions": [1, 2, 3]}') is None
    assert difference(before, '{"predictions":[1,5,6]}') == {"instance": 20, "before": 2, "after": 5}


@pytest.mark.parametrize("answer", ['{"error": {"code": 500}}', '{"predictions": [1]}', "no JSON", ""])
def test_an_answer_that_can_not_be_held_against_the_old_one_is_shown_whole(answer: str) -> None:
    found = difference(logged([1, 2], [3, 4]), answer)
    assert found is not None
    assert (found["instance"], found["before"]) == ([1, 2], {"predictions": [3, 4]})
