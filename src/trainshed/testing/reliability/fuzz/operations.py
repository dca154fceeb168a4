"""Operations of the API: what its own descriptions say of each route, and the routes that none describes.

The descriptions are those that the server serves: the OpenAPI document of our own API and the discovery documents of
Google's, which are read into the same form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainshed.api.app import ROUTES
from trainshed.api.discovery.document import APIS
from trainshed.gateway.protocols.wire_forms import ErrorForm

OPENAPI_PATH = "/trainshed/v1/openapi.json"
DISCOVERY_PATH = "/discovery/v1/apis/{name}/{version}/rest"
_PARAMETER = re.compile(r"\{[+]?(\w+)\*?\}")

JsonSchema = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOperation:
    """One method of one path, with what is known of its parameters and its body."""

    method: str
    path: str  #: with `{name}` for each parameter
    source: str  #: the document that describes it, or "routes"
    query: Mapping[str, JsonSchema] = field(default_factory=dict)
    body: JsonSchema | None = None
    body_name: str = ""  #: the name of the body's schema
    media: str = "application/json"
    schemas: Mapping[str, JsonSchema] = field(default_factory=dict)  #: what `$ref` names, by the last word of the name
    error_form: ErrorForm | None = None  #: None is Google's

    @property
    def parameters(self) -> list[str]:
        return _PARAMETER.findall(self.path)

    def filled(self, values: Mapping[str, str]) -> str:
        """Return the path with a value, already escaped, for each parameter."""
        return _PARAMETER.sub(lambda found: values[found[1]], self.path)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def operations(openapi: Mapping[str, Any], discovery: Iterable[Mapping[str, Any]]) -> list[ApiOperation]:
    """Return every operation of the documents, and one for each route that is in none of them."""
    described = [*_of_openapi(openapi), *(each for document in discovery for each in _of_discovery(document))]
    known = {(each.method, _shape(each.path)) for each in described}
    rest = [
        ApiOperation(method=route.method, path=route.path, source="routes", error_form=route.error_form)
        for route in ROUTES
        if (route.method, _shape(route.path)) not in known
    ]
    return described + rest


def discovery_paths() -> list[str]:
    """Where the server has its discovery documents."""
    return [DISCOVERY_PATH.format(name=api.name, version=api.version) for api in APIS.values()]


def _shape(path: str) -> str:
    return _PARAMETER.sub("{}", path)


def _of_openapi(document: Mapping[str, Any]) -> Iterator[ApiOperation]:
    schemas = document["components"]["schemas"]
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            query = {each["name"]: each["schema"] for each in described["parameters"] if each["in"] == "query"}
            contents: Mapping[str, Any] = described.get("requestBody", {}).get("content", {})
            media = next(iter(contents), "")
            schema = contents[media]["schema"] if media else None
            yield ApiOperation(
                method=method.upper(),
                path=path,
                source="openapi",
                query=query,
                body=schema,
                body_name=str((schema or {}).get("$ref", "")).rpartition("/")[2],
                media=media,
                schemas=schemas,
            )


def _of_discovery(document: Mapping[str, Any]) -> Iterator[ApiOperation]:
    for method in _methods(document["resources"]):
        query = {name: each for name, each in method["parameters"].items() if each["location"] == "query"}
        paths = [f"/{document['servicePath']}{method['flatPath']}"]
        paths += [each["path"] for each in method.get("mediaUpload", {}).get("protocols", {}).values()]
        if method.get("supportsMediaDownload"):
            paths.append(f"/download/{document['servicePath']}{method['flatPath']}")
        for path in paths:
            yield ApiOperation(
                method=method["httpMethod"],
                path=path,
                source=document["name"],
                query={**document["parameters"], **query},
                body=method.get("request"),
                body_name=method.get("request", {}).get("$ref", ""),
                schemas=document["schemas"],
            )


def _methods(resources: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for resource in resources.values():
        yield from resource.get("methods", {}).values()
        yield from _methods(resource.get("resources", {}))


def undescribed(known: Sequence[ApiOperation]) -> list[ApiOperation]:
    """The operations that no document describes."""
    return [each for each in known if each.source == "routes"]
