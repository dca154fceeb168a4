"""Rows for models that take tables, and their answers as plain values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import orjson
import pytest

from trainshed.serving.errors import BadOutputsError, InvalidInputsError
from trainshed.serving.loaders.tabular import plain, predictions, table


def test_numbers_are_floats_whatever_stands_beside_them() -> None:
    alone = table([[1, 2, True]], names=(), width=3)
    beside = table([[1, 2, True], [0.5, None, 7]], names=(), width=3)
    assert alone.dtype == beside.dtype == np.float64
    assert alone[0].tobytes() == beside[0].tobytes()
    assert math.isnan(beside[1, 1])


def test_objects_are_rows_in_the_order_of_the_names() -> None:
    found = table([{"b": 2, "a": 1}], names=("a", "b"), width=2)
    assert found.tolist() == [[1.0, 2.0]]


def test_words_keep_their_type_and_numbers_beside_them_too() -> None:
    found = table([["red", 1], ["blue", 2.5]], names=(), width=2)
    assert found.dtype == object
    assert found.tolist() == [["red", 1], ["blue", 2.5]]


def test_no_instances_are_no_rows() -> None:
    assert table([], names=(), width=4).shape == (0, 4)


@pytest.mark.parametrize(
    ("instances", "names", "width", "words"),
    [
        ([[1, 2]], (), 3, "Instance 0 has 2 values; expected 3"),
        ([[1, 2], [1]], (), 0, "Instance 0 has 2 values and instance 1 has 1"),
        ([7], (), 3, "Instance 0 is a bare value; expected a list of 3 values"),
        (["word"], (), 3, "Instance 0 is text"),
        ([None], (), 0, "Instance 0 is null; expected a list of values"),
        ([[[1], 2]], (), 2, "Instance 0 holds lists"),
        ([{"a": 1}], (), 1, "the model knows no names"),
        ([{"a": 1, "z": 2}], ("a", "b"), 2, "Unexpected feature name: z. Expected: a, b"),
        ([{"a": 1}], ("a", "b"), 2, "Input b was missing in at least one input instance"),
    ],
)
def test_what_is_no_row_is_refused(instances: list[Any], names: tuple[str, ...], width: int, words: str) -> None:
    with pytest.raises(InvalidInputsError, match=words):
        table(instances, names=names, width=width)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (np.array([1, 2]), [1, 2]),
        (np.float32(0.5), 0.5),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.array(["a", None, np.int64(3)], object), ["a", None, 3]),
        ({1: (np.bool_(True), b"\xff")}, {"1": [True, {"b64": "/w=="}]}),
        ([np.array([[1.5]])], [[[1.5]]]),
    ],
)
def test_answers_become_plain(value: Any, wanted: Any) -> None:
    found = plain(value)
    assert found == wanted
    assert orjson.loads(orjson.dumps(found)) == wanted


def test_what_has_no_plain_form_is_refused() -> None:
    with pytest.raises(BadOutputsError, match="answered with a object"):
        plain([object()])
    with pytest.raises(BadOutputsError, match="complex"):
        plain(np.array([1j]))


def test_there_must_be_one_answer_for_each_instance() -> None:
    assert predictions(np.array([1, 2]), count=2) == [1, 2]
    with pytest.raises(BadOutputsError, match="2 predictions to 3 instances"):
        predictions([1, 2], count=3)
    with pytest.raises(BadOutputsError, match="a int to 1 instances"):
        predictions(7, count=1)
