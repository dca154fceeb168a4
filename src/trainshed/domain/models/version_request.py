"""Version requests: parse and check a Version and its patches. Options that are not offered are rejected by name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainshed.domain import json_fields as f
from trainshed.domain import names
from trainshed.domain.capacity.machine_types import SERVING_ONLY_TYPE, STANDARD
from trainshed.domain.models.hosting import FRAMEWORKS
from trainshed.domain.models.model import check_size
from trainshed.domain.models.version_container import CONTAINER, ROUTES, check_container
from trainshed.domain.uris import is_uri
from trainshed.errors import InvalidArgumentError, UnimplementedError

MAX_PACKAGES = 100
MAX_NODES = 32  #: hosts per version; each is a process that has loaded the model
MAX_STEPS = 1000  #: of an explanation; each is one run of the model

_NODES = f.int32
_VERSION_FIELDS: Mapping[str, f.FieldReader] = {
    "acceleratorConfig": f.message({"count": f.int64, "type": f.upper_case}),
    "autoScaling": f.message(
        {
            "maxNodes": _NODES,
            "metrics": f.repeated(
                f.message(
                    {
                        "name": f.enum("MetricSpec.MetricName", "CPU_USAGE", "GPU_DUTY_CYCLE"),
                        "target": f.int32,
                    }
                )
            ),
            "minNodes": _NODES,
        }
    ),
    "container": CONTAINER,
    "deploymentUri": f.string,
    "description": f.string,
    "etag": f.string,
    "explanationConfig": f.message(
        {
            "integratedGradientsAttribution": f.message({"numIntegralSteps": f.int32}),
            "sampledShapleyAttribution": f.message({"numPaths": f.int32}),
            "xraiAttribution": f.message({"numIntegralSteps": f.int32}),
        }
    ),
    "framework": f.enum("Framework", "FRAMEWORK_UNSPECIFIED", *FRAMEWORKS.values()),
    "labels": f.anything,
    "machineType": f.string,
    "manualScaling": f.message({"nodes": _NODES}),
    "name": f.string,
    "packageUris": f.repeated(f.string),
    "predictionClass": f.string,
    "pythonVersion": f.string,
    "requestLoggingConfig": f.message({"bigqueryTableName": f.string, "samplingPercentage": f.double}),
    "routes": ROUTES,
    "runtimeVersion": f.string,
    "serviceAccount": f.string,
    "servingOptions": f.message(  # our own
        {
            "batching": f.enum("ServingOptions.Batching", "AUTO", "EXACT", "OFF"),
            "precision": f.enum("ServingOptions.Precision", "F32", "BF16"),
        }
    ),
}

#: written by the server only; values from clients are ignored, as Google does
_OUTPUT_FIELDS = (
    "createTime",
    "errorMessage",
    "isDefault",
    "lastMigrationModelId",
    "lastMigrationTime",
    "lastUseTime",
    "state",
)
VERSION = f.message(dict(_VERSION_FIELDS) | dict.fromkeys(_OUTPUT_FIELDS, f.anything))
_FIELDS_OUTSIDE_BODY = ("name", "labels", "etag", *_OUTPUT_FIELDS)  #: not stored in the body


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRequest:
    """A checked Version from a client. The buckets and the runtime that it names may not exist."""

    id: str
    labels: Mapping[str, str]
    body: Mapping[str, Any]
    notes: tuple[str, ...]  #: for the owner of the version


def read_version(body: Mapping[str, Any]) -> VersionRequest:
    """Read the Version of a create request.

    Raises `InvalidArgumentError` or `UnimplementedError`, which name the field, if it cannot be served here.
    """
    fields = VERSION(body, "version")
    if not fields.get("name"):
        raise InvalidArgumentError("The version has no name. Give it one, such as v1.", field="version.name")
    name = names.version_name(fields["name"])
    stored_body = {
        key: value for key, value in fields.items() if key not in _FIELDS_OUTSIDE_BODY and value not in ("", [], {})
    }
    if stored_body.get("framework") == "FRAMEWORK_UNSPECIFIED":
        del stored_body["framework"]
    check_body(stored_body)
    if not stored_body.get("deploymentUri") and "container" not in stored_body:
        raise InvalidArgumentError(
            "The version doesn't say where its files are. Name the gs:// folder that the trainer exported.",
            field="version.deployment_uri",
        )
    labels = names.labels(fields.get("labels", {}), field="version.labels")
    return VersionRequest(id=name, labels=labels, body=stored_body, notes=_notes(stored_body))


def read_version_patch(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read the Version of a patch request. Unknown names are rejected; fields outside the mask are not checked."""
    fields: Mapping[str, Any] = VERSION(body, "version")
    return fields


def check_body(body: Mapping[str, Any]) -> None:
    """Check a version's body.

    Raises `InvalidArgumentError` or `UnimplementedError`, which name the field, if it is invalid or not supported.
    """
    check_size(body, field="version")
    _check_offered(body)
    check_container(body)
    _check_machine_type(body.get("machineType", ""))
    _check_code(body)
    _check_scaling(body)
    _check_explanation(body)
    _check_logging(body.get("requestLoggingConfig"))


def _check_offered(body: Mapping[str, Any]) -> None:
    if int(body.get("acceleratorConfig", {}).get("count", 0)):
        raise InvalidArgumentError(
            "This server has no GPUs or TPUs. Leave accelerators out: versions are served by its CPUs.",
            field="version.accelerator_config",
        )
    if "serviceAccount" in body:
        raise InvalidArgumentError(
            "There are no service accounts here: a version is served as the user who runs the server. "
            "Leave this field out.",
            field="version.service_account",
        )


def _check_machine_type(machine_type: str) -> None:
    if machine_type and not SERVING_ONLY_TYPE.fullmatch(machine_type):
        STANDARD.check(machine_type, field="version.machine_type")
        if STANDARD.of(machine_type).gpu:
            raise InvalidArgumentError(
                f"Versions are served by CPUs here, and {machine_type} has GPUs. Use n1-standard-4, for example.",
                field="version.machine_type",
            )


_CLASS = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


def _check_code(body: Mapping[str, Any]) -> None:
    """Check the user's own code: a prediction class, or packages that a pickled pipeline refers to."""
    prediction_class, packages, framework = (
        body.get("predictionClass"),
        body.get("packageUris", []),
        body.get("framework"),
    )
    if prediction_class and not _CLASS.fullmatch(prediction_class):
        raise InvalidArgumentError(
            f"{prediction_class[:200]!r} is not a module and a class in it, such as predictor.MyPredictor.",
            field="version.prediction_class",
        )
    if prediction_class and not packages:
        raise InvalidArgumentError(
            f"The package that holds {prediction_class} is missing. Name its gs:// address in package_uris.",
            field="version.package_uris",
        )
    if prediction_class and framework:
        raise InvalidArgumentError(
            f"A version with a prediction_class loads its model itself, so {framework} goes without a meaning. Leave "
            f"framework out.",
            field="version.framework",
        )
    if packages and not prediction_class and framework in ("TENSORFLOW", "ONNX"):
        raise InvalidArgumentError(
            "Packages go with a prediction_class, or with models that were pickled with code of their own. A "
            "TensorFlow SavedModel or an ONNX file needs none: leave this field out.",
            field="version.package_uris",
        )
    if len(packages) > MAX_PACKAGES:
        raise InvalidArgumentError(
            f"There are {len(packages)} packages; {MAX_PACKAGES} are allowed.", field="version.package_uris"
        )


def _check_scaling(body: Mapping[str, Any]) -> None:
    manual, automatic = body.get("manualScaling"), body.get("autoScaling")
    if manual is not None and automatic is not None:
        raise InvalidArgumentError(
            "A version is scaled by hand or by itself, not both.", field="version.manual_scaling"
        )
    if manual is not None:
        _check_nodes(manual.get("nodes", 1), 1, "version.manual_scaling.nodes")
    if automatic is not None:
        minimum = automatic.get("minNodes", 1)
        _check_nodes(minimum, 0, "version.auto_scaling.min_nodes")
        if "maxNodes" in automatic:
            _check_nodes(automatic["maxNodes"], max(1, minimum), "version.auto_scaling.max_nodes")
        for metric in automatic.get("metrics", []):
            if metric.get("name") == "GPU_DUTY_CYCLE":
                raise InvalidArgumentError("This server has no GPUs.", field="version.auto_scaling.metrics")
            if not 1 <= metric.get("target", 0) <= 100:
                raise InvalidArgumentError(
                    f"A target is a percentage from 1 to 100; {metric.get('target', 0)} is not.",
                    field="version.auto_scaling.metrics",
                )


def _check_nodes(nodes: int, minimum: int, field: str) -> None:
    if not minimum <= nodes <= MAX_NODES:
        raise InvalidArgumentError(
            f"This is a number of processes, from {minimum} to {MAX_NODES} here; {nodes} is not.", field=field
        )


def _check_explanation(body: Mapping[str, Any]) -> None:
    config = body.get("explanationConfig", {})
    field = "version.explanation_config"
    if "xraiAttribution" in config:
        raise UnimplementedError(
            f"XRAI ({field}.xrai_attribution) is not served by this server version. Use "
            f"integrated_gradients_attribution or sampled_shapley_attribution."
        )
    if len(config) > 1:
        raise InvalidArgumentError("A version has one way of explaining; two are given.", field=field)
    for method, number in (
        ("integratedGradientsAttribution", "numIntegralSteps"),
        ("sampledShapleyAttribution", "numPaths"),
    ):
        steps = config.get(method, {}).get(number, 1)
        if not 1 <= steps <= MAX_STEPS:
            raise InvalidArgumentError(
                f"This is a number from 1 to {MAX_STEPS:,}; {steps} is not.",
                field=f"{field}.{f.snake(method)}.{f.snake(number)}",
            )
    if "integratedGradientsAttribution" in config and body.get("framework", "TENSORFLOW") != "TENSORFLOW":
        raise InvalidArgumentError(
            f"Integrated gradients need a TensorFlow model; {body['framework']} has no gradients. Use "
            f"sampled_shapley_attribution.",
            field=f"{field}.integrated_gradients_attribution",
        )


def _check_logging(config: Mapping[str, Any] | None) -> None:
    if config is None:
        return
    field = "version.request_logging_config"
    if not is_uri(config.get("bigqueryTableName", "")):
        raise InvalidArgumentError(
            "Trainshed logs requests into buckets, not into BigQuery. Write gs://BUCKET/FOLDER here.",
            field=f"{field}.bigquery_table_name",
        )
    if not 0 <= config.get("samplingPercentage", 0) <= 1:
        raise InvalidArgumentError(
            f"The share of requests to log is from 0 to 1; {config['samplingPercentage']} is not.",
            field=f"{field}.sampling_percentage",
        )


_MACHINE_NOTE = (
    "Hosts on this machine share its cores and its memory, whatever machine_type says. It is kept, and says what hosts "
    "on a cluster ask for."
)
_SCALING_NOTE = (
    "Hosts are added by the number of requests in flight. auto_scaling.metrics is kept, and changes nothing."
)


def _notes(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Notes about options that are stored but have no effect."""
    scaling = body.get("autoScaling", {})
    return (*((_MACHINE_NOTE,) if "machineType" in body else ()), *((_SCALING_NOTE,) if scaling.get("metrics") else ()))


def notes_after(body: Mapping[str, Any], previous: Sequence[str]) -> tuple[str, ...]:
    """The notes of a version after its body changed."""
    return (*(note for note in previous if note not in (_MACHINE_NOTE, _SCALING_NOTE)), *_notes(body))


#: paths that a patch may name: a whole field of the body, or a part of one
PATCHABLE = (
    "auto_scaling",
    "auto_scaling.max_nodes",
    "auto_scaling.metrics",
    "auto_scaling.min_nodes",
    "description",
    "manual_scaling",
    "manual_scaling.nodes",
    "request_logging_config",
    "request_logging_config.bigquery_table_name",
    "request_logging_config.sampling_percentage",
)
_EXCLUSIVE_FIELDS = {"manualScaling": "autoScaling", "autoScaling": "manualScaling"}


def apply_patch(body: Mapping[str, Any], patch: Mapping[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """The checked body of a version after a patch. Paths in the mask without a value are removed."""
    result = dict(body)
    for path in paths:
        name, _, part = _camel(path).partition(".")
        value = patch.get(name)
        if part:
            inner = {key: item for key, item in result.get(name, {}).items() if key != part}
            value = inner | ({part: value[part]} if value and part in value else {})
        result.pop(name, None)
        if value not in (None, "", {}):
            result[name] = value
            result.pop(_EXCLUSIVE_FIELDS.get(name, ""), None)
    check_body(result)
    return result


def _camel(path: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), path)
