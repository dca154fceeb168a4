"""projects.operations of the ml v1 API."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.bodies import read_json_object
from trainshed.api.http.paging import page_body, page_request
from trainshed.api.http.request import project, read_query, services
from trainshed.api.http.responses import json_response
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import Access
from trainshed.domain.json_fields import message
from trainshed.errors import UnimplementedError

_NO_FIELDS = message({})


async def get(request: Request) -> Response:
    read_query(request)
    operation = request.path_params["operation"]
    return json_response(await run_in_threadpool(services(request).operations.get, project(request), operation))


async def list_operations(request: Request) -> Response:
    query = read_query(request, "filter", "pageSize", "pageToken", "returnPartialSuccess")
    if query.get("returnPartialSuccess", "false") != "false":
        raise UnimplementedError("returnPartialSuccess is not offered: there is one location, and it is here.")
    page = await run_in_threadpool(services(request).operations.page, project(request), page_request(query))
    return json_response(page_body("operations", page))


async def cancel(request: Request) -> Response:
    read_query(request)
    _NO_FIELDS(await read_json_object(request), "")
    operation = request.path_params["operation"]
    await run_in_threadpool(services(request).operations.cancel, project(request), operation)
    return json_response({})


_OPERATIONS = "/v1/projects/{project}/operations"
_OPERATION = "/v1/projects/{project}/operations/{operation}"

ROUTES = (
    Route(method="GET", path=_OPERATIONS, access=Access.READ, scope=ProjectScope.PATH, handler=list_operations),
    Route(method="GET", path=_OPERATION, access=Access.READ, scope=ProjectScope.PATH, handler=get),
    Route(method="POST", path=f"{_OPERATION}:cancel", access=Access.WRITE, scope=ProjectScope.PATH, handler=cancel),
)
