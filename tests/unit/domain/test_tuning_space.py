"""Parameter spaces: scales, samples, conditional children, points and their texts."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from trainshed.domain.tuning.scales import Scale, from_unit, to_unit
from trainshed.domain.tuning.space import ChildParameter, ParameterKind, ParameterSpec, Point, Space, point_key
from trainshed.errors import InvalidArgumentError

RATE = ParameterSpec(name="rate", kind=ParameterKind.DOUBLE, minimum=1e-4, maximum=1.0, scale=Scale.LOG)
UNITS = ParameterSpec(name="units", kind=ParameterKind.INTEGER, minimum=1, maximum=4)
BATCH = ParameterSpec(name="batch", kind=ParameterKind.DISCRETE, values=(32.0, 64.0, 128.5))
DEPTH = ParameterSpec(name="depth", kind=ParameterKind.INTEGER, minimum=1, maximum=3)
KIND = ParameterSpec(
    name="kind",
    kind=ParameterKind.CATEGORICAL,
    values=("linear", "deep"),
    children=(
        ChildParameter(parent_values=("deep",), parameter=DEPTH),
        ChildParameter(parent_values=("linear",), parameter=BATCH),
    ),
)


def space(*parameters: ParameterSpec) -> Space:
    return Space(parameters=parameters).checked("params")


@pytest.mark.parametrize("scale", list(Scale))
def test_scales_have_an_inverse_and_keep_the_ends(scale: Scale) -> None:
    assert [to_unit(value, 0.5, 8, scale) for value in (0.5, 8)] == pytest.approx([0, 1])
    for unit in (0.0, 0.1, 0.5, 0.9, 1.0):
        assert to_unit(from_unit(unit, 0.5, 8, scale), 0.5, 8, scale) == pytest.approx(unit)
    assert to_unit(3, 3, 3, scale) == 0.5


def test_logarithmic_scales_are_fine_at_one_end() -> None:
    assert from_unit(0.5, 1, 100, Scale.LOG) == pytest.approx(10)
    assert from_unit(0.5, 1, 100, Scale.REVERSE_LOG) == pytest.approx(91)


@pytest.mark.parametrize("scale", [Scale.NONE, Scale.LOG, Scale.REVERSE_LOG])
def test_samples_of_integers_reach_every_value(scale: Scale) -> None:
    parameter = ParameterSpec(name="n", kind=ParameterKind.INTEGER, minimum=1, maximum=5, scale=scale)
    values = [parameter.sample(number / 1000) for number in range(1000)]
    assert set(values) == {1, 2, 3, 4, 5} and values == sorted(values, key=int)


def test_samples_of_lists_are_even() -> None:
    values = [BATCH.sample(number / 300) for number in range(300)]
    assert [values.count(value) for value in BATCH.values] == [100, 100, 100]
    assert BATCH.sample(0.9999999) == 128.5


def test_positions_of_discrete_values_are_even_without_a_scale() -> None:
    assert [BATCH.position(value) for value in BATCH.values] == [0, 0.5, 1]
    linear = ParameterSpec(name="n", kind=ParameterKind.DISCRETE, values=(0.0, 1.0, 10.0), scale=Scale.LINEAR)
    assert linear.position(1.0) == pytest.approx(0.1)


def test_the_centre_is_the_middle_of_each_scale() -> None:
    assert space(RATE, UNITS, KIND).centre() == {
        "rate": pytest.approx(0.01),
        "units": 3,
        "kind": "linear",
        "batch": 64.0,
    }


def test_texts_are_what_trainers_parse() -> None:
    point: Point = {"rate": 0.03139237642288208, "units": 2, "kind": "linear", "batch": 64.0}
    assert space(RATE, UNITS, KIND).texts(point) == {
        "rate": "0.03139237642288208",
        "units": "2",
        "kind": "linear",
        "batch": "64",
    }
    assert BATCH.text(128.5) == "128.5" and RATE.text(1.0) == "1.0"


def test_children_exist_where_their_parent_has_their_value() -> None:
    conditional = space(KIND)
    assert [parameter.name for parameter in conditional.active({"kind": "deep", "depth": 2})] == ["kind", "depth"]
    assert conditional.read_point({"kind": "deep", "depth": 2.0}, "p") == {"kind": "deep", "depth": 2}
    assert conditional.size == 3 + 3
    assert space(KIND, UNITS).size == 24 and space(RATE).size is None


@pytest.mark.parametrize(
    "values",
    [
        {"kind": "deep"},
        {"kind": "deep", "depth": 4},
        {"kind": "deep", "depth": 1.5},
        {"kind": "deep", "depth": True},
        {"kind": "deep", "depth": 1, "batch": 64},
        {"kind": "other"},
        {"kind": "linear", "batch": 65},
        {"kind": "linear", "batch": "64"},
        {},
    ],
)
def test_points_outside_of_the_space_are_refused(values: Mapping[str, object]) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        space(KIND).read_point(values, "trial.parameters")
    assert error.value.field == "trial.parameters"


def test_points_of_an_earlier_space_are_adopted() -> None:
    assert space(RATE, UNITS).adopt({"units": 2, "gone": "x"}) == {"rate": pytest.approx(0.01), "units": 2}
    assert space(UNITS).adopt({"units": 9}) is None


def test_equal_points_have_equal_keys() -> None:
    assert point_key({"a": 1, "b": "x"}) == point_key({"b": "x", "a": 1.0}) != point_key({"a": 2, "b": "x"})


def double(low: float, high: float, scale: Scale = Scale.NONE) -> ParameterSpec:
    return ParameterSpec(name="x", kind=ParameterKind.DOUBLE, minimum=low, maximum=high, scale=scale)


def discrete(*values: float) -> ParameterSpec:
    return ParameterSpec(name="x", kind=ParameterKind.DISCRETE, values=values)


def parent(*children: ChildParameter, name: str = "x") -> ParameterSpec:
    return ParameterSpec(name=name, kind=ParameterKind.CATEGORICAL, values=("a", "b"), children=children)


@pytest.mark.parametrize(
    ("parameter", "field"),
    [
        (double(2, 1), "params[0]"),
        (double(0, 1, Scale.LOG), "params[0]"),
        (double(float("nan"), 1), "params[0]"),
        (double(0, float("inf")), "params[0]"),
        (ParameterSpec(name="x", kind=ParameterKind.INTEGER, minimum=1, maximum=2.5), "params[0]"),
        (ParameterSpec(name="", kind=ParameterKind.INTEGER, minimum=1, maximum=2), "params[0]"),
        (discrete(), "params[0]"),
        (discrete(1, 1), "params[0]"),
        (discrete(*range(1001)), "params[0]"),
        (ParameterSpec(name="x", kind=ParameterKind.CATEGORICAL, values=("a", "a")), "params[0]"),
        (ParameterSpec(name="x", kind=ParameterKind.CATEGORICAL, values=("a",), scale=Scale.LINEAR), "params[0]"),
        (parent(ChildParameter(parent_values=(), parameter=UNITS)), "params[0].child_parameter_specs[0]"),
        (parent(ChildParameter(parent_values=("c",), parameter=UNITS)), "params[0].child_parameter_specs[0]"),
        (parent(ChildParameter(parent_values=("a",), parameter=discrete(2))), "params[0]"),
        (parent(*2 * [ChildParameter(parent_values=("a",), parameter=UNITS)]), "params[0]"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_parameters_are_named(parameter: ParameterSpec, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        space(parameter)
    assert error.value.field == field


def test_a_name_is_given_once() -> None:
    with pytest.raises(InvalidArgumentError) as error:
        space(UNITS, parent(ChildParameter(parent_values=("a",), parameter=UNITS)))
    assert error.value.field == "params[1]"
    with pytest.raises(InvalidArgumentError):
        space()
    children = [ChildParameter(parent_values=(value,), parameter=UNITS) for value in ("a", "b")]
    assert space(parent(*children)).size == 8  # one name at different values of the parent
