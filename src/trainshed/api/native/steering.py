"""Steering of a tuning job's search while it runs."""

from __future__ import annotations

from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.request import body, principal, project, services
from trainshed.api.http.responses import json_response
from trainshed.api.http.routing import ProjectScope, Route, RouteSchema
from trainshed.api.schemas import steering as shapes
from trainshed.domain.iam import Access
from trainshed.domain.json_fields import int32, message, wrong_value

_BOUNDS = message({"maxTrials": int32, "maxParallelTrials": int32})
_JOB = "/trainshed/v1/projects/{project}/jobs/{job}"


async def change(request: Request) -> Response:
    wanted = _BOUNDS(await body(request), "")
    call = partial(
        services(request).steering.change,
        *_job(request),
        max_trials=wanted.get("maxTrials"),
        max_parallel=wanted.get("maxParallelTrials"),
        user=principal(request).user,
    )
    return json_response(await run_in_threadpool(call))


async def try_point(request: Request) -> Response:
    values = (await body(request)).get("hyperparameters")
    if not isinstance(values, dict):
        raise wrong_value("hyperparameters", "Map", values, "an object with a value for each parameter")
    call = partial(services(request).steering.try_point, *_job(request), values, user=principal(request).user)
    return json_response(await run_in_threadpool(call))


async def finish(request: Request) -> Response:
    call = partial(services(request).steering.finish, *_job(request), user=principal(request).user)
    return json_response(await run_in_threadpool(call))


def _job(request: Request) -> tuple[str, str]:
    """Return the project and the job of a request."""
    return project(request), request.path_params["job"]


ROUTES = (
    Route(
        method="POST",
        path=f"{_JOB}:changeSearch",
        access=Access.WRITE,
        scope=ProjectScope.PATH,
        handler=change,
        schema=RouteSchema(
            name="jobs.changeSearch",
            summary="Change how many trials a search has, or how many run at a time",
            description="The search must not have ended.",
            body=shapes.ChangeSearchBody,
            response=shapes.SteeringBody,
        ),
    ),
    Route(
        method="POST",
        path=f"{_JOB}:tryPoint",
        access=Access.WRITE,
        scope=ProjectScope.PATH,
        handler=try_point,
        schema=RouteSchema(
            name="jobs.tryPoint",
            summary="Make a point of one's own the next trial of a search",
            description="If no trial is left for it, `maxTrials` grows by one.",
            body=shapes.TryPointBody,
            response=shapes.SteeringBody,
        ),
    ),
    Route(
        method="POST",
        path=f"{_JOB}:finishSearch",
        access=Access.WRITE,
        scope=ProjectScope.PATH,
        handler=finish,
        schema=RouteSchema(
            name="jobs.finishSearch",
            summary="Stop all trials of a search, and keep what they have reported",
            description="The job SUCCEEDED if a trial has a value. The response comes before the trials have ended.",
            response=shapes.SteeringBody,
        ),
    ),
)
