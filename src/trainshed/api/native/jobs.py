"""Jobs beyond Google's API: search, details, progress, resource use, exports and chaos."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.bodies import read_json_object
from trainshed.api.http.request import number, project, read_query, services
from trainshed.api.http.responses import json_response
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import Access
from trainshed.services.jobs.search import DEFAULT_ROWS, JobSearchRequest

_JOBS = "/trainshed/v1/projects/{project}/jobs"
_JOB = f"{_JOBS}/{{job}}"


async def show(request: Request) -> Response:
    query = read_query(
        request, "search", "state", "label", "kind", "pageSize", "pageToken", repeated=("state", "label")
    )
    search = JobSearchRequest(
        search=query.get("search", ""),
        state=query.get("state", ""),
        label=query.get("label", ""),
        kind=query.get("kind", ""),
        page_size=number(query, "pageSize", default=DEFAULT_ROWS),
        page_token=query.get("pageToken", ""),
    )
    return json_response(await run_in_threadpool(services(request).job_rows.page, project(request), search))


async def details(request: Request) -> Response:
    read_query(request)
    return json_response(
        await run_in_threadpool(services(request).jobs.details, project(request), request.path_params["job"])
    )


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


async def kill(request: Request) -> Response:
    read_query(request)
    body, job = await read_json_object(request), request.path_params["job"]
    return json_response(await run_in_threadpool(services(request).chaos.kill, project(request), job, body))


ROUTES = (
    Route(method="GET", path=_JOBS, access=Access.READ, scope=ProjectScope.PATH, handler=show),
    Route(method="GET", path=_JOB, access=Access.READ, scope=ProjectScope.PATH, handler=details),
    Route(method="GET", path=f"{_JOB}/progress", access=Access.READ, scope=ProjectScope.PATH, handler=progress),
    Route(method="GET", path=f"{_JOB}/stats", access=Access.READ, scope=ProjectScope.PATH, handler=stats),
    Route(method="GET", path=f"{_JOB}/exports", access=Access.READ, scope=ProjectScope.PATH, handler=exports),
    Route(method="POST", path=f"{_JOB}:chaos", access=Access.WRITE, scope=ProjectScope.PATH, handler=kill),
)
