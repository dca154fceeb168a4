"""The overview of a project."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.request import project, read_query, services
from trainshed.api.http.responses import json_response
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import Access


async def show(request: Request) -> Response:
    read_query(request)
    return json_response(await run_in_threadpool(services(request).overview.of, project(request)))


ROUTES = (
    Route(
        method="GET",
        path="/trainshed/v1/projects/{project}/overview",
        access=Access.READ,
        scope=ProjectScope.PATH,
        handler=show,
    ),
)
