"""projects.models of the ml v1 API."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.bodies import read_json_object
from trainshed.api.http.paging import page_body, page_request
from trainshed.api.http.request import project, read_query, services, trail
from trainshed.api.http.responses import json_response
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.api.ml.policies import policy_routes
from trainshed.domain.iam import Access


async def create(request: Request) -> Response:
    read_query(request)
    body = await read_json_object(request)
    trail(request).name(str(body.get("name", "")))
    return json_response(await run_in_threadpool(services(request).models.create, project(request), body))


async def get(request: Request) -> Response:
    read_query(request)
    return json_response(
        await run_in_threadpool(services(request).models.get, project(request), request.path_params["model"])
    )


async def list_models(request: Request) -> Response:
    query = read_query(request, "filter", "pageSize", "pageToken")
    page = await run_in_threadpool(services(request).models.page, project(request), page_request(query))
    return json_response(page_body("models", page))


async def patch(request: Request) -> Response:
    mask = read_query(request, "updateMask").get("updateMask", "")
    body, model = await read_json_object(request), request.path_params["model"]
    models = services(request).models
    return json_response(await run_in_threadpool(models.patch, project(request), model, mask=mask, body=body))


async def delete(request: Request) -> Response:
    read_query(request)
    model = request.path_params["model"]
    return json_response(await run_in_threadpool(services(request).models.delete, project(request), model))


_MODELS = "/v1/projects/{project}/models"
_MODEL = "/v1/projects/{project}/models/{model}"

ROUTES = (
    Route(method="POST", path=_MODELS, access=Access.WRITE, scope=ProjectScope.PATH, handler=create),
    Route(method="GET", path=_MODELS, access=Access.READ, scope=ProjectScope.PATH, handler=list_models),
    Route(method="GET", path=_MODEL, access=Access.READ, scope=ProjectScope.PATH, handler=get),
    Route(method="PATCH", path=_MODEL, access=Access.WRITE, scope=ProjectScope.PATH, handler=patch),
    Route(method="DELETE", path=_MODEL, access=Access.WRITE, scope=ProjectScope.PATH, handler=delete),
    *policy_routes(_MODEL, "model", lambda services: services.model_policies),
)
