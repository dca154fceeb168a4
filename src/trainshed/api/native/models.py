"""Replays of logged requests on a version, before it becomes the default."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.bodies import read_json_object
from trainshed.api.http.request import project, read_query, services
from trainshed.api.http.responses import json_response
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import Access


async def replay(request: Request) -> Response:
    read_query(request)
    body, params = await read_json_object(request), request.path_params
    report = await run_in_threadpool(
        services(request).replays.run, project(request), params["model"], params["version"], body
    )
    return json_response(report)


ROUTES = (
    Route(
        method="POST",
        path="/trainshed/v1/projects/{project}/models/{model}/versions/{version}:replay",
        access=Access.READ,
        scope=ProjectScope.PATH,
        handler=replay,
    ),
)
