"""The discovery documents: what they say is served, and under the names of Google's own documents."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

import pytest

from trainshed.api.app import ROUTES
from trainshed.api.discovery.document import APIS, document
from trainshed.api.http.routing import Router

ROOT = "http://127.0.0.1:1/"


def methods(resource: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from resource.get("methods", {}).values()
    for inner in resource.get("resources", {}).values():
        yield from methods(inner)


def ours(name: str) -> dict[str, Mapping[str, Any]]:
    return {method["id"]: method for method in methods(document(APIS[name], ROUTES, ROOT))}


def googles(name: str) -> dict[str, Mapping[str, Any]]:
    path = files("googleapiclient") / "discovery_cache" / "documents" / f"{name}.{APIS[name].version}.json"
    return {method["id"]: method for method in methods(json.loads(path.read_text()))}


def test_the_ml_api_has_all_methods_of_googles() -> None:
    assert set(ours("ml")) == set(googles("ml"))


@pytest.mark.parametrize("name", APIS)
def test_methods_are_called_as_googles(name: str) -> None:
    known = googles(name)
    for method_id, method in ours(name).items():
        google = known[method_id]
        for field in ("httpMethod", "path", "parameterOrder"):
            assert method[field] == google.get(field, []), (method_id, field)
        assert method["flatPath"] == google.get("flatPath", google["path"]), method_id
        assert ("request" in method) == ("request" in google), method_id
        assert ("response" in method) == ("response" in google), method_id
        for parameter, described in method["parameters"].items():
            for field in ("location", "pattern", "required", "repeated"):
                assert described.get(field) == google["parameters"][parameter].get(field), (method_id, parameter, field)
        if name == "ml":
            assert set(method["parameters"]) == set(google["parameters"]), method_id


@pytest.mark.parametrize("name", APIS)
def test_every_method_is_a_route(name: str) -> None:
    router, base = Router(ROUTES), APIS[name].service_path
    for method_id, method in ours(name).items():
        path = re.sub(r"\{\w+\}", "x", method["flatPath"])
        if method_id == "storage.objects.insert":  # an upload has a path of its own
            path, base_path = f"upload/{base}{path}", ""
        else:
            base_path = base
        assert router.find(method["httpMethod"], f"/{base_path}{path}".encode())[0] is not None, method_id


@pytest.mark.parametrize("name", APIS)
def test_every_schema_that_is_named_is_there(name: str) -> None:
    whole = document(APIS[name], ROUTES, ROOT)
    named = {method[kind]["$ref"] for method in methods(whole) for kind in ("request", "response") if kind in method}
    assert named == set(whole["schemas"])


def test_schemas_come_from_the_readers() -> None:
    schemas = document(APIS["ml"], ROUTES, ROOT)["schemas"]
    training = schemas["Job"]["properties"]["trainingInput"]["properties"]
    assert "CUSTOM" in training["scaleTier"]["enum"]
    assert training["packageUris"] == {"type": "array", "items": {"type": "string"}}
    assert training["workerCount"] == {"type": "string", "format": "int64"}
    assert schemas["ListJobsResponse"]["properties"]["nextPageToken"] == {"type": "string"}
