"""projects.jobs of the ml v1 API."""

from __future__ import annotations

from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.bodies import read_json_object
from trainshed.api.http.paging import page_body, page_request
from trainshed.api.http.request import principal, project, read_query, services, trail
from trainshed.api.http.responses import json_response
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.api.http.slow_work import INPUT_CHECKS, slow_work
from trainshed.api.ml.policies import policy_routes
from trainshed.domain.iam import Access
from trainshed.domain.json_fields import message

_NO_FIELDS = message({})


async def create(request: Request) -> Response:
    read_query(request)
    body = await read_json_object(request)
    trail(request).name(str(body.get("jobId", "")))
    jobs = services(request).jobs
    create_job = partial(jobs.create, project(request), body, user=principal(request).user)
    if jobs.has_slow_checks(body):
        return json_response(await slow_work(request, INPUT_CHECKS).run(request, create_job))
    return json_response(await run_in_threadpool(create_job))


async def get(request: Request) -> Response:
    read_query(request)
    return json_response(
        await run_in_threadpool(services(request).jobs.get, project(request), request.path_params["job"])
    )


async def list_jobs(request: Request) -> Response:
    query = read_query(request, "filter", "pageSize", "pageToken")
    page = await run_in_threadpool(services(request).jobs.page, project(request), page_request(query))
    return json_response(page_body("jobs", page))


async def patch(request: Request) -> Response:
    mask = read_query(request, "updateMask").get("updateMask", "")
    body, job = await read_json_object(request), request.path_params["job"]
    return json_response(
        await run_in_threadpool(services(request).jobs.patch, project(request), job, mask=mask, body=body)
    )


async def cancel(request: Request) -> Response:
    read_query(request)
    _NO_FIELDS(await read_json_object(request), "")
    job, user = request.path_params["job"], principal(request).user
    await run_in_threadpool(services(request).jobs.cancel, project(request), job, user=user)
    return json_response({})


_JOBS = "/v1/projects/{project}/jobs"
_JOB = "/v1/projects/{project}/jobs/{job}"

ROUTES = (
    Route(method="POST", path=_JOBS, access=Access.WRITE, scope=ProjectScope.PATH, handler=create),
    Route(method="GET", path=_JOBS, access=Access.READ, scope=ProjectScope.PATH, handler=list_jobs),
    Route(method="GET", path=_JOB, access=Access.READ_JOB, scope=ProjectScope.PATH, handler=get),
    Route(method="PATCH", path=_JOB, access=Access.WRITE, scope=ProjectScope.PATH, handler=patch),
    Route(method="POST", path=f"{_JOB}:cancel", access=Access.WRITE, scope=ProjectScope.PATH, handler=cancel),
    *policy_routes(_JOB, "job", lambda services: services.policies),
)
