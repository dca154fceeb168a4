"""The overview of a project."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.request import project, services
from trainshed.api.http.responses import json_response
from trainshed.api.http.routing import ProjectScope, Route, RouteSchema
from trainshed.api.schemas.server import OverviewBody
from trainshed.domain.iam import Access


async def show(request: Request) -> Response:
    return json_response(await run_in_threadpool(services(request).overview.of, project(request)))


ROUTES = (
    Route(
        method="GET",
        path="/trainshed/v1/projects/{project}/overview",
        access=Access.READ,
        scope=ProjectScope.PATH,
        handler=show,
        schema=RouteSchema(
            name="overview.get",
            summary="Get a project at a glance",
            description="For polling: responses are cached for one second.",
            response=OverviewBody,
        ),
    ),
)
