"""What a user may ask of a version: reading it, checking it, and saying by name what is not offered here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainshed.domain import json_fields as f
from trainshed.domain import names
from trainshed.domain.capacity.machine_types import SMALL, STANDARD
from trainshed.domain.models.model import check_size
from trainshed.domain.models.version_container import CONTAINER, ROUTES, check_container
from trainshed.errors import InvalidArgumentError, UnimplementedError

MAX_PACKAGES = 100
MAX_NODES = 32  #: hosts of one version; each is a process that has loaded the model
MAX_STEPS = 1000  #: of an explanation; each is a run of the model

_NODES = f.int32
_VERSION_FIELDS: Mapping[str, f.FieldReader] = {
    "acceleratorConfig": f.message({"count": f.int64, "type": f.string}),
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
    "framework": f.enum("Framework", "FRAMEWORK_UNSPECIFIED", "TENSORFLOW", "SCIKIT_LEARN", "XGBOOST"),
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
}

#: fields that only the server writes; what a client sends in them is passed over, as Google does
_OUTPUT = (
    "createTime",
    "errorMessage",
    "isDefault",
    "lastMigrationModelId",
    "lastMigrationTime",
    "lastUseTime",
    "state",
)
_VERSION = f.message(dict(_VERSION_FIELDS) | dict.fromkeys(_OUTPUT, f.anything))
_APART = ("name", "labels", "etag", *_OUTPUT)  #: not in the body that is kept


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRequest:
    """A Version as a client sent it, checked. The buckets and the runtime that it names may still not exist."""

    id: str
    labels: Mapping[str, str]
    body: Mapping[str, Any]
    notes: tuple[str, ...]  #: what its owner should know


def read_version(body: Mapping[str, Any]) -> VersionRequest:
    """The Version of a create request.

    `InvalidArgumentError` or `UnimplementedError`, naming the field, if it can't be served here.
    """
    given = _VERSION(body, "version")
    if not given.get("name"):
        raise InvalidArgumentError("The version has no name. Give it one, such as v1.", field="version.name")
    name = names.version_name(given["name"])
    kept = {key: value for key, value in given.items() if key not in _APART and value not in ("", [], {})}
    if kept.get("framework") == "FRAMEWORK_UNSPECIFIED":
        del kept["framework"]
    check_body(kept)
    if not kept.get("deploymentUri") and "container" not in kept:
        raise InvalidArgumentError(
            "The version doesn't say where its files are. Name the gs:// folder that the trainer exported.",
            field="version.deployment_uri",
        )
    labels = names.labels(given.get("labels", {}), field="version.labels")
    return VersionRequest(id=name, labels=labels, body=kept, notes=_notes(kept))


def read_version_patch(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The Version of a patch request: known names only. What its mask doesn't name is not looked into."""
    given: Mapping[str, Any] = _VERSION(body, "version")
    return given


def check_body(kept: Mapping[str, Any]) -> None:
    """`InvalidArgumentError` or `UnimplementedError`, naming the field, for what this server can't do or nobody
    could.
    """
    check_size(kept, field="version")
    _check_offered(kept)
    check_container(kept)
    _check_machine(kept.get("machineType", ""))
    _check_code(kept)
    _check_scaling(kept)
    _check_explanation(kept)
    _check_logging(kept.get("requestLoggingConfig"))


def _check_offered(kept: Mapping[str, Any]) -> None:
    if "acceleratorConfig" in kept:
        raise InvalidArgumentError(
            "This server has no GPUs or TPUs. Leave accelerators out: versions are served by its CPUs.",
            field="version.accelerator_config",
        )
    if "serviceAccount" in kept:
        raise InvalidArgumentError(
            "There are no service accounts here: a version is served as the user who runs the server. "
            "Leave this field out.",
            field="version.service_account",
        )


def _check_machine(machine: str) -> None:
    if machine and not SMALL.fullmatch(machine):
        STANDARD.check(machine, field="version.machine_type")
        if STANDARD.of(machine).gpu:
            raise InvalidArgumentError(
                f"Versions are served by CPUs here, and {machine} has GPUs. Use n1-standard-4, for example.",
                field="version.machine_type",
            )


_CLASS = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


def _check_code(kept: Mapping[str, Any]) -> None:
    """Code that the user brings along: a prediction class, or what a pickled pipeline refers to."""
    given, packages, framework = kept.get("predictionClass"), kept.get("packageUris", []), kept.get("framework")
    if given and not _CLASS.fullmatch(given):
        raise InvalidArgumentError(
            f"{given[:200]!r} is not a module and a class in it, such as predictor.MyPredictor.",
            field="version.prediction_class",
        )
    if given and not packages:
        raise InvalidArgumentError(
            f"The package that holds {given} is missing. Name its gs:// address in package_uris.",
            field="version.package_uris",
        )
    if given and framework:
        raise InvalidArgumentError(
            f"A version with a prediction_class loads its model itself, so {framework} goes without a meaning. Leave "
            f"framework out.",
            field="version.framework",
        )
    if packages and not given and framework == "TENSORFLOW":
        raise InvalidArgumentError(
            "Packages go with a prediction_class, or with scikit-learn and XGBoost models that were pickled with code "
            "of their own. A TensorFlow SavedModel needs none: leave this field out.",
            field="version.package_uris",
        )
    if len(packages) > MAX_PACKAGES:
        raise InvalidArgumentError(
            f"There are {len(packages)} packages; {MAX_PACKAGES} are allowed.", field="version.package_uris"
        )


def _check_scaling(kept: Mapping[str, Any]) -> None:
    manual, automatic = kept.get("manualScaling"), kept.get("autoScaling")
    if manual is not None and automatic is not None:
        raise InvalidArgumentError(
            "A version is scaled by hand or by itself, not both.", field="version.manual_scaling"
        )
    if manual is not None:
        _between(manual.get("nodes", 1), 1, "version.manual_scaling.nodes")
    if automatic is not None:
        least = automatic.get("minNodes", 1)
        _between(least, 0, "version.auto_scaling.min_nodes")
        if "maxNodes" in automatic:
            _between(automatic["maxNodes"], max(1, least), "version.auto_scaling.max_nodes")
        for metric in automatic.get("metrics", []):
            if metric.get("name") == "GPU_DUTY_CYCLE":
                raise InvalidArgumentError("This server has no GPUs.", field="version.auto_scaling.metrics")
            if not 1 <= metric.get("target", 0) <= 100:
                raise InvalidArgumentError(
                    f"A target is a percentage from 1 to 100; {metric.get('target', 0)} is not.",
                    field="version.auto_scaling.metrics",
                )


def _between(nodes: int, least: int, field: str) -> None:
    if not least <= nodes <= MAX_NODES:
        raise InvalidArgumentError(
            f"This is a number of processes, from {least} to {MAX_NODES} here; {nodes} is not.", field=field
        )


def _check_explanation(kept: Mapping[str, Any]) -> None:
    given = kept.get("explanationConfig", {})
    field = "version.explanation_config"
    if "xraiAttribution" in given:
        raise UnimplementedError(
            f"XRAI ({field}.xrai_attribution) is not served by this server version. Use "
            f"integrated_gradients_attribution or sampled_shapley_attribution."
        )
    if len(given) > 1:
        raise InvalidArgumentError("A version has one way of explaining; two are given.", field=field)
    for method, number in (
        ("integratedGradientsAttribution", "numIntegralSteps"),
        ("sampledShapleyAttribution", "numPaths"),
    ):
        steps = given.get(method, {}).get(number, 1)
        if not 1 <= steps <= MAX_STEPS:
            raise InvalidArgumentError(
                f"This is a number from 1 to {MAX_STEPS:,}; {steps} is not.",
                field=f"{field}.{f.snake(method)}.{f.snake(number)}",
            )
    if "integratedGradientsAttribution" in given and kept.get("framework", "TENSORFLOW") != "TENSORFLOW":
        raise InvalidArgumentError(
            f"Integrated gradients need a TensorFlow model; {kept['framework']} has no gradients. Use "
            f"sampled_shapley_attribution.",
            field=f"{field}.integrated_gradients_attribution",
        )


def _check_logging(given: Mapping[str, Any] | None) -> None:
    if given is None:
        return
    field = "version.request_logging_config"
    if not given.get("bigqueryTableName", "").startswith("gs://"):
        raise InvalidArgumentError(
            "Trainshed logs requests into buckets, not into BigQuery. Write gs://BUCKET/FOLDER here.",
            field=f"{field}.bigquery_table_name",
        )
    if not 0 <= given.get("samplingPercentage", 0) <= 1:
        raise InvalidArgumentError(
            f"The share of requests to log is from 0 to 1; {given['samplingPercentage']} is not.",
            field=f"{field}.sampling_percentage",
        )


_MACHINE_NOTE = (
    "Hosts on this machine share its cores and its memory, whatever machine_type says. It is kept, and says what hosts "
    "on a cluster ask for."
)
_SCALING_NOTE = (
    "No hosts are added under load on this server version: there are auto_scaling.min_nodes of them, or one if that "
    "is 0 and somebody calls. max_nodes and metrics are kept, and change nothing."
)


def _notes(kept: Mapping[str, Any]) -> tuple[str, ...]:
    """What is kept without an effect."""
    scaling = kept.get("autoScaling", {})
    scales = scaling.get("maxNodes", 1) > max(1, scaling.get("minNodes", 1)) or scaling.get("metrics")
    return (*((_MACHINE_NOTE,) if "machineType" in kept else ()), *((_SCALING_NOTE,) if scales else ()))


def notes_after(kept: Mapping[str, Any], old: Sequence[str]) -> list[str]:
    """The notes of a version whose body was changed to this."""
    return [note for note in old if note not in (_MACHINE_NOTE, _SCALING_NOTE)] + list(_notes(kept))


#: what a patch may name, and whether it stands for a whole field of the body or a part of one
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
_RIVALS = {"manualScaling": "autoScaling", "autoScaling": "manualScaling"}


def patched(body: Mapping[str, Any], given: Mapping[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """The body of a version after a patch, checked. What the mask names and the patch doesn't hold is taken away."""
    new = dict(body)
    for path in paths:
        name, _, part = _camel(path).partition(".")
        value = given.get(name)
        if part:
            inner = {key: item for key, item in new.get(name, {}).items() if key != part}
            value = inner | ({part: value[part]} if value and part in value else {})
        new.pop(name, None)
        if value not in (None, "", {}):
            new[name] = value
            new.pop(_RIVALS.get(name, ""), None)
    check_body(new)
    return new


def _camel(path: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), path)
