"""`explanation_metadata.json`: which inputs and which output are explained, and against which baselines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from ..errors import LoaderError

FILE = "explanation_metadata.json"
FRAMEWORKS = ("tensorflow", "tensorflow2", "sklearn", "scikit_learn", "xgboost")
ENCODINGS = ("identity", "bag_of_features")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedInput:
    """One input of the file. `name` is its name in responses."""

    name: str
    tensor: str = ""  #: `input_tensor_name`, without its `:0`
    baselines: tuple[Any, ...] = ()  #: none: zeros
    features: tuple[str, ...] = ()  #: a name for each value of a bag of features


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The content of the file. Empty without a file."""

    inputs: tuple[ExplainedInput, ...] = ()  #: none: all inputs of the signature
    output: str = ""  #: its name in responses
    output_tensor: str = ""


def read(model_dir: Path) -> Metadata:
    """Read the file in the model's folder. Raises `LoaderError` with the field that is wrong."""
    path = model_dir / FILE
    if not path.is_file():
        return Metadata()
    try:
        value = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as exc:
        raise LoaderError(f"{FILE} is not JSON: {exc}.") from exc
    return parse(value)


def parse(value: Any) -> Metadata:
    """Parse the content of the file. Raises `LoaderError` with the field that is wrong."""
    _check_fields("it", _check_object("it", value), {"inputs", "outputs", "framework"})
    framework = str(value.get("framework", "tensorflow")).lower()
    if framework not in FRAMEWORKS:
        raise LoaderError(f"{FILE}: framework {framework!r} is not known. Known are: {', '.join(FRAMEWORKS)}.")
    inputs = _check_object("inputs", value.get("inputs", {}))
    outputs = _check_object("outputs", value.get("outputs", {}))
    if len(outputs) > 1:
        raise LoaderError(f"{FILE}: one output can be explained, and it names {len(outputs)}.")
    name = next(iter(outputs), "")
    output = _check_fields(
        f"outputs.{name}", _check_object(f"outputs.{name}", outputs.get(name, {})), {"output_tensor_name"}
    )
    return Metadata(
        inputs=tuple(_input(key, item) for key, item in inputs.items()),
        output=name,
        output_tensor=_tensor_name(output.get("output_tensor_name", "")),
    )


def _input(name: str, value: Any) -> ExplainedInput:
    where = f"inputs.{name}"
    fields = {"input_tensor_name", "input_baselines", "encoding", "modality", "index_feature_mapping"}
    item = _check_fields(where, _check_object(where, value), fields)
    encoding = str(item.get("encoding", "identity")).lower()
    if encoding not in ENCODINGS:
        raise LoaderError(
            f"{FILE}: the encoding {encoding!r} of {where} is not supported. Use {' or '.join(ENCODINGS)}."
        )
    features = item.get("index_feature_mapping", [])
    baselines = item.get("input_baselines", [])
    if not isinstance(features, list) or not isinstance(baselines, list):
        raise LoaderError(f"{FILE}: input_baselines and index_feature_mapping of {where} must be lists.")
    if (encoding == "bag_of_features") != bool(features):
        raise LoaderError(f"{FILE}: {where} needs index_feature_mapping together with the encoding bag_of_features.")
    return ExplainedInput(
        name=name,
        tensor=_tensor_name(item.get("input_tensor_name", "")),
        baselines=tuple(baselines),
        features=tuple(str(feature) for feature in features),
    )


def _tensor_name(value: Any) -> str:
    return str(value).removesuffix(":0")


def _check_object(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise LoaderError(f"{FILE}: {where} must be an object.")
    return value


def _check_fields(where: str, value: Mapping[str, Any], fields: set[str]) -> Mapping[str, Any]:
    if unknown := sorted(set(value) - fields):
        raise LoaderError(f"{FILE}: {where} has a field {unknown[0]!r}. Known are: {', '.join(sorted(fields))}.")
    return value
