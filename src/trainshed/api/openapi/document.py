"""The OpenAPI document: every route that declares a schema, and nothing else. The same routes give the same bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import orjson

from trainshed import __version__
from trainshed.api.http.routing import Parameter, Route, RouteSchema
from trainshed.api.openapi.json_schema import Schema, Schemas
from trainshed.api.schemas.server import ErrorBody
from trainshed.domain.iam import Access

#: the least roles of people and of jobs that have an access
_ACCESS = {
    Access.PUBLIC: "",
    Access.CONNECT: "viewer, or the token of a job",
    Access.FETCH: "a fetch token, or viewer",
    Access.READ_JOB: "viewer, or the token of this job",
    Access.READ_OBJECTS: "viewer, or the token of a job",
    Access.WRITE_OBJECTS: "editor, or the token of a job",
    Access.PREDICT: "viewer, or the token of a job",
    Access.READ_STUDIES: "viewer, or the token of a job",
    Access.READ: "viewer",
    Access.WRITE: "editor",
    Access.ADMIN: "owner",
}
_PATH_PARAMETERS = {
    "project": ("The id of the project.", "trainshed"),
    "job": ("The id of the job.", "mnist_1"),
    "trial": ("The number of the trial.", "3"),
    "location": ("The location of the study.", "us-central1"),
    "study": ("The id of the study.", "first"),
    "model": ("The name of the model.", "digits"),
    "version": ("The name of the version.", "v1"),
    "rollout": ("The id of the rollout.", "1"),
    "runtime": ("The name of the runtime.", "2.21"),
    "secret": ("The name of the secret.", "wandb-api-key"),
    "user": ("The name of the user.", "ada"),
    "token": ("The id of the token.", "9f2c61d07ab4"),
    "sha256": ("The digest of the file.", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
}


def encoded(routes: Iterable[Route]) -> bytes:
    """Return the document as JSON."""
    return orjson.dumps(document(routes), option=orjson.OPT_INDENT_2)


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the document of the routes that declare a schema."""
    schemas = Schemas()
    paths: dict[str, dict[str, Any]] = {}
    tags: dict[str, None] = {}
    for route in routes:
        if route.schema is not None:
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, route.schema, schemas)
            tags[route.schema.tag] = None
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Trainshed",
            "version": __version__,
            "description": "Trainshed's own API, beside Google's on the same server.",
        },
        "tags": [{"name": name} for name in tags],
        "security": [{"token": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(schemas.components.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, schema: RouteSchema, schemas: Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": schema.name,
        "tags": [schema.tag],
        "summary": schema.summary,
        "description": " ".join(filter(None, (schema.description, _access_sentence(route)))),
        "parameters": [
            *(_path_parameter(name) for name in re.findall(r"\{(\w+)\}", route.path)),
            *(_query_parameter(parameter) for parameter in schema.query),
        ],
    }
    if schema.body is not None:
        required = bool(schemas.components[_ref_name(content := schemas.of(schema.body))].get("required"))
        operation["requestBody"] = {"required": required, "content": {schema.body_media: {"schema": content}}}
    operation["responses"] = _responses(route, schema, schemas)
    if route.access is Access.PUBLIC:
        operation["security"] = []
    return operation


def _ref_name(schema: Schema) -> str:
    return str(schema["$ref"].rpartition("/")[2])


def _access_sentence(route: Route) -> str:
    access = _ACCESS[route.access]
    return f"Access: {access}." if access else "Open to all."


def _path_parameter(name: str) -> dict[str, Any]:
    description, example = _PATH_PARAMETERS[name]
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": {"type": "string", "examples": [example]},
    }


def _query_parameter(parameter: Parameter) -> dict[str, Any]:
    schema: Schema = {"type": {str: "string", int: "integer", float: "number"}[parameter.type]}
    if parameter.minimum is not None:
        schema["minimum"] = parameter.minimum
    if parameter.maximum is not None:
        schema["maximum"] = parameter.maximum
    if parameter.default not in (None, ""):
        schema["default"] = parameter.default
    if parameter.repeated:
        schema = {"type": "array", "items": schema}
    return {"name": parameter.name, "in": "query", "description": parameter.description, "schema": schema}


def _responses(route: Route, schema: RouteSchema, schemas: Schemas) -> dict[str, Any]:
    """Return the responses of a route: success, the errors that every route has, and those that it declares."""
    if schema.response is None:
        binary = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        responses = {
            "200": {"description": "The whole file.", "content": binary},
            "206": {"description": "The range that was asked for.", "content": binary},
        }
    else:
        content = {"application/json": {"schema": schemas.of(schema.response)}}
        responses = {"200": {"description": "Success.", "content": content}}
    for status in error_statuses(route, schema):
        kind = (status == HTTPStatus.BAD_REQUEST and schema.error) or ErrorBody
        content = {"application/json": {"schema": schemas.of(kind)}}
        responses[str(status.value)] = {"description": f"{status.phrase}.", "content": content}
    failed = {"application/json": {"schema": schemas.of(ErrorBody)}}
    return responses | {"5XX": {"description": "The server failed, or is not ready.", "content": failed}}


def error_statuses(route: Route, schema: RouteSchema) -> list[HTTPStatus]:
    """Return the statuses of client errors that a route may respond with."""
    statuses = {HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, *schema.errors}
    if route.access is not Access.PUBLIC:
        statuses.add(HTTPStatus.UNAUTHORIZED)
    if "{" in route.path:
        statuses.add(HTTPStatus.NOT_FOUND)
    if schema.body is not None:
        statuses.add(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    return sorted(statuses)
