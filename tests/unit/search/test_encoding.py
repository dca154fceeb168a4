"""Points as rows: what is encoded is decoded, candidates are points, children are neutral where they do not exist."""

from __future__ import annotations

import numpy as np
import pytest

from trainshed.domain.tuning.scales import Scale
from trainshed.domain.tuning.simple_search import grid
from trainshed.domain.tuning.space import ChildParameter, ParameterKind, ParameterSpec, Point, Space
from trainshed.search.encoding import Encoding

RATE = ParameterSpec(name="rate", kind=ParameterKind.DOUBLE, minimum=1e-4, maximum=1.0, scale=Scale.LOG)
UNITS = ParameterSpec(name="units", kind=ParameterKind.INTEGER, minimum=1, maximum=40, scale=Scale.REVERSE_LOG)
BATCH = ParameterSpec(name="batch", kind=ParameterKind.DISCRETE, values=(32.0, 64.0, 128.5))
MANY = ParameterSpec(name="many", kind=ParameterKind.INTEGER, minimum=1, maximum=1_000_000)
DEPTH = ParameterSpec(name="depth", kind=ParameterKind.INTEGER, minimum=1, maximum=3)
WIDE = ParameterSpec(name="depth", kind=ParameterKind.DISCRETE, values=(7.0, 9.0))
KIND = ParameterSpec(
    name="kind",
    kind=ParameterKind.CATEGORICAL,
    values=("linear", "deep", "wide"),
    children=(
        ChildParameter(parent_values=("deep",), parameter=DEPTH),
        ChildParameter(parent_values=("wide",), parameter=WIDE),
    ),
)
SPACE = Space(parameters=(RATE, UNITS, BATCH, MANY, KIND)).checked("params")


def test_points_come_back() -> None:
    encoding = Encoding(SPACE)
    kinds: tuple[Point, ...] = ({"kind": "linear"}, {"kind": "deep", "depth": 2}, {"kind": "wide", "depth": 9.0})
    for kind in kinds:
        point: Point = {"rate": 0.02, "units": 39, "batch": 128.5, "many": 4711, **kind}
        [row] = encoding.encode([point])
        assert encoding.decode(row) == {**point, "rate": pytest.approx(0.02)}


def test_children_that_do_not_exist_are_neutral() -> None:
    encoding = Encoding(Space(parameters=(KIND,)))
    rows = encoding.encode([{"kind": "linear"}, {"kind": "deep", "depth": 1}])
    assert rows.tolist() == [[0, 0.5, 0.5], [1, 0, 0.5]]


def test_drawn_and_snapped_rows_are_points() -> None:
    encoding, rng = Encoding(SPACE), np.random.default_rng(1)
    drawn = encoding.draw(rng.random((300, len(encoding))))
    snapped = encoding.snap(drawn + rng.normal(0, 0.5, drawn.shape))
    for row in (*drawn, *snapped):
        point = encoding.decode(row)
        assert SPACE.read_point(point, "") == point
    kinds = {encoding.decode(row)["kind"] for row in drawn}
    assert kinds == {"linear", "deep", "wide"}


def test_every_point_of_a_finite_space_has_a_row_of_its_own() -> None:
    space = Space(parameters=(UNITS, BATCH, KIND))
    points = list(grid(space))
    rows = Encoding(space).encode(points)
    assert len(np.unique(rows, axis=0)) == len(points) == space.size
    assert (Encoding(space).snap(rows) == rows).all()
