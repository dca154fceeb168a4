"""How far a job has come, what it uses, and what it exported."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.queries import number, read_query
from trainshed.api.http.request import project, services
from trainshed.api.http.responses import json_response
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import Access


async def progress(request: Request) -> Response:
    read_query(request)
    job = request.path_params["job"]
    return json_response(await run_in_threadpool(services(request).progress.progress, project(request), job))


async def stats(request: Request) -> Response:
    points = number(read_query(request, "points"), "points")
    job = request.path_params["job"]
    return json_response(
        await run_in_threadpool(services(request).progress.stats, project(request), job, points=points)
    )


async def exports(request: Request) -> Response:
    read_query(request)
    return json_response(
        await run_in_threadpool(services(request).exports.of, project(request), request.path_params["job"])
    )


_JOB = "/trainshed/v1/projects/{project}/jobs/{job}"

ROUTES = (
    Route(method="GET", path=f"{_JOB}/progress", access=Access.READ, scope=ProjectScope.PATH, handler=progress),
    Route(method="GET", path=f"{_JOB}/stats", access=Access.READ, scope=ProjectScope.PATH, handler=stats),
    Route(method="GET", path=f"{_JOB}/exports", access=Access.READ, scope=ProjectScope.PATH, handler=exports),
)
