"""The discovery documents of the ml, storage and logging APIs, and the list of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainshed import __version__
from trainshed.api.discovery.method_tables import LOGGING_METHODS, STORAGE_METHODS
from trainshed.api.discovery.methods import ApiMethod, ml_methods, tree
from trainshed.api.http.routing import Route
from trainshed.domain import json_fields as f
from trainshed.domain.jobs.batch_prediction import PREDICTION_INPUT
from trainshed.domain.jobs.training import TRAINING_INPUT
from trainshed.domain.jobs.workload import JOB
from trainshed.domain.models.model import MODEL
from trainshed.domain.models.version_request import VERSION
from trainshed.domain.policies import SET_POLICY_REQUEST, TEST_PERMISSIONS_REQUEST

_CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"
_ANY: Mapping[str, Any] = {"type": "object", "additionalProperties": {"type": "any"}}
_TYPES: Mapping[f.FieldReader, Mapping[str, str]] = {
    f.string: {"type": "string"},
    f.upper_case: {"type": "string"},
    f.duration: {"type": "string", "format": "google-duration"},
    f.boolean: {"type": "boolean"},
    f.int32: {"type": "integer", "format": "int32"},
    f.int64: {"type": "string", "format": "int64"},
    f.double: {"type": "number", "format": "double"},
}
#: messages that a client sends, by the name of their schema, and how they are read
_MESSAGES: Mapping[str, f.MessageReader] = {
    "Job": f.message({**JOB.fields, "trainingInput": TRAINING_INPUT, "predictionInput": PREDICTION_INPUT}),
    "Model": MODEL,
    "Version": VERSION,
    "SetIamPolicyRequest": SET_POLICY_REQUEST,
    "TestIamPermissionsRequest": TEST_PERMISSIONS_REQUEST,
}
#: parameters of every method; `request.read_query` takes them
_STANDARD_PARAMETERS = ("access_token", "fields", "key", "oauth_token", "quotaUser", "uploadType")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedApi:
    """An API of Google's that this server has."""

    name: str
    version: str
    title: str
    service_path: str
    batch_path: str

    def methods(self, routes: Iterable[Route]) -> tuple[ApiMethod, ...]:
        match self.name:
            case "storage":
                return STORAGE_METHODS
            case "logging":
                return LOGGING_METHODS
        return tuple(ml_methods(routes))


APIS = {
    api.name: api
    for api in (
        ServedApi(name="ml", version="v1", title="AI Platform Training and Prediction", service_path="", batch_path=""),
        ServedApi(
            name="storage",
            version="v1",
            title="Cloud Storage",
            service_path="storage/v1/",
            batch_path="batch/storage/v1",
        ),
        ServedApi(name="logging", version="v2", title="Cloud Logging", service_path="", batch_path=""),
    )
}


def document(api: ServedApi, routes: Iterable[Route], root_url: str) -> dict[str, Any]:
    """Return the document of an API at `root_url`, which ends in a slash."""
    methods = api.methods(routes)
    standard: dict[str, Any] = {name: {"type": "string", "location": "query"} for name in _STANDARD_PARAMETERS}
    standard["alt"] = {"type": "string", "location": "query", "default": "json", "enum": ["json", "media"]}
    standard["prettyPrint"] = {"type": "boolean", "location": "query", "default": "true"}
    return {
        "kind": "discovery#restDescription",
        "discoveryVersion": "v1",
        "id": f"{api.name}:{api.version}",
        "name": api.name,
        "version": api.version,
        "revision": __version__,
        "title": api.title,
        "description": f"{api.title}, as this Trainshed serves it.",
        "protocol": "rest",
        "rootUrl": root_url,
        "servicePath": api.service_path,
        "baseUrl": f"{root_url}{api.service_path}",
        "basePath": f"/{api.service_path}" if api.service_path else "",
        "batchPath": api.batch_path or "batch",
        "fullyEncodeReservedExpansion": api.name != "storage",
        "auth": {"oauth2": {"scopes": {_CLOUD_PLATFORM: {"description": "All that the token allows"}}}},
        "parameters": standard,
        "schemas": _schemas(methods),
        "resources": tree(api.name, methods),
    }


def directory(root_url: str) -> dict[str, Any]:
    """Return the list of all documents."""
    items = [
        {
            "kind": "discovery#directoryItem",
            "id": f"{api.name}:{api.version}",
            "name": api.name,
            "version": api.version,
            "title": api.title,
            "discoveryRestUrl": f"{root_url}discovery/v1/apis/{api.name}/{api.version}/rest",
            "preferred": True,
        }
        for api in APIS.values()
    ]
    return {"kind": "discovery#directoryList", "discoveryVersion": "v1", "items": items}


def _schemas(methods: Iterable[ApiMethod]) -> dict[str, Any]:
    names = sorted({name for method in methods for name in (method.request, method.response) if name})
    return {name: {"id": name, **_schema(name)} for name in names}


def _schema(name: str) -> Mapping[str, Any]:
    """Return what a body holds. A response has more fields than a request, and clients take any."""
    if reader := _MESSAGES.get(name):
        return _described(reader)
    if name.startswith("List") or name in ("Buckets", "Objects"):
        return {**_ANY, "properties": {"nextPageToken": {"type": "string"}}}
    return _ANY


def _described(reader: f.FieldReader) -> dict[str, Any]:
    match reader:
        case f.MessageReader(fields=fields):
            return {"type": "object", "properties": {name: _described(field) for name, field in fields.items()}}
        case f.RepeatedReader(item=item):
            return {"type": "array", "items": _described(item)}
        case f.EnumReader(words=words):
            return {"type": "string", "enum": list(words)}
    return dict(_TYPES.get(reader, {"type": "any"}))
