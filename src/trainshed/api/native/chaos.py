"""Killing a replica of a job, to see how the job gets over it."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.bodies import read_json_object
from trainshed.api.http.queries import read_query
from trainshed.api.http.request import project, services
from trainshed.api.http.responses import json_response
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import Access


async def kill(request: Request) -> Response:
    read_query(request)
    body, job = await read_json_object(request), request.path_params["job"]
    return json_response(await run_in_threadpool(services(request).chaos.kill, project(request), job, body))


ROUTES = (
    Route(
        method="POST",
        path="/trainshed/v1/projects/{project}/jobs/{job}:chaos",
        access=Access.WRITE,
        scope=ProjectScope.PATH,
        handler=kill,
    ),
)
