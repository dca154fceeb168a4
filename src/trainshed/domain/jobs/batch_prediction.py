"""What a user may ask of a batch prediction: reading it, checking it, and saying by name what is not offered here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Self

from trainshed.domain import json_fields as f
from trainshed.domain.jobs.training import DEFAULT_RUNNING
from trainshed.errors import FailedPreconditionError, InvalidArgumentError

PREDICTION = "batch prediction"
DEFAULT_BATCH = 64
MAX_BATCH = 10_000
MAX_PATHS = 1000


class DataFormat(StrEnum):
    """The API's own words for what the rows are."""

    JSON = "JSON"  #: one JSON value a line
    TEXT = "TEXT"  #: the same; a whole line is the instance if the model takes one string
    TF_RECORD = "TF_RECORD"
    TF_RECORD_GZIP = "TF_RECORD_GZIP"


_UNSPECIFIED = "DATA_FORMAT_UNSPECIFIED"
_FORMATS = f.enum("PredictionInput.DataFormat", _UNSPECIFIED, *DataFormat, "CSV")

PREDICTION_INPUT = f.message(
    {
        "batchSize": f.int64,
        "dataFormat": _FORMATS,
        "inputPaths": f.repeated(f.string),
        "maxWorkerCount": f.int64,
        "modelName": f.string,
        "outputDataFormat": _FORMATS,
        "outputPath": f.string,
        "region": f.string,
        "runtimeVersion": f.string,
        "signatureName": f.string,
        "uri": f.string,
        "versionName": f.string,
    }
)

_MODEL = re.compile(r"projects/([^/]+)/models/([^/]+)")
_VERSION = re.compile(r"projects/([^/]+)/models/([^/]+)/versions/([^/]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPrediction:
    """A predictionInput that was checked, in the words that the rest of the program uses."""

    key: ClassVar[str] = "predictionInput"
    what: ClassVar[str] = PREDICTION
    python_version: ClassVar[str] = ""
    priority: ClassVar[int] = 0
    max_running_s: ClassVar[float] = f.duration_s(DEFAULT_RUNNING)

    project: str  #: of the model; empty if there is a uri
    model: str
    version: str  #: empty: the model's default one
    uri: str  #: a gs:// folder with a model, if no model is named
    input_paths: tuple[str, ...]  #: gs:// addresses, with wildcards
    output_path: str
    data_format: DataFormat
    batch_size: int
    signature: str
    runtime_version: str
    region: str
    input: Mapping[str, Any]  #: the whole of it, as stored

    @property
    def notes(self) -> tuple[str, ...]:
        """What is kept without an effect, for the job's log."""
        notes = []
        if int(self.input.get("maxWorkerCount", 0)) > 1:
            notes.append("One process predicts the rows. max_worker_count is kept, and changes nothing.")
        if self.runtime_version and not self.uri:
            notes.append("A version runs in its own runtime. runtime_version is kept, and changes nothing.")
        return tuple(notes)

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Read what `check_prediction` let through."""
        name = given.get("versionName") or given.get("modelName", "")
        found = _VERSION.fullmatch(name) or _MODEL.fullmatch(name)
        project, model, version = (*found.groups(), "")[:3] if found else ("", "", "")
        return cls(
            project=project,
            model=model,
            version=version,
            uri=given.get("uri", ""),
            input_paths=tuple(given["inputPaths"]),
            output_path=given["outputPath"],
            data_format=DataFormat(given["dataFormat"]),
            batch_size=int(given.get("batchSize", 0)) or DEFAULT_BATCH,
            signature=given.get("signatureName", ""),
            runtime_version=given.get("runtimeVersion", ""),
            region=given.get("region", ""),
            input=given,
        )


def check_prediction(given: Mapping[str, Any]) -> BatchPrediction:
    """The prediction that an input of the right types asks for.

    `InvalidArgumentError` if it makes no sense or is not offered.
    """
    _check_model(given)
    _check_formats(given)
    if not given.get("inputPaths"):
        raise InvalidArgumentError("There is nothing to predict: name at least one gs:// path.", field="input_paths")
    if len(given["inputPaths"]) > MAX_PATHS:
        raise InvalidArgumentError(
            f"There are {len(given['inputPaths'])} paths; {MAX_PATHS} are allowed. Use wildcards.", field="input_paths"
        )
    if not given.get("outputPath"):
        raise InvalidArgumentError("The gs:// folder for the results is missing.", field="output_path")
    if not 0 <= int(given.get("batchSize", 0)) <= MAX_BATCH:
        raise InvalidArgumentError(f"A batch has from 1 to {MAX_BATCH:,} rows.", field="batch_size")
    if int(given.get("maxWorkerCount", 0)) < 0:
        raise InvalidArgumentError("A number of workers can't be negative.", field="max_worker_count")
    return BatchPrediction.parse(given)


def _check_model(given: Mapping[str, Any]) -> None:
    named = [name for name in ("modelName", "versionName", "uri") if given.get(name)]
    if len(named) != 1:
        raise InvalidArgumentError(
            "Name the model in one way: by model_name, by version_name, or by uri, a gs:// folder.", field="model_name"
        )
    forms = {
        "modelName": (_MODEL, "projects/PROJECT/models/MODEL"),
        "versionName": (_VERSION, "projects/PROJECT/models/MODEL/versions/VERSION"),
    }
    for name, (pattern, form) in forms.items():
        if given.get(name) and not pattern.fullmatch(given[name]):
            raise InvalidArgumentError(f"{given[name]!r} does not have the form {form}.", field=f.snake(name))


def _check_formats(given: Mapping[str, Any]) -> None:
    if (found := given.get("dataFormat", "left out")) not in set(DataFormat):
        raise InvalidArgumentError(
            f"The format of the rows must be one of {', '.join(DataFormat)}, not {found}.",
            field="data_format",
        )
    if given.get("outputDataFormat", _UNSPECIFIED) not in (_UNSPECIFIED, DataFormat.JSON):
        raise InvalidArgumentError(
            "Results are written as JSON, one a line. Leave this field out.", field="output_data_format"
        )


def cloud_output_unsupported(uri: str, cloud: str) -> FailedPreconditionError:
    """For an output path in a bucket that is kept in a cloud."""
    return FailedPreconditionError(
        f"{uri} is kept in {cloud}, and results are written to plain files, bit by bit. Name an output path in a "
        f"bucket that is a folder of this server, and copy them from there.",
        field="output_path",
    )
