"""Attributions on functions whose true ones are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from trainshed.serving.explain.attribution import integrated_gradients, sampled_shapley

Rows = dict[str, NDArray[Any]]

numbers = st.lists(st.floats(-10, 10), min_size=4, max_size=4)


@given(numbers, numbers, st.integers(1, 100))
def test_integrated_gradients_of_a_linear_model_are_exact(x: list[float], start: list[float], steps: int) -> None:
    weights = np.array([1.0, -2.0, 0.5, 3.0])
    found = integrated_gradients(
        lambda rows: {"x": np.tile(weights, (len(rows["x"]), 1))},
        {"x": np.array(x)},
        {"x": np.array(start)},
        steps=steps,
    )
    assert found.values["x"] == pytest.approx(weights * (np.array(x) - start), abs=1e-9)


def test_integrated_gradients_of_a_curve_add_up_to_the_difference() -> None:
    def gradient(rows: Rows) -> Rows:
        return {"a": 3 * rows["a"] ** 2 * rows["b"][:, None], "b": (rows["a"] ** 3).sum(axis=1)}

    instance: Rows = {"a": np.array([1.0, 2.0]), "b": np.array(0.5), "kept": np.array([7])}
    zeros: Rows = {"a": np.zeros(2), "b": np.array(0.0)}
    found = integrated_gradients(gradient, instance, zeros, steps=200)
    total = sum(float(value.sum()) for value in found.values.values())
    assert total == pytest.approx(0.5 * (1 + 8), rel=1e-4)
    assert found.values["b"] == pytest.approx(0.5 * 9 / 4, rel=1e-3)  # a quarter of the way up is b's
    assert set(found.values) == {"a", "b"}


def test_inputs_of_the_line_keep_their_type() -> None:
    seen: set[np.dtype[Any]] = set()

    def gradient(rows: Rows) -> Rows:
        seen.add(rows["x"].dtype)
        return {"x": np.ones_like(rows["x"])}

    integrated_gradients(gradient, {"x": np.ones(2, np.float32)}, {"x": np.zeros(2, np.float32)}, steps=3)
    assert seen == {np.dtype(np.float32)}


def shapley(score: Any, x: list[float], *, paths: int, start: list[float] | None = None) -> Any:
    return sampled_shapley(
        lambda rows: score(rows["x"]),
        {"x": np.array(x)},
        {"x": np.array(start or [0.0] * len(x))},
        paths=paths,
        rng=np.random.default_rng(0),
    )


@given(numbers, numbers, st.integers(1, 5))
def test_sampled_shapley_of_a_linear_model_is_exact(x: list[float], start: list[float], paths: int) -> None:
    weights = np.array([1.0, -2.0, 0.5, 3.0])
    found = shapley(lambda rows: rows @ weights, x, paths=paths, start=start)
    assert found.values["x"] == pytest.approx(weights * (np.array(x) - start), abs=1e-9)
    assert found.spread == pytest.approx(0, abs=1e-9)


@given(numbers, st.integers(1, 5))
def test_sampled_shapley_adds_up_to_the_difference(x: list[float], paths: int) -> None:
    def score(rows: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(rows[:, 0] * rows[:, 1] + np.abs(rows[:, 2]) * rows[:, 3])

    found = shapley(score, x, paths=paths)
    assert found.values["x"].sum() == pytest.approx(float(score(np.array([x]))[0]), abs=1e-9)


def test_sampled_shapley_shares_a_product() -> None:
    found = shapley(lambda rows: rows[:, 0] * rows[:, 1], [3.0, 4.0, 5.0], paths=2000)
    assert found.values["x"] == pytest.approx([6, 6, 0], abs=5 * found.spread)
    assert 0 < found.spread < 0.3


def test_long_rows_are_walked_in_batches() -> None:
    sizes: list[int] = []

    def score(rows: NDArray[Any]) -> NDArray[Any]:
        sizes.append(len(rows))
        return np.asarray(rows.sum(axis=1))

    found = shapley(score, [1.0] * 200, paths=1)
    assert found.values["x"] == pytest.approx(np.ones(200))
    assert sum(sizes) == 201
    assert max(sizes) <= 64


def test_strings_take_their_place_too() -> None:
    words = np.empty(2, object)
    words[:] = [b"good", b"day"]
    nothing = np.empty(2, object)
    nothing[:] = [b"", b""]
    found = sampled_shapley(
        lambda rows: np.array([sum(len(word) for word in row) for row in rows["w"]], np.float64),
        {"w": words, "kept": np.array(1)},
        {"w": nothing},
        paths=2,
        rng=np.random.default_rng(0),
    )
    assert found.values["w"].tolist() == [4, 3]
