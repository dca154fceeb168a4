"""projects.getConfig and projects.locations of the ml v1 API."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.paging import page_request
from trainshed.api.http.request import project, read_query, services
from trainshed.api.http.responses import json_response
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import Access


async def get_config(request: Request) -> Response:
    read_query(request)
    return json_response(await run_in_threadpool(services(request).projects.config, project(request)))


async def list_locations(request: Request) -> Response:
    query = read_query(request, "pageSize", "pageToken")
    page_request(query)  # there is one location, so one page; invalid parameters are rejected all the same
    return json_response({"locations": services(request).projects.locations(project(request))})


async def get_location(request: Request) -> Response:
    read_query(request)
    return json_response(services(request).projects.location(project(request), request.path_params["location"]))


_LOCATIONS = "/v1/projects/{project}/locations"

ROUTES = (
    Route(
        method="GET",
        path="/v1/projects/{project}:getConfig",
        access=Access.READ,
        scope=ProjectScope.PATH,
        handler=get_config,
    ),
    Route(method="GET", path=_LOCATIONS, access=Access.READ, scope=ProjectScope.PATH, handler=list_locations),
    Route(
        method="GET",
        path=f"{_LOCATIONS}/{{location}}",
        access=Access.READ,
        scope=ProjectScope.PATH,
        handler=get_location,
    ),
)
