"""The API of test servers: an answer of our own API that does not fit the OpenAPI document becomes a failure.

The caller gets the status 500 with a sentence that names the route and the field. The sentence is also written to a
file in the state folder. Stopping the server fails if the file exists.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.app import ROUTES, Api
from trainshed.api.http.responses import problem_response
from trainshed.api.http.routing import Route
from trainshed.api.openapi.document import document
from trainshed.testing.answers import Answers

FAULTS = "wrong-answers.txt"


def checked_api(home: Path) -> type[Api]:
    """Return the class of an API that checks its answers, for a server with this state folder."""
    answers = Answers(document(ROUTES))

    class CheckedApi(Api):
        async def respond(self, request: Request) -> Response:
            response = await super().respond(request)
            if not (sentence := fault(answers, request.scope.get("trainshed.route"), response)):
                return response
            with open(home / FAULTS, "a") as file:
                file.write(f"{sentence}\n")
            return problem_response(500, "INTERNAL", "internalError", sentence)

    return CheckedApi


def fault(answers: Answers, route: Route | None, response: Response) -> str:
    """Return what is wrong with a response. Returns "" for a file, and for a route without a schema."""
    if route is None or route.schema is None or not response.headers["content-type"].startswith("application/json"):
        return ""
    body: Any = orjson.loads(response.body)
    return answers.fault(route.method, route.path, response.status_code, body)
