"""Request bodies of studies and trials, read field by field. Names may be in camelCase or snake_case at any depth."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainshed.domain.json_fields import (
    FieldReader,
    boolean,
    double,
    duration,
    duration_s,
    enum,
    int32,
    int64,
    message,
    repeated,
    string,
    upper_case,
)
from trainshed.domain.tuning.scales import Scale
from trainshed.domain.tuning.search import Algorithm, Goal
from trainshed.domain.tuning.space import ChildParameter, ParameterKind, ParameterSpec, Space, Value
from trainshed.domain.tuning.study import Measurement, StoppingRule, StudyConfig, StudyMetric
from trainshed.errors import InvalidArgumentError

_STUDY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_MAX_DEPTH = 10  #: of parameters in parameters, as they are parsed
MAX_METRICS = 20
MAX_SUGGESTIONS = 100  #: of one request

_ALGORITHMS = {
    "ALGORITHM_UNSPECIFIED": Algorithm.BAYESIAN,
    "GAUSSIAN_PROCESS_BANDIT": Algorithm.BAYESIAN,
    "GRID_SEARCH": Algorithm.GRID,
    "RANDOM_SEARCH": Algorithm.RANDOM,
}
_SCALES = {
    "SCALE_TYPE_UNSPECIFIED": Scale.NONE,
    "UNIT_LINEAR_SCALE": Scale.LINEAR,
    "UNIT_LOG_SCALE": Scale.LOG,
    "UNIT_REVERSE_LOG_SCALE": Scale.REVERSE_LOG,
}
_SPECS = {
    ParameterKind.DOUBLE: "doubleValueSpec",
    ParameterKind.INTEGER: "integerValueSpec",
    ParameterKind.CATEGORICAL: "categoricalValueSpec",
    ParameterKind.DISCRETE: "discreteValueSpec",
}
_PARENT_VALUES = {
    ParameterKind.CATEGORICAL: "parentCategoricalValues",
    ParameterKind.DISCRETE: "parentDiscreteValues",
    ParameterKind.INTEGER: "parentIntValues",
}


def study_id(text: str) -> str:
    if not _STUDY_ID.fullmatch(text):
        raise InvalidArgumentError(
            f"A study id is made of letters, digits, _ and -, 128 at most, and starts with a letter or digit; "
            f"{text!r} is not.",
            field="study_id",
        )
    return text


def _parameter_fields(depth: int) -> FieldReader:
    values_of = {
        "doubleValueSpec": message({"minValue": double, "maxValue": double}),
        "integerValueSpec": message({"minValue": int64, "maxValue": int64}),
        "categoricalValueSpec": message({"values": repeated(string)}),
        "discreteValueSpec": message({"values": repeated(double)}),
        "parentCategoricalValues": message({"values": repeated(string)}),
        "parentDiscreteValues": message({"values": repeated(double)}),
        "parentIntValues": message({"values": repeated(int64)}),
    }
    children = repeated(_parameter_fields(depth - 1)) if depth else repeated(message({}))
    return message(
        {
            "parameter": string,
            "type": enum("StudyConfigParameterSpec.ParameterType", "PARAMETER_TYPE_UNSPECIFIED", *ParameterKind),
            "scaleType": enum("StudyConfigParameterSpec.ScaleType", *_SCALES),
            "childParameterSpecs": children,
            **values_of,
        }
    )


_STUDY = message(
    {
        "name": string,
        "state": upper_case,
        "createTime": string,
        "inactiveReason": string,
        "studyConfig": message(
            {
                "metrics": repeated(
                    message({"metric": string, "goal": enum("MetricSpec.GoalType", "GOAL_TYPE_UNSPECIFIED", *Goal)})
                ),
                "parameters": repeated(_parameter_fields(_MAX_DEPTH)),
                "algorithm": enum("StudyConfig.Algorithm", *_ALGORITHMS),
                "automatedStoppingConfig": message(
                    {
                        "decayCurveStoppingConfig": message({"useElapsedTime": boolean}),
                        "medianAutomatedStoppingConfig": message({"useElapsedTime": boolean}),
                    }
                ),
            }
        ),
    }
)
_MEASUREMENT = message(
    {
        "elapsedTime": duration,
        "stepCount": int64,
        "metrics": repeated(message({"metric": string, "value": double})),
    }
)
_TRIAL = message(
    {
        "name": string,
        "state": upper_case,
        "parameters": repeated(
            message({"parameter": string, "floatValue": double, "intValue": int64, "stringValue": string})
        ),
        "measurements": repeated(_MEASUREMENT),
        "finalMeasurement": _MEASUREMENT,
        "startTime": string,
        "endTime": string,
        "clientId": string,
        "trialInfeasible": boolean,
        "infeasibleReason": string,
        "webAccessUris": lambda value, path: value,
    }
)
_SUGGEST = message({"suggestionCount": int32, "clientId": string})
_ADD_MEASUREMENT = message({"measurement": _MEASUREMENT})
_COMPLETE = message({"finalMeasurement": _MEASUREMENT, "trialInfeasible": boolean, "infeasibleReason": string})


def read_study(body: Mapping[str, Any]) -> StudyConfig:
    """Return the configuration in the body of a study. Raises `InvalidArgumentError` if it is not valid."""
    sent = _STUDY(body, "study")
    if "studyConfig" not in sent:
        raise InvalidArgumentError("A study needs a studyConfig.", field="study.study_config")
    return read_config(sent["studyConfig"])


def read_config(config: Mapping[str, Any]) -> StudyConfig:
    """Return a configuration that has the API's normal form, as a row has it."""
    path = "study.study_config"
    metrics = tuple(
        StudyMetric(name=metric.get("metric", ""), goal=_goal(metric)) for metric in config.get("metrics", [])
    )
    if not 1 <= len({metric.name for metric in metrics}) == len(metrics) <= MAX_METRICS:
        raise InvalidArgumentError(
            f"A study has 1 to {MAX_METRICS} metrics, each with a name of its own.", field=f"{path}.metrics"
        )
    if not all(metric.name for metric in metrics):
        raise InvalidArgumentError("A metric has no name.", field=f"{path}.metrics")
    parameters = config.get("parameters", [])
    specs = tuple(_parameter(spec, f"{path}.parameters[{number}]") for number, spec in enumerate(parameters))
    space = Space(parameters=specs).checked(f"{path}.parameters")
    algorithm = _ALGORITHMS[config.get("algorithm", "ALGORITHM_UNSPECIFIED")]
    if algorithm is Algorithm.GRID and space.size is None:
        raise InvalidArgumentError(
            "GRID_SEARCH has no DOUBLE parameters. Use DISCRETE ones, or another algorithm.",
            field=f"{path}.algorithm",
        )
    rule, by_elapsed_time = _stopping(config.get("automatedStoppingConfig", {}), path)
    return StudyConfig(
        space=space,
        metrics=metrics,
        algorithm=algorithm,
        stopping=rule,
        by_elapsed_time=by_elapsed_time,
        body=config,
    )


def _goal(metric: Mapping[str, Any]) -> Goal:
    return Goal.MINIMIZE if metric.get("goal") == Goal.MINIMIZE else Goal.MAXIMIZE


def _stopping(config: Mapping[str, Any], path: str) -> tuple[StoppingRule, bool]:
    if len(config) > 1:
        raise InvalidArgumentError(
            "There are two ways of automated stopping; one is allowed.", field=f"{path}.automated_stopping_config"
        )
    for name, rule in (
        ("decayCurveStoppingConfig", StoppingRule.DECAY_CURVE),
        ("medianAutomatedStoppingConfig", StoppingRule.MEDIAN),
    ):
        if name in config:
            return rule, bool(config[name].get("useElapsedTime"))
    return StoppingRule.NONE, False


def _parameter(spec: Mapping[str, Any], path: str) -> ParameterSpec:
    given = [kind for kind, name in _SPECS.items() if name in spec]
    if spec.get("type") not in list(ParameterKind):
        raise InvalidArgumentError(f"The type is one of {', '.join(ParameterKind)}.", field=f"{path}.type")
    kind = ParameterKind(spec["type"])
    if given != [kind]:
        raise InvalidArgumentError(f"A {kind} parameter has a {_SPECS[kind]}, and no other one.", field=path)
    values = spec[_SPECS[kind]]
    number = int if kind is ParameterKind.INTEGER else float
    children = spec.get("childParameterSpecs", [])
    return ParameterSpec(
        name=spec.get("parameter", ""),
        kind=kind,
        minimum=number(values.get("minValue", 0)),
        maximum=number(values.get("maxValue", 0)),
        values=tuple(values.get("values", ())),
        scale=_SCALES[spec.get("scaleType", "SCALE_TYPE_UNSPECIFIED")],
        children=tuple(_child(kind, child, f"{path}.child_parameter_specs[{i}]") for i, child in enumerate(children)),
    )


def _child(parent: ParameterKind, spec: Mapping[str, Any], path: str) -> ChildParameter:
    given = [name for name in _PARENT_VALUES.values() if name in spec]
    if given != [_PARENT_VALUES.get(parent)]:
        raise InvalidArgumentError(
            f"A child of a {parent} parameter has {_PARENT_VALUES.get(parent, 'no place')}, and nothing else of the "
            f"kind.",
            field=path,
        )
    values: list[Value] = spec[given[0]].get("values", [])
    if parent is ParameterKind.INTEGER:
        values = [int(value) for value in values]
    return ChildParameter(parent_values=tuple(values), parameter=_parameter(spec, path))


def read_trial(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a trial, in the API's normal form."""
    sent: dict[str, Any] = _TRIAL(body, "trial")
    return sent


def trial_values(sent: Mapping[str, Any]) -> dict[str, object]:
    """The values of a user's trial, by the names of parameters. Raises `InvalidArgumentError` if one is odd."""
    values: dict[str, object] = {}
    for number, each in enumerate(sent.get("parameters", [])):
        path = f"trial.parameters[{number}]"
        given = [name for name in ("floatValue", "intValue", "stringValue") if name in each]
        name = each.get("parameter", "")
        if len(given) != 1 or not name or name in values:
            raise InvalidArgumentError(
                "A parameter has its name, given once, and one of floatValue, intValue and stringValue.", field=path
            )
        value = each[given[0]]
        values[name] = int(value) if given == ["intValue"] else value
    return values


def read_suggest(body: Mapping[str, Any]) -> tuple[int, str]:
    """Return the number of suggestions and the client."""
    sent = _SUGGEST(body, "")
    count, client = sent.get("suggestionCount", 0), sent.get("clientId", "")
    if not 1 <= count <= MAX_SUGGESTIONS:
        raise InvalidArgumentError(f"The suggestionCount is 1 to {MAX_SUGGESTIONS}.", field="suggestion_count")
    if not client:
        raise InvalidArgumentError("The clientId is missing: it tells which trials are yours.", field="client_id")
    return count, client


def read_added(body: Mapping[str, Any]) -> Measurement:
    sent = _ADD_MEASUREMENT(body, "")
    if "measurement" not in sent:
        raise InvalidArgumentError("The measurement is missing.", field="measurement")
    return measurement(sent["measurement"], "measurement")


def read_completion(body: Mapping[str, Any]) -> tuple[Measurement | None, bool, str]:
    """Return the final measurement, if there is one, whether the trial is infeasible, and why."""
    sent = _COMPLETE(body, "")
    final = sent.get("finalMeasurement")
    return (
        None if final is None else measurement(final, "final_measurement"),
        sent.get("trialInfeasible", False),
        sent.get("infeasibleReason", ""),
    )


def measurement(sent: Mapping[str, Any], path: str) -> Measurement:
    """Return a measurement that has the API's normal form."""
    metrics: dict[str, float] = {}
    for each in sent.get("metrics", []):
        name = each.get("metric", "")
        if not name or name in metrics or "value" not in each:
            raise InvalidArgumentError("A metric has a name, given once, and a value.", field=f"{path}.metrics")
        metrics[name] = each["value"]
    if not metrics:
        raise InvalidArgumentError("The measurement has no metrics.", field=f"{path}.metrics")
    return Measurement(
        step=int(sent.get("stepCount", 0)),
        elapsed_us=round(duration_s(sent.get("elapsedTime", "0s")) * 1e6),
        metrics=metrics,
    )
