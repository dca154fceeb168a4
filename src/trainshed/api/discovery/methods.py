"""Methods of a discovery document, and those of the ml API, which follow from the paths of its routes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainshed.api.http.routing import Route
from trainshed.domain.iam import Access

_IAM_VERBS = ("getIamPolicy", "setIamPolicy", "testIamPermissions")
_ITEM_METHODS = {"GET": "get", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_METHODS = {"GET": "list", "POST": "create"}
_WITHOUT_BODY = ("projects.operations.cancel", "projects.locations.operations.cancel")
_PAGED = ("pageSize", "pageToken")

#: query parameters of a method, by its id or by its last word
_QUERY: Mapping[str, tuple[str, ...]] = {
    "patch": ("updateMask",),
    "getIamPolicy": ("options.requestedPolicyVersion",),
    "list": ("filter", *_PAGED),
    "projects.locations.list": _PAGED,
    "projects.locations.studies.create": ("studyId",),
    "projects.locations.studies.list": (),
    "projects.locations.studies.trials.list": (),
    "projects.operations.list": ("filter", *_PAGED, "returnPartialSuccess"),
}
_INTEGERS = frozenset({"maxResults", "options.requestedPolicyVersion", "pageSize"})
_FLAGS = frozenset({"includeTrailingDelimiter", "returnPartialSuccess", "versions"})
_REPEATED = frozenset({"permissions", "resourceNames"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiMethod:
    """One method of an API."""

    id: str  #: without the name of the API, such as `projects.jobs.create`
    http: str
    path: str  #: with the parameters as clients name them
    flat_path: str = ""  #: with one parameter for each segment, if that differs
    pattern: str = ""  #: of a parameter that holds several segments
    query: tuple[str, ...] = ()
    required: tuple[str, ...] = ()  #: of the query
    request: str = ""  #: the schema of the body; empty if there is none
    response: str = ""  #: the schema; empty if there is none
    upload: bool = False
    download: bool = False

    def body(self, api: str) -> dict[str, Any]:
        """Return the method as the document has it."""
        in_path = [part.partition("}")[0].lstrip("+") for part in self.path.split("{")[1:]]
        parameters = {name: self._path_parameter() for name in in_path}
        parameters |= {name: self._query_parameter(name) for name in self.query}
        body: dict[str, Any] = {
            "id": f"{api}.{self.id}",
            "path": self.path,
            "flatPath": self.flat_path or self.path,
            "httpMethod": self.http,
            "parameters": parameters,
            "parameterOrder": [*in_path, *self.required],
        }
        if self.request:
            body["request"] = {"$ref": self.request}
        if self.response:
            body["response"] = {"$ref": self.response}
        if self.download:
            body |= {"supportsMediaDownload": True, "useMediaDownloadService": True}
        if self.upload:
            protocols = {
                "simple": {"multipart": True, "path": f"/upload/storage/v1/{self.path}"},
                "resumable": {"multipart": True, "path": f"/resumable/upload/storage/v1/{self.path}"},
            }
            body |= {"supportsMediaUpload": True, "mediaUpload": {"accept": ["*/*"], "protocols": protocols}}
        return body

    def _path_parameter(self) -> dict[str, Any]:
        pattern = {"pattern": self.pattern} if self.pattern else {}
        return {"type": "string", "location": "path", "required": True, **pattern}

    def _query_parameter(self, name: str) -> dict[str, Any]:
        parameter: dict[str, Any] = {"type": "string", "location": "query"}
        if name in _INTEGERS:
            parameter |= {"type": "integer", "format": "int32"}
        if name in _FLAGS:
            parameter["type"] = "boolean"
        if name in _REPEATED:
            parameter["repeated"] = True
        if name in self.required:
            parameter["required"] = True
        return parameter


def tree(api: str, methods: Iterable[ApiMethod]) -> dict[str, Any]:
    """Return the resources of a document, each with its methods."""
    root: dict[str, Any] = {}
    for method in methods:
        *resources, name = method.id.split(".")
        node = root
        for resource in resources:
            node = node.setdefault("resources", {}).setdefault(resource, {})
        node.setdefault("methods", {})[name] = method.body(api)
    resources_of_root: dict[str, Any] = root["resources"]
    return resources_of_root


def ml_methods(routes: Iterable[Route]) -> Iterator[ApiMethod]:
    """Return the methods of the ml API. One that is refused is among them, so that its client gets the reason."""
    for route in routes:
        if not route.path.startswith("/v1/projects/"):
            continue
        if route.access is Access.PREDICT:
            # one method for all that predicts, whose name may be that of a model or of a version
            if route.path in ("/v1/projects/{project}:predict", "/v1/projects/{project}:explain"):
                yield _ml_method(route, pattern="^projects/.*$")
        else:
            yield _ml_method(route)


def _ml_method(route: Route, *, pattern: str = "") -> ApiMethod:
    *before, last = route.path.strip("/").split("/")[1:]
    last, _, verb = last.partition(":")
    is_item = last.startswith("{")
    named = [*before, last] if is_item else before
    names = _ITEM_METHODS if is_item else _COLLECTION_METHODS
    collections = [segment for segment in (*before, last) if not segment.startswith("{")]
    method_id = ".".join((*collections, verb or names[route.method]))
    parameter = "resource" if verb in _IAM_VERBS else "name" if is_item else "parent"
    if method_id == "projects.operations.list":
        parameter = "name"
    end = f":{verb}" if verb else ""
    query = _QUERY.get(method_id, _QUERY.get(method_id.rpartition(".")[2], ()))
    return ApiMethod(
        id=method_id,
        http=route.method,
        path=f"v1/{{+{parameter}}}{end}" if is_item else f"v1/{{+{parameter}}}/{last}{end}",
        flat_path=f"v1/{'/'.join(_flat((*before, last)))}{end}",
        pattern=pattern or f"^{'/'.join('[^/]+' if part.startswith('{') else part for part in named)}$",
        query=query,
        request=_request(method_id) if route.method in ("POST", "PATCH") else "",
        response=_response(method_id),
    )


def _flat(segments: Iterable[str]) -> Iterator[str]:
    collection = ""
    for segment in segments:
        yield f"{{{collection}Id}}" if segment.startswith("{") else segment
        collection = segment


#: schemas that do not follow from the name of the resource, by the id of a method or its last word
_REQUESTS: Mapping[str, str] = {
    "setIamPolicy": "SetIamPolicyRequest",
    "testIamPermissions": "TestIamPermissionsRequest",
}
_RESPONSES: Mapping[str, str] = {
    "cancel": "Empty",
    "delete": "Operation",
    "explain": "HttpBody",
    "getConfig": "GetConfigResponse",
    "getIamPolicy": "Policy",
    "predict": "HttpBody",
    "projects.models.patch": "Operation",
    "projects.models.versions.create": "Operation",
    "projects.models.versions.patch": "Operation",
    "projects.locations.studies.delete": "Empty",
    "projects.locations.studies.trials.delete": "Empty",
    "projects.locations.studies.trials.checkEarlyStoppingState": "Operation",
    "projects.locations.studies.trials.listOptimalTrials": "ListOptimalTrialsResponse",
    "projects.locations.studies.trials.suggest": "Operation",
    "setIamPolicy": "Policy",
    "testIamPermissions": "TestIamPermissionsResponse",
}


def _request(method_id: str) -> str:
    *_, resource, verb = method_id.split(".")
    if method_id in _WITHOUT_BODY:
        return ""
    if verb in ("create", "patch"):
        return _singular(resource)
    return _REQUESTS.get(verb, f"{verb[0].upper()}{verb[1:]}Request")


def _response(method_id: str) -> str:
    *_, resource, verb = method_id.split(".")
    if verb == "list":
        return f"List{resource[0].upper()}{resource[1:]}Response"
    return _RESPONSES.get(method_id) or _RESPONSES.get(verb) or _singular(resource)


def _singular(resource: str) -> str:
    """`studies` -> `Study`, `jobs` -> `Job`."""
    stem = f"{resource[:-3]}y" if resource.endswith("ies") else resource.removesuffix("s")
    return f"{stem[0].upper()}{stem[1:]}"
