"""Hyperparameters of a training job: parse and check what a tuning job searches for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from trainshed.domain import json_fields as f
from trainshed.domain.names import KEEP_TRIALS_LABEL
from trainshed.domain.tuning.scales import Scale
from trainshed.domain.tuning.search import Algorithm, Goal
from trainshed.domain.tuning.space import ParameterKind, ParameterSpec, Space
from trainshed.errors import InvalidArgumentError

DEFAULT_TAG = "training/hptuning/metric"
MAX_TRIALS = 1000  #: of one job
MAX_TAG_CHARACTERS = 200  #: as in event files
PATH = "hyperparameters"
#: fields that a job that goes on with another one's search takes from it, unless it has its own
INHERITED = ("goal", "hyperparameterMetricTag", "params", "algorithm")

_KEEP_TRIALS_FIELD = f"job.labels.{KEEP_TRIALS_LABEL}"
_UNSPECIFIED_GOAL = "GOAL_TYPE_UNSPECIFIED"
_UNSPECIFIED_TYPE = "PARAMETER_TYPE_UNSPECIFIED"
_ALGORITHMS = {
    "ALGORITHM_UNSPECIFIED": Algorithm.BAYESIAN,
    "GRID_SEARCH": Algorithm.GRID,
    "RANDOM_SEARCH": Algorithm.RANDOM,
}
_SCALES = {
    "NONE": Scale.NONE,
    "UNIT_LINEAR_SCALE": Scale.LINEAR,
    "UNIT_LOG_SCALE": Scale.LOG,
    "UNIT_REVERSE_LOG_SCALE": Scale.REVERSE_LOG,
}
_NAME = re.compile(r"[A-Za-z0-9_][^\s=\x00-\x1f\x7f]{0,127}")
_RESERVED_NAMES = frozenset({"job-dir", "job_dir"})

_PARAMETER = f.message(
    {
        "parameterName": f.string,
        "type": f.enum("ParameterSpec.ParameterType", _UNSPECIFIED_TYPE, *ParameterKind),
        "minValue": f.double,
        "maxValue": f.double,
        "categoricalValues": f.repeated(f.string),
        "discreteValues": f.repeated(f.double),
        "scaleType": f.enum("ParameterSpec.ScaleType", *_SCALES),
    }
)

HYPERPARAMETERS = f.message(
    {
        "goal": f.enum("HyperparameterSpec.GoalType", _UNSPECIFIED_GOAL, *Goal),
        "hyperparameterMetricTag": f.string,
        "maxTrials": f.int32,
        "maxParallelTrials": f.int32,
        "maxFailedTrials": f.int32,
        "enableTrialEarlyStopping": f.boolean,
        "resumePreviousJobId": f.string,
        "algorithm": f.enum("HyperparameterSpec.Algorithm", *_ALGORITHMS),
        "params": f.repeated(_PARAMETER),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Checked hyperparameters, in domain terms."""

    goal: Goal
    tag: str  #: of the metric, as TensorBoard shows it
    max_trials: int
    max_parallel: int
    max_failed: int  #: failed trials that fail the job; 0: see `plan`
    early_stopping: bool
    resume: str  #: the id of an earlier tuning job whose search goes on; or empty
    algorithm: Algorithm
    space: Space

    @classmethod
    def parse(cls, hyperparameters: Mapping[str, Any]) -> Self:
        """Parse hyperparameters that `check_hyperparameters` accepted."""
        goal = hyperparameters.get("goal", _UNSPECIFIED_GOAL)
        return cls(
            goal=Goal.MAXIMIZE if goal == _UNSPECIFIED_GOAL else Goal(goal),
            tag=hyperparameters.get("hyperparameterMetricTag") or DEFAULT_TAG,
            max_trials=hyperparameters.get("maxTrials") or 1,
            max_parallel=hyperparameters.get("maxParallelTrials") or 1,
            max_failed=hyperparameters.get("maxFailedTrials", 0),
            early_stopping=hyperparameters.get("enableTrialEarlyStopping", False),
            resume=hyperparameters.get("resumePreviousJobId", ""),
            algorithm=_ALGORITHMS[hyperparameters.get("algorithm", "ALGORITHM_UNSPECIFIED")],
            space=Space(parameters=tuple(map(_parameter, hyperparameters.get("params", ())))),
        )

    @property
    def sign(self) -> int:
        """What values of the metric are multiplied with, so that higher ones are better."""
        return 1 if self.goal is Goal.MAXIMIZE else -1


def check_hyperparameters(hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return hyperparameters whose types are valid, with the goal filled in.

    Parameters may be missing if an earlier job is resumed: `inherit` adds them. Raises `InvalidArgumentError`, which
    names the field.
    """
    for name, lowest in (("maxTrials", 0), ("maxParallelTrials", 0), ("maxFailedTrials", 0)):
        if hyperparameters.get(name, 0) < lowest:
            raise InvalidArgumentError("This number can't be negative.", field=f"{PATH}.{f.snake(name)}")
    if hyperparameters.get("maxTrials", 0) > MAX_TRIALS:
        raise InvalidArgumentError(
            f"A job has {MAX_TRIALS} trials at most. Go on with another one by resumePreviousJobId.",
            field=f"{PATH}.max_trials",
        )
    tag = hyperparameters.get("hyperparameterMetricTag", "")
    if len(tag) > MAX_TAG_CHARACTERS or "\0" in tag:
        raise InvalidArgumentError(
            f"The tag of a metric has {MAX_TAG_CHARACTERS} characters at most, and no NUL.",
            field=f"{PATH}.hyperparameter_metric_tag",
        )
    if hyperparameters.get("resumePreviousJobId") and not hyperparameters.get("params"):
        return dict(hyperparameters)
    for number, parameter in enumerate(hyperparameters.get("params", ())):
        _check_parameter(parameter, f"{PATH}.params[{number}]")
    filled = _with_goal(hyperparameters) if not hyperparameters.get("resumePreviousJobId") else dict(hyperparameters)
    _check_space(Tuning.parse(filled))
    return filled


def trials_to_keep(labels: Mapping[str, str]) -> int | None:
    """Return how many trials keep their folders. Returns None if all do."""
    return int(labels[KEEP_TRIALS_LABEL]) if KEEP_TRIALS_LABEL in labels else None


def check_keep_trials(labels: Mapping[str, str], tuning: Tuning | None, job_dir: str) -> None:
    """Raise `InvalidArgumentError` if the label of a job is no number, or a search has no folders of trials.

    A job without a search may have the label: one that repeats a trial takes it over. It has no effect there.
    """
    text = labels.get(KEEP_TRIALS_LABEL)
    if text is None:
        return
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MAX_TRIALS):
        raise InvalidArgumentError(
            f"The label {KEEP_TRIALS_LABEL} is {text!r}; it is the number of trials whose folders stay, from 1 to "
            f"{MAX_TRIALS}.",
            field=_KEEP_TRIALS_FIELD,
        )
    if tuning is not None and not job_dir:
        raise InvalidArgumentError(
            f"The label {KEEP_TRIALS_LABEL} removes folders of trials below jobDir, and this job has none. Set jobDir, "
            f"or leave the label out.",
            field=_KEEP_TRIALS_FIELD,
        )


def inherit(hyperparameters: Mapping[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters of a job that goes on with the search of an earlier one.

    Raises `InvalidArgumentError` if both together can't be searched.
    """
    inherited = {name: earlier[name] for name in INHERITED if earlier.get(name) and not hyperparameters.get(name)}
    merged = _with_goal({**hyperparameters, **inherited})
    _check_space(Tuning.parse(merged))
    return merged


def _with_goal(hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    goal = hyperparameters.get("goal", _UNSPECIFIED_GOAL)
    return {**hyperparameters, "goal": Goal.MAXIMIZE.value if goal == _UNSPECIFIED_GOAL else goal}


def _check_space(tuning: Tuning) -> None:
    tuning.space.checked(f"{PATH}.params")
    if tuning.algorithm is Algorithm.GRID:
        for number, parameter in enumerate(tuning.space.parameters):
            if parameter.kind is ParameterKind.DOUBLE:
                raise InvalidArgumentError(
                    f"GRID_SEARCH needs parameters whose values can be counted, and {parameter.name} is DOUBLE. "
                    f"Make it DISCRETE, or use another algorithm.",
                    field=f"{PATH}.params[{number}].type",
                )


def _check_parameter(parameter: Mapping[str, Any], path: str) -> None:
    """Check what the values of a parameter are read from. `Space.checked` does the rest."""
    name, kind = parameter.get("parameterName", ""), parameter.get("type", _UNSPECIFIED_TYPE)
    if not _NAME.fullmatch(name) or name in _RESERVED_NAMES:
        raise InvalidArgumentError(
            f"The name of a parameter becomes a flag of the trainer, such as --learning_rate; {name[:80]!r} can't.",
            field=f"{path}.parameter_name",
        )
    if kind == _UNSPECIFIED_TYPE:
        raise InvalidArgumentError(f"The type of {name} is missing: {', '.join(ParameterKind)}.", field=f"{path}.type")
    is_range = kind in (ParameterKind.DOUBLE, ParameterKind.INTEGER)
    for bound in ("minValue", "maxValue"):
        if is_range and bound not in parameter:
            raise InvalidArgumentError(f"A parameter of type {kind} needs it.", field=f"{path}.{f.snake(bound)}")
        if kind == ParameterKind.CATEGORICAL and parameter.get(bound):
            raise InvalidArgumentError("A CATEGORICAL parameter has no range.", field=f"{path}.{f.snake(bound)}")
        if kind == ParameterKind.INTEGER and not parameter[bound].is_integer():
            raise InvalidArgumentError(
                f"The range of an INTEGER parameter is of whole numbers, and {parameter[bound]:g} is not one.",
                field=f"{path}.{f.snake(bound)}",
            )
    lists = {"categoricalValues": ParameterKind.CATEGORICAL, "discreteValues": ParameterKind.DISCRETE}
    for values, owner in lists.items():
        if parameter.get(values) and kind != owner:
            raise InvalidArgumentError(f"Only {owner} parameters have it.", field=f"{path}.{f.snake(values)}")
        if kind == owner and not parameter.get(values):
            raise InvalidArgumentError(f"A parameter of type {kind} needs it.", field=f"{path}.{f.snake(values)}")
    if any("\0" in value for value in parameter.get("categoricalValues", ())):
        raise InvalidArgumentError(
            "A value holds a NUL character, which no program can be given.", field=f"{path}.categorical_values"
        )


def _parameter(parameter: Mapping[str, Any]) -> ParameterSpec:
    kind = ParameterKind(parameter["type"])
    number = int if kind is ParameterKind.INTEGER else float
    return ParameterSpec(
        name=parameter["parameterName"],
        kind=kind,
        minimum=number(parameter.get("minValue", 0)),
        maximum=number(parameter.get("maxValue", 0)),
        values=tuple(
            parameter["categoricalValues"] if kind is ParameterKind.CATEGORICAL else parameter.get("discreteValues", ())
        )
        if kind in (ParameterKind.CATEGORICAL, ParameterKind.DISCRETE)
        else (),
        scale=_SCALES[parameter.get("scaleType", "NONE")],
    )
