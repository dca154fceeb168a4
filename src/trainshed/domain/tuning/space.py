"""Parameter spaces: what a search may choose, its points, and the text of their values.

A parameter may have children, which exist only where it has certain values. So a space is a forest, and a point has the
values of the parameters that are active in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from trainshed.domain.tuning.scales import LOGARITHMIC, Scale, from_unit, to_unit
from trainshed.errors import InvalidArgumentError

Value = float | int | str  #: float of DOUBLE and DISCRETE, int of INTEGER, str of CATEGORICAL
Point = Mapping[str, Value]  #: the values of the active parameters, by name, parents before children
PointKey = frozenset[tuple[str, Value]]  #: equal for equal points

MAX_PARAMETERS = 100  #: of a space, children included
MAX_VALUES = 1000  #: of one CATEGORICAL or DISCRETE parameter
MAX_DEPTH = 8  #: of children of children


class ParameterKind(StrEnum):
    """The API's types of parameters."""

    DOUBLE = "DOUBLE"
    INTEGER = "INTEGER"
    CATEGORICAL = "CATEGORICAL"
    DISCRETE = "DISCRETE"  #: some numbers, increasing


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSpec:
    """One parameter. A value: `Space.checked` says whether it is valid."""

    name: str
    kind: ParameterKind
    minimum: float = 0.0  #: of DOUBLE; of INTEGER, then an int
    maximum: float = 0.0
    values: tuple[Value, ...] = ()  #: strings of CATEGORICAL, floats of DISCRETE
    scale: Scale = Scale.NONE
    children: tuple[ChildParameter, ...] = ()

    @property
    def ordered(self) -> bool:
        return self.kind is not ParameterKind.CATEGORICAL

    @property
    def size(self) -> int | None:
        """The number of values, children left out. Returns None if they can't be counted."""
        if self.kind is ParameterKind.INTEGER:
            return int(self.maximum) - int(self.minimum) + 1
        if self.kind is ParameterKind.DOUBLE:
            return 1 if self.minimum == self.maximum else None
        return len(self.values)

    def value_at(self, index: int) -> Value:
        """The value of this number, from 0. Only for parameters that have a size."""
        if self.kind is ParameterKind.INTEGER:
            return int(self.minimum) + index
        return self.minimum if self.kind is ParameterKind.DOUBLE else self.values[index]

    def sample(self, unit: float) -> Value:
        """The value for a number in [0, 1). Uniform numbers give values that are uniform on the scale."""
        if self.values:
            return self.values[min(int(unit * len(self.values)), len(self.values) - 1)]
        if self.kind is ParameterKind.DOUBLE:
            return from_unit(unit, self.minimum, self.maximum, self.scale)
        low, high = self.minimum, self.maximum
        if self.scale is Scale.REVERSE_LOG:  # cells of width 1 as in the logarithm, seen from the other end
            return int(low) + int(high) - _floor(from_unit(1 - unit, low, high + 1, Scale.LOG), high)
        return _floor(from_unit(unit, low, high + 1, self.scale), high)

    def position(self, value: Value) -> float:
        """The place of a value in the unit interval. Only for ordered parameters."""
        number = float(value)
        if self.kind is not ParameterKind.DISCRETE:
            return to_unit(number, self.minimum, self.maximum, self.scale)
        if self.scale is Scale.NONE:
            return 0.5 if len(self.values) == 1 else self.values.index(number) / (len(self.values) - 1)
        return to_unit(number, float(self.values[0]), float(self.values[-1]), self.scale)

    def centre(self) -> Value:
        """The middle of the scale, or of the list of values. The first one of CATEGORICAL."""
        if self.kind is ParameterKind.CATEGORICAL:
            return self.values[0]
        if self.kind is ParameterKind.DISCRETE:
            return self.values[(len(self.values) - 1) // 2]
        middle = from_unit(0.5, self.minimum, self.maximum, self.scale)
        return middle if self.kind is ParameterKind.DOUBLE else _floor(middle + 0.5, self.maximum)

    def active_children(self, value: Value) -> Iterator[ParameterSpec]:
        """The children that exist where this parameter has this value."""
        return (child.parameter for child in self.children if value in child.parent_values)

    def read(self, value: object, path: str) -> Value:
        """Return a value in its normal type. Raises `InvalidArgumentError` if the parameter can't have it."""
        result = self._normal(value)
        if result is None:
            raise InvalidArgumentError(
                f"Parameter {self.name!r} can't be {value!r}. It is {self.describe()}.", field=path
            )
        return result

    def _normal(self, value: object) -> Value | None:
        if self.kind is ParameterKind.CATEGORICAL:
            return value if isinstance(value, str) and value in self.values else None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return None
        if self.kind is ParameterKind.DISCRETE:
            return float(value) if value in self.values else None
        if not self.minimum <= value <= self.maximum:
            return None
        if self.kind is ParameterKind.DOUBLE:
            return float(value)
        return int(value) if value == int(value) else None

    def describe(self) -> str:
        """What values are possible, as the end of a sentence."""
        if self.kind in (ParameterKind.CATEGORICAL, ParameterKind.DISCRETE):
            shown = ", ".join(self.text(value) for value in self.values[:10])
            more = f" and {len(self.values) - 10} more" if len(self.values) > 10 else ""
            return f"one of {shown}{more}"
        what = "a whole number" if self.kind is ParameterKind.INTEGER else "a number"
        return f"{what} from {self.text(self.minimum)} to {self.text(self.maximum)}"

    def text(self, value: Value) -> str:
        """The text of a value, as trainers get it: `46`, `0.03139237642288208`, `512` of DISCRETE, too."""
        if isinstance(value, float) and self.kind is not ParameterKind.DOUBLE and value.is_integer():
            return str(int(value))
        return value if isinstance(value, str) else repr(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildParameter:
    """A parameter that exists only where its parent has one of these values."""

    parent_values: tuple[Value, ...]
    parameter: ParameterSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The parameters of a search, in the order in which they were given."""

    parameters: tuple[ParameterSpec, ...]

    def checked(self, path: str) -> Space:
        """Return this space. Raises `InvalidArgumentError` if it is not valid; `path` is the API's name of its list."""
        if not self.parameters:
            raise InvalidArgumentError("A search needs a parameter at least.", field=path)
        if (count := sum(1 for _ in self.all_parameters())) > MAX_PARAMETERS:
            raise InvalidArgumentError(f"There are {count} parameters; {MAX_PARAMETERS} are allowed.", field=path)
        names: set[str] = set()
        for number, parameter in enumerate(self.parameters):
            here = f"{path}[{number}]"
            below = _names_below(parameter)
            _check_tree(parameter, here, MAX_DEPTH)
            if twice := names & below:
                raise InvalidArgumentError(f"Parameter {min(twice)!r} is given twice.", field=here)
            names |= below
        return self

    def all_parameters(self) -> Iterator[ParameterSpec]:
        """All parameters, parents before children, active or not."""
        pending = list(reversed(self.parameters))
        while pending:
            parameter = pending.pop()
            yield parameter
            pending += [child.parameter for child in reversed(parameter.children)]

    def build(self, choose: Callable[[ParameterSpec], Value]) -> dict[str, Value]:
        """Return the point that `choose` gives. It is called for active parameters alone, parents first."""
        point: dict[str, Value] = {}
        pending = list(reversed(self.parameters))
        while pending:
            parameter = pending.pop()
            value = point[parameter.name] = choose(parameter)
            pending += reversed(list(parameter.active_children(value)))
        return point

    def active(self, point: Point) -> Iterator[ParameterSpec]:
        """The parameters that exist in a point, parents before children."""
        parameters: list[ParameterSpec] = []

        def value_of(parameter: ParameterSpec) -> Value:
            parameters.append(parameter)
            return point[parameter.name]

        self.build(value_of)
        return iter(parameters)

    def read_point(self, values: Mapping[str, object], path: str) -> dict[str, Value]:
        """Return a user's point in its normal form.

        Raises `InvalidArgumentError` if a value is missing, not possible or of no active parameter.
        """

        known = dict.fromkeys(parameter.name for parameter in self.all_parameters())
        if strange := sorted(set(values) - set(known)):
            raise InvalidArgumentError(
                f"Parameter {strange[0]!r} is not part of the search. Its parameters are {', '.join(known)}.",
                field=path,
            )

        def read(parameter: ParameterSpec) -> Value:
            if parameter.name not in values:
                raise InvalidArgumentError(
                    f"Parameter {parameter.name!r} has no value. Give one for each parameter.", field=path
                )
            return parameter.read(values[parameter.name], path)

        point = self.build(read)
        if unknown := sorted(set(values) - set(point)):
            raise InvalidArgumentError(
                f"Parameter {unknown[0]!r} does not exist beside the other values. Leave it out.", field=path
            )
        return point

    def centre(self) -> dict[str, Value]:
        return self.build(ParameterSpec.centre)

    def adopt(self, point: Point) -> dict[str, Value] | None:
        """Return a point of another space as one of this space, for a search that goes on with a changed space.

        Parameters that are not in this space are left out. New ones have their centre. Returns None if a value is
        outside of this space.
        """

        def value_of(parameter: ParameterSpec) -> Value:
            return parameter.read(point[parameter.name], "") if parameter.name in point else parameter.centre()

        try:
            return self.build(value_of)
        except InvalidArgumentError:
            return None

    def texts(self, point: Point) -> dict[str, str]:
        """The texts of a point's values, by name."""
        return {parameter.name: parameter.text(point[parameter.name]) for parameter in self.active(point)}

    @property
    def size(self) -> int | None:
        """The number of points. Returns None if they can't be counted."""
        return _product(map(_points_below, self.parameters))


def point_key(point: Point) -> PointKey:
    """What is equal for equal points. 1 and 1.0 are equal."""
    return frozenset(point.items())


def _floor(value: float, highest: float) -> int:
    return min(math.floor(value), int(highest))


def _product(counts: Iterator[int | None]) -> int | None:
    result = 1
    for count in counts:
        if count is None:
            return None
        result *= count
    return result


def _points_below(parameter: ParameterSpec) -> int | None:
    """The number of points of a parameter with its children."""
    if not parameter.children:
        return parameter.size
    total = 0
    for index in range(parameter.size or 0):
        below = _product(map(_points_below, parameter.active_children(parameter.value_at(index))))
        if below is None:
            return None
        total += below
    return total


def _names_below(parameter: ParameterSpec) -> set[str]:
    return {each.name for each in Space(parameters=(parameter,)).all_parameters()}


def _check_tree(parameter: ParameterSpec, path: str, depth: int) -> None:
    _check_parameter(parameter, path)
    if parameter.children and depth == 0:
        raise InvalidArgumentError(f"Children are nested more than {MAX_DEPTH} deep.", field=path)
    if parameter.children and parameter.kind is ParameterKind.DOUBLE:
        raise InvalidArgumentError("A DOUBLE parameter can't have children.", field=path)
    if parameter.children and (parameter.size or 0) > MAX_VALUES:
        raise InvalidArgumentError(f"A parameter with children has {MAX_VALUES} values at most.", field=path)
    for number, child in enumerate(parameter.children):
        here = f"{path}.child_parameter_specs[{number}]"
        if not child.parent_values:
            raise InvalidArgumentError("It is not said for which values of its parent it exists.", field=here)
        for value in child.parent_values:
            parameter.read(value, here)
        _check_tree(child.parameter, here, depth - 1)
    _check_names_of_children(parameter, path)


def _check_names_of_children(parameter: ParameterSpec, path: str) -> None:
    """No name twice along a branch, and none twice among the children of one value."""
    below = {name for child in parameter.children for name in _names_below(child.parameter)}
    if parameter.name in below:
        raise InvalidArgumentError(f"Parameter {parameter.name!r} is below itself.", field=path)
    for value in {value for child in parameter.children for value in child.parent_values}:
        names: set[str] = set()
        for child in parameter.active_children(value):
            if twice := names & _names_below(child):
                raise InvalidArgumentError(
                    f"Child {min(twice)!r} is given twice where {parameter.name!r} is {parameter.text(value)}. "
                    f"Children of one name need different values of their parent.",
                    field=path,
                )
            names |= _names_below(child)


def _check_parameter(parameter: ParameterSpec, path: str) -> None:
    if not parameter.name:
        raise InvalidArgumentError("The parameter has no name.", field=path)
    if parameter.kind in (ParameterKind.DOUBLE, ParameterKind.INTEGER):
        _check_range(parameter, path)
    else:
        _check_values(parameter, path)


def _check_range(parameter: ParameterSpec, path: str) -> None:
    low, high = parameter.minimum, parameter.maximum
    if not math.isfinite(low) or not math.isfinite(high) or low > high:
        raise InvalidArgumentError(
            f"The minimum of {parameter.name!r} is {low}, its maximum {high}. The minimum can't be above.", field=path
        )
    if parameter.kind is ParameterKind.INTEGER and (int(low) != low or int(high) != high):
        raise InvalidArgumentError(f"The range of {parameter.name!r} is not of whole numbers.", field=path)
    _check_scale(parameter, low, path)


def _check_values(parameter: ParameterSpec, path: str) -> None:
    values = parameter.values
    if not 1 <= len(values) <= MAX_VALUES:
        raise InvalidArgumentError(
            f"Parameter {parameter.name!r} has {len(values)} values; 1 to {MAX_VALUES} are allowed.", field=path
        )
    if parameter.kind is ParameterKind.CATEGORICAL:
        if len(set(values)) < len(values):
            raise InvalidArgumentError(f"A value of {parameter.name!r} is given twice.", field=path)
        if parameter.scale is not Scale.NONE:
            raise InvalidArgumentError(f"A CATEGORICAL parameter has no scale; {parameter.name!r} has one.", field=path)
        return
    numbers = [float(value) for value in values]
    if any(low >= high for low, high in pairwise(numbers)):
        raise InvalidArgumentError(f"The values of {parameter.name!r} are not strictly increasing.", field=path)
    _check_scale(parameter, numbers[0], path)


def _check_scale(parameter: ParameterSpec, lowest: float, path: str) -> None:
    if parameter.scale in LOGARITHMIC and lowest <= 0:
        raise InvalidArgumentError(
            f"A logarithmic scale needs a range above 0; that of {parameter.name!r} starts at {lowest}.", field=path
        )
