"""Answers that do not fit the document are found, and named by route and field."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.requests import Request

from trainshed.api.app import ROUTES
from trainshed.api.openapi.document import document
from trainshed.api.openapi.json_schema import example
from trainshed.services.registry import Services
from trainshed.testing.answers import FAULTS, Answers, checked_api

DOCUMENT = document(ROUTES)
ANSWERS = Answers(DOCUMENT)
TOKENS = "/trainshed/v1/tokens"
TOKEN = example({"$ref": "#/components/schemas/Token"}, DOCUMENT["components"]["schemas"])


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, {"tokens": [TOKEN | {"colour": "red"}]}, "tokens[0].colour: the document does not have it"),
        (200, {"tokens": [{**TOKEN, "role": "king"}]}, "tokens[0].role: 'king' is none of"),
        (200, {"tokens": [{**TOKEN, "expireTime": 7}]}, "tokens[0].expireTime: 7 is not string or null"),
        (200, {"tokens": [{name: TOKEN[name] for name in TOKEN if name != "id"}]}, "tokens[0].id: it is missing"),
        (200, {"tokens": {}}, "tokens: {} is not array"),
        (200, {}, "tokens: it is missing"),
        (200, [], "a body: [] is not object"),
        (201, {"tokens": []}, "answered 201, which the document does not have"),
        (404, {"tokens": []}, "answered 404, which the document does not have"),
        (403, {"error": "no"}, "error: 'no' is not object"),
    ],
)
def test_what_does_not_fit_is_named(status: int, body: Any, words: str) -> None:
    sentence = ANSWERS.fault("GET", TOKENS, status, body)
    assert sentence.startswith(f"GET {TOKENS} answered {status}")
    assert words in sentence


def test_the_closest_of_several_shapes_is_told_of() -> None:
    path = "/trainshed/v1/projects/{project}/jobs/{job}/progress"
    schema = DOCUMENT["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    body = example(schema, DOCUMENT["components"]["schemas"])
    assert ANSWERS.fault("GET", path, 200, body) == ""
    assert ANSWERS.fault("GET", path, 200, body | {"progress": None}) == ""
    body["progress"]["evaluation"]["step"] = True
    assert "progress.evaluation.step: True is not integer or null" in ANSWERS.fault("GET", path, 200, body)


def test_a_server_of_tests_fails_a_wrong_answer(tmp_path: Path) -> None:
    """The caller gets the sentence, and so does whoever stops the server."""

    class Lying(checked_api(tmp_path)):  # type: ignore[misc]  # the class is made for the folder
        def openapi(self) -> bytes:
            return b'{"openapi": "3.1.0", "info": {}, "tags": [], "security": [], "paths": 7, "components": {}}'

    services = cast(Services, SimpleNamespace(audit=None))  # nothing that is asked here is recorded
    api = Lying(services, allowed_hosts=["localhost"], authentication=True, body_limit=1)

    def ask(path: str, query: str = "") -> tuple[int, str]:
        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode()}
        scope |= {"query_string": query.encode(), "headers": [(b"host", b"localhost")]}
        response = asyncio.run(api.respond(Request(scope)))
        return response.status_code, bytes(response.body).decode()

    assert ask("/healthz")[0] == 200
    assert ask("/healthz", "colour=red")[0] == 400
    assert not (tmp_path / FAULTS).exists()
    status, text = ask("/trainshed/v1/openapi.json")
    sentence = "GET /trainshed/v1/openapi.json answered 200 with paths: 7 is not object."
    assert status == 500
    assert sentence in text
    assert (tmp_path / FAULTS).read_text() == f"{sentence}\n"
