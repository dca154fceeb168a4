"""Compares answers with the OpenAPI document: the status is declared, and the body has the declared shape.

The API of test servers does so for every answer of our own API. If one does not fit, the caller gets the status 500
with a sentence that names the route and the field. The sentence is also written to a file in the state folder.
Stopping the server fails if the file exists.

That API also has a route that arms a crash point in the server that runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.app import ROUTES, Api
from trainshed.api.http.responses import problem_response
from trainshed.api.http.routing import Route
from trainshed.api.openapi.document import document
from trainshed.api.openapi.json_schema import REF, Schema
from trainshed.node import crashpoints
from trainshed.testing.loop_watch import LoopWatch

_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


CLIENT_GONE = 499  #: which nobody reads, so the document does not have it


class Answers:
    """Checks answers against one document. Knows the part of JSON schema that the document uses."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._paths: Mapping[str, Any] = document["paths"]
        self._components: Mapping[str, Schema] = document["components"]["schemas"]

    def fault(self, method: str, path: str, status: int, body: Any) -> str:
        """Return what is wrong with an answer of a route, as a sentence. Returns "" if nothing is."""
        if status == CLIENT_GONE:
            return ""
        responses = self._paths[path][method.lower()]["responses"]
        declared = responses.get(str(status)) or responses.get(f"{status // 100}XX")
        if declared is None:
            return f"{method} {path} answered {status}, which the document does not have."
        schema = declared["content"]["application/json"]["schema"]
        for field, words in self._faults(schema, body, ""):
            return f"{method} {path} answered {status} with {field or 'a body'}: {words}."
        return ""

    def _faults(self, schema: Schema, value: Any, at: str) -> Iterator[tuple[str, str]]:
        """Yield each field that does not fit, with the reason."""
        if "$ref" in schema:
            yield from self._faults(self._components[schema["$ref"].removeprefix(REF)], value, at)
            return
        if "anyOf" in schema:
            tries = [list(self._faults(option, value, at)) for option in schema["anyOf"]]
            if all(tries):
                yield max((faults[0] for faults in tries), key=lambda fault: len(fault[0]))  # the closest fit
            return
        kinds = [schema["type"]] if isinstance(schema.get("type"), str) else schema.get("type", [])
        if kinds and not any(_is(value, kind) for kind in kinds):
            yield at, f"{_shown(value)} is not {' or '.join(kinds)}"
        elif value is not None and value not in schema.get("enum", [value]):
            yield at, f"{_shown(value)} is none of {', '.join(map(repr, schema['enum']))}"
        elif isinstance(value, list):
            for number, item in enumerate(value):
                yield from self._faults(schema.get("items", {}), item, f"{at}[{number}]")
        elif isinstance(value, dict):
            yield from self._object_faults(schema, value, at)

    def _object_faults(self, schema: Schema, value: Mapping[str, Any], at: str) -> Iterator[tuple[str, str]]:
        fields = schema.get("properties", {})
        yield from ((_below(at, name), "it is missing") for name in schema.get("required", ()) if name not in value)
        for name, item in value.items():
            rest = schema.get("additionalProperties", {})
            if name not in fields and rest is False:
                yield _below(at, name), "the document does not have it"
            else:
                yield from self._faults(fields.get(name, rest), item, _below(at, name))


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _KINDS[kind]) and not (isinstance(value, bool) and kind in ("integer", "number"))


def _below(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


FAULTS = "wrong-answers.txt"
ARM_PATH = "/testing/crashpoint"


def checked_api(home: Path) -> type[Api]:
    """Return the class of an API that checks its answers, for a server with this state folder."""
    answers, watch = Answers(document(ROUTES)), LoopWatch(home)

    class CheckedApi(Api):
        async def respond(self, request: Request) -> Response:
            watch.note(f"{request.method} {request.scope['raw_path'].decode(errors='replace')[:200]}")
            if request.url.path == ARM_PATH:
                return arm(orjson.loads(await request.body()))
            response = await super().respond(request)
            if not (sentence := fault(answers, request.scope.get("trainshed.route"), response)):
                return response
            with open(home / FAULTS, "a") as file:
                file.write(f"{sentence}\n")
            return problem_response(500, "INTERNAL", "internalError", sentence)

    return CheckedApi


def arm(body: dict[str, str]) -> Response:
    """Arm the crash point `crashAt`, whose hits go to the file `hits`. An empty one disarms."""
    os.environ[crashpoints.VARIABLE], os.environ[crashpoints.HITS_VARIABLE] = body["crashAt"], body["hits"]
    crashpoints.arm()
    return Response()


def fault(answers: Answers, route: Route | None, response: Response) -> str:
    """Return what is wrong with a response. Returns "" for a file, and for a route without a schema."""
    kind = response.headers.get("content-type", "")  # 304 has none
    if route is None or route.schema is None or not kind.startswith("application/json"):
        return ""
    body: Any = orjson.loads(response.body)
    return answers.fault(route.method, route.path, response.status_code, body)
