"""The document: all routes of our own and no other, the same bytes each time, and what is generated from it."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.requests import Request

from trainshed.api.app import ROUTES, Api
from trainshed.api.openapi.document import document, encoded
from trainshed.api.openapi.json_schema import Schemas, example
from trainshed.api.openapi.reference import page, types
from trainshed.api.schemas.notes import Example, Named, Time
from trainshed.services.registry import Services
from trainshed.testing.answers import Answers

ROOT = Path(__file__).parents[3]
DOCUMENT = document(ROUTES)
COMPONENTS = DOCUMENT["components"]["schemas"]
OWN = [route for route in ROUTES if route.path.startswith("/trainshed/") or route.path in ("/healthz", "/token")]
OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}


def test_it_has_every_route_of_our_own_and_no_other() -> None:
    assert {(route.method, route.path) for route in OWN} | {("POST", "/oauth2/token")} == {
        (method, path) for method, path, _ in OPERATIONS.values()
    }
    assert len(OPERATIONS) == sum(len(methods) for methods in DOCUMENT["paths"].values()), "a name is there twice"


def test_it_is_the_same_each_time() -> None:
    assert encoded(ROUTES) == encoded(ROUTES)
    assert json.loads(encoded(ROUTES)) == DOCUMENT


def served() -> dict[str, Any]:
    """Return the document as a client gets it."""
    api = Api(cast(Services, None), allowed_hosts=["localhost"], authentication=True, body_limit=1)
    path = "/trainshed/v1/openapi.json"
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""}
    response = asyncio.run(api.respond(Request(scope | {"headers": [(b"host", b"localhost")]})))
    assert response.status_code == 200
    return cast(dict[str, Any], json.loads(bytes(response.body)))


def faults(described: dict[str, Any]) -> list[str]:
    return [error.message for error in OpenAPIV31SpecValidator(described).iter_errors()]


def test_what_is_served_is_valid_openapi() -> None:
    described = served()
    assert described["openapi"].startswith("3.1.")
    assert faults(described) == []


def test_a_path_parameter_without_a_declaration_is_not_valid() -> None:
    described = served()
    path = "/trainshed/v1/tokens/{token}:revoke"
    described["paths"] = {path: described["paths"][path]}
    assert faults(described) == []
    described["paths"][path]["post"]["parameters"] = []
    [fault] = faults(described)
    assert "'token'" in fault


def test_fields_and_parameters_are_camel_case() -> None:
    google = {"access_token", "token_type", "expires_in", "grant_type", "refresh_token", "error_description"}
    found = {name for part in COMPONENTS.values() for name in part.get("properties", {})}
    found |= {each["name"] for _, _, operation in OPERATIONS.values() for each in operation["parameters"]}
    wrong = {name for name in found if not re.fullmatch(r"[a-z][a-zA-Z0-9]*", name)}
    assert wrong == google | {"signature_name"}, "those are OAuth's and Google's"


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_example_of_a_route_fits_its_schema(name: str) -> None:
    method, path, operation = OPERATIONS[name]
    content = operation["responses"]["200"]["content"].get("application/json")
    if content is not None:
        assert Answers(DOCUMENT).fault(method, path, 200, example(content["schema"], COMPONENTS)) == ""
    assert operation["summary"]
    assert operation["description"].endswith(".")


def test_the_page_is_what_the_routes_say() -> None:
    written = (ROOT / "docs/native-api.md").read_text()
    assert written == page(), "run: python -m trainshed.api.openapi.reference page > docs/native-api.md"


def test_the_types_of_the_console_are_what_the_routes_say() -> None:
    path = "src/trainshed/console/types/native.d.ts"
    assert (ROOT / path).read_text() == types(), f"run: python -m trainshed.api.openapi.reference types > {path}"


class Inner(TypedDict):
    """An inner one."""

    size: Annotated[int, "In bytes.", Example(3)]


class Outer(TypedDict):
    """An outer one."""

    kind: Literal["a", "b"]
    time: Time | None
    inner: list[Inner]
    rest: NotRequired[dict[str, Annotated[float | str, Named("Figure")]]]
    maybe: Inner | None


def test_a_type_becomes_a_schema() -> None:
    schemas = Schemas()
    assert schemas.of(Outer) == {"$ref": "#/components/schemas/Outer"}
    outer = schemas.components["Outer"]
    assert outer["required"] == ["kind", "time", "inner", "maybe"]
    assert outer["additionalProperties"] is False
    assert outer["properties"]["kind"] == {"type": "string", "enum": ["a", "b"]}
    assert outer["properties"]["time"]["type"] == ["string", "null"]
    assert outer["properties"]["inner"] == {"type": "array", "items": {"$ref": "#/components/schemas/Inner"}}
    assert outer["properties"]["rest"]["additionalProperties"] == {"$ref": "#/components/schemas/Figure"}
    assert outer["properties"]["maybe"] == {"anyOf": [{"$ref": "#/components/schemas/Inner"}, {"type": "null"}]}
    assert schemas.components["Inner"]["properties"]["size"] == {
        "type": "integer",
        "description": "In bytes.",
        "examples": [3],
    }
    assert schemas.components["Figure"] == {"anyOf": [{"type": "number"}, {"type": "string"}]}


def test_a_type_without_a_word_is_refused() -> None:
    with pytest.raises(TypeError, match="no word for"):
        Schemas().of(bytes)
