"""Models beyond Google's API: details, splits, rollbacks, sample requests and replays of logged requests."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.bodies import read_json_object
from trainshed.api.http.request import project, read_query, services
from trainshed.api.http.responses import json_response
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import Access
from trainshed.domain.json_fields import message

_NO_FIELDS = message({})


async def details(request: Request) -> Response:
    read_query(request)
    return json_response(await run_in_threadpool(services(request).models.details, *_model(request)))


async def split(request: Request) -> Response:
    read_query(request)
    body = await read_json_object(request)
    return json_response(await run_in_threadpool(services(request).models.split, *_model(request), body))


async def rollback(request: Request) -> Response:
    read_query(request)
    _NO_FIELDS(await read_json_object(request), "")
    return json_response(await run_in_threadpool(services(request).models.rollback, *_model(request)))


async def version_details(request: Request) -> Response:
    read_query(request)
    return json_response(await run_in_threadpool(services(request).versions.details, *_version(request)))


async def sample(request: Request) -> Response:
    read_query(request)
    return json_response(await run_in_threadpool(services(request).versions.sample, *_version(request)))


async def replay(request: Request) -> Response:
    read_query(request)
    body = await read_json_object(request)
    return json_response(await run_in_threadpool(services(request).replays.run, *_version(request), body))


def _model(request: Request) -> tuple[str, str]:
    """Return the project and the model of a request."""
    return project(request), request.path_params["model"]


def _version(request: Request) -> tuple[str, str, str]:
    """Return the project, the model and the version of a request."""
    return *_model(request), request.path_params["version"]


_MODEL = "/trainshed/v1/projects/{project}/models/{model}"
_VERSION = f"{_MODEL}/versions/{{version}}"

ROUTES = (
    Route(method="GET", path=_MODEL, access=Access.READ, scope=ProjectScope.PATH, handler=details),
    Route(method="POST", path=f"{_MODEL}:split", access=Access.WRITE, scope=ProjectScope.PATH, handler=split),
    Route(method="POST", path=f"{_MODEL}:rollback", access=Access.WRITE, scope=ProjectScope.PATH, handler=rollback),
    Route(method="GET", path=_VERSION, access=Access.READ, scope=ProjectScope.PATH, handler=version_details),
    Route(method="GET", path=f"{_VERSION}/sample", access=Access.READ, scope=ProjectScope.PATH, handler=sample),
    Route(method="POST", path=f"{_VERSION}:replay", access=Access.READ, scope=ProjectScope.PATH, handler=replay),
)
