"""projects.models.versions of the ml v1 API."""

from __future__ import annotations

from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.bodies import read_json_object
from trainshed.api.http.paging import page_body, page_request
from trainshed.api.http.request import project, read_query, services, trail
from trainshed.api.http.responses import json_response
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.api.http.slow_work import INPUT_CHECKS, slow_work
from trainshed.domain.iam import Access
from trainshed.domain.json_fields import message

_NO_FIELDS = message({})


def _names(request: Request) -> tuple[str, str, str]:
    """Return the project, the model and the version of a request."""
    return project(request), request.path_params["model"], request.path_params["version"]


async def create(request: Request) -> Response:
    read_query(request)
    body, model = await read_json_object(request), request.path_params["model"]
    trail(request).name(str(body.get("name", "")))
    create_version = partial(services(request).versions.create, project(request), model, body)
    return json_response(await slow_work(request, INPUT_CHECKS).run(request, create_version))


async def get(request: Request) -> Response:
    read_query(request)
    return json_response(await run_in_threadpool(services(request).versions.get, *_names(request)))


async def list_versions(request: Request) -> Response:
    query = read_query(request, "filter", "pageSize", "pageToken")
    model, page_args = request.path_params["model"], page_request(query)
    page = await run_in_threadpool(services(request).versions.page, project(request), model, page_args)
    return json_response(page_body("versions", page))


async def patch(request: Request) -> Response:
    mask = read_query(request, "updateMask").get("updateMask", "")
    body = await read_json_object(request)
    return json_response(
        await run_in_threadpool(services(request).versions.patch, *_names(request), mask=mask, body=body)
    )


async def delete(request: Request) -> Response:
    read_query(request)
    return json_response(await run_in_threadpool(services(request).versions.delete, *_names(request)))


async def set_default(request: Request) -> Response:
    read_query(request)
    _NO_FIELDS(await read_json_object(request), "")
    return json_response(await run_in_threadpool(services(request).versions.set_default, *_names(request)))


_VERSIONS = "/v1/projects/{project}/models/{model}/versions"
_VERSION = "/v1/projects/{project}/models/{model}/versions/{version}"

ROUTES = (
    Route(method="POST", path=_VERSIONS, access=Access.WRITE, scope=ProjectScope.PATH, handler=create),
    Route(method="GET", path=_VERSIONS, access=Access.READ, scope=ProjectScope.PATH, handler=list_versions),
    Route(method="GET", path=_VERSION, access=Access.READ, scope=ProjectScope.PATH, handler=get),
    Route(method="PATCH", path=_VERSION, access=Access.WRITE, scope=ProjectScope.PATH, handler=patch),
    Route(method="DELETE", path=_VERSION, access=Access.WRITE, scope=ProjectScope.PATH, handler=delete),
    Route(
        method="POST", path=f"{_VERSION}:setDefault", access=Access.WRITE, scope=ProjectScope.PATH, handler=set_default
    ),
)
