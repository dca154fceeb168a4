"""Batch prediction requests: parse and check a predictionInput. Options that are not offered are rejected by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Self

from trainshed.domain import json_fields as f
from trainshed.domain.jobs.training import DEFAULT_RUNNING_TIME
from trainshed.errors import FailedPreconditionError, InvalidArgumentError

BATCH_PREDICTION = "batch prediction"
DEFAULT_BATCH_ROWS = 64
MAX_BATCH_ROWS = 10_000
MAX_PATHS = 1000


class DataFormat(StrEnum):
    """The API's names for the format of input rows."""

    JSON = "JSON"  #: one JSON value per line
    TEXT = "TEXT"  #: the same; if the model takes one string, a whole line is the instance
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
    """A checked predictionInput, in domain terms."""

    key: ClassVar[str] = "predictionInput"
    what: ClassVar[str] = BATCH_PREDICTION
    python_version: ClassVar[str] = ""
    priority: ClassVar[int] = 0
    max_running_s: ClassVar[float] = f.duration_s(DEFAULT_RUNNING_TIME)
    args: ClassVar[tuple[str, ...]] = ()  #: no user code runs, so nothing is passed to it
    job_dir: ClassVar[str] = ""

    project: str  #: of the model; empty if there is a `uri`
    model: str
    version: str  #: empty: the model's default version
    uri: str  #: a gs:// folder with a model, if no model is named
    input_paths: tuple[str, ...]  #: gs:// URIs, with wildcards
    output_path: str
    data_format: DataFormat
    batch_size: int
    signature: str
    runtime_version: str
    region: str
    input: Mapping[str, Any]  #: the complete input, as stored

    @property
    def notes(self) -> tuple[str, ...]:
        """Options that are stored but have no effect, for the job's log."""
        notes = []
        if int(self.input.get("maxWorkerCount", 0)) > 1:
            notes.append("One process predicts the rows. max_worker_count is kept, and changes nothing.")
        if self.runtime_version and not self.uri:
            notes.append("A version runs in its own runtime. runtime_version is kept, and changes nothing.")
        return tuple(notes)

    @classmethod
    def parse(cls, prediction_input: Mapping[str, Any]) -> Self:
        """Parse an input that `check_prediction` accepted."""
        name = prediction_input.get("versionName") or prediction_input.get("modelName", "")
        match = _VERSION.fullmatch(name) or _MODEL.fullmatch(name)
        project, model, version = (*match.groups(), "")[:3] if match else ("", "", "")
        return cls(
            project=project,
            model=model,
            version=version,
            uri=prediction_input.get("uri", ""),
            input_paths=tuple(prediction_input["inputPaths"]),
            output_path=prediction_input["outputPath"],
            data_format=DataFormat(prediction_input["dataFormat"]),
            batch_size=int(prediction_input.get("batchSize", 0)) or DEFAULT_BATCH_ROWS,
            signature=prediction_input.get("signatureName", ""),
            runtime_version=prediction_input.get("runtimeVersion", ""),
            region=prediction_input.get("region", ""),
            input=prediction_input,
        )


def check_prediction(prediction_input: Mapping[str, Any]) -> BatchPrediction:
    """Check and parse a predictionInput whose types are valid.

    Raises `InvalidArgumentError` if it is invalid or not offered.
    """
    _check_model(prediction_input)
    _check_formats(prediction_input)
    if not prediction_input.get("inputPaths"):
        raise InvalidArgumentError("There is nothing to predict: name at least one gs:// path.", field="input_paths")
    if len(prediction_input["inputPaths"]) > MAX_PATHS:
        raise InvalidArgumentError(
            f"There are {len(prediction_input['inputPaths'])} paths; {MAX_PATHS} are allowed. Use wildcards.",
            field="input_paths",
        )
    if not prediction_input.get("outputPath"):
        raise InvalidArgumentError("The gs:// folder for the results is missing.", field="output_path")
    if not 0 <= int(prediction_input.get("batchSize", 0)) <= MAX_BATCH_ROWS:
        raise InvalidArgumentError(f"A batch has from 1 to {MAX_BATCH_ROWS:,} rows.", field="batch_size")
    if int(prediction_input.get("maxWorkerCount", 0)) < 0:
        raise InvalidArgumentError("A number of workers can't be negative.", field="max_worker_count")
    return BatchPrediction.parse(prediction_input)


def _check_model(prediction_input: Mapping[str, Any]) -> None:
    sources = [name for name in ("modelName", "versionName", "uri") if prediction_input.get(name)]
    if len(sources) != 1:
        raise InvalidArgumentError(
            "Name the model in one way: by model_name, by version_name, or by uri, a gs:// folder.", field="model_name"
        )
    forms = {
        "modelName": (_MODEL, "projects/PROJECT/models/MODEL"),
        "versionName": (_VERSION, "projects/PROJECT/models/MODEL/versions/VERSION"),
    }
    for name, (pattern, form) in forms.items():
        if prediction_input.get(name) and not pattern.fullmatch(prediction_input[name]):
            raise InvalidArgumentError(
                f"{prediction_input[name]!r} does not have the form {form}.", field=f.snake(name)
            )


def _check_formats(prediction_input: Mapping[str, Any]) -> None:
    if (data_format := prediction_input.get("dataFormat", "left out")) not in set(DataFormat):
        raise InvalidArgumentError(
            f"The format of the rows must be one of {', '.join(DataFormat)}, not {data_format}.",
            field="data_format",
        )
    if prediction_input.get("outputDataFormat", _UNSPECIFIED) not in (_UNSPECIFIED, DataFormat.JSON):
        raise InvalidArgumentError(
            "Results are written as JSON, one a line. Leave this field out.", field="output_data_format"
        )


def guarded_output_unsupported(uri: str) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"{uri} is in a bucket with versioning, holds or retention. Results are written to plain files, which such a "
        f"bucket does not take. Choose an output path in another bucket.",
        field="output_path",
    )


def cloud_output_unsupported(uri: str, cloud: str) -> FailedPreconditionError:
    """The error for an output path in a cloud bucket."""
    return FailedPreconditionError(
        f"{uri} is kept in {cloud}, and results are written to plain files, bit by bit. Name an output path in a "
        f"bucket that is a folder of this server, and copy them from there.",
        field="output_path",
    )
