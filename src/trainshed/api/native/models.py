"""Models beyond Google's API: details, splits, rollbacks, sample requests and replays of logged requests."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.request import body, project, services
from trainshed.api.http.responses import json_response
from trainshed.api.http.routing import ProjectScope, Route, RouteSchema
from trainshed.api.http.slow_work import REPLAYS, slow_work
from trainshed.api.schemas import models as shapes
from trainshed.domain.iam import Access


async def details(request: Request) -> Response:
    return json_response(await run_in_threadpool(services(request).models.details, *_model(request)))


async def split(request: Request) -> Response:
    wanted = await body(request)
    return json_response(await run_in_threadpool(services(request).models.split, *_model(request), wanted))


async def rollback(request: Request) -> Response:
    await body(request)
    return json_response(await run_in_threadpool(services(request).models.rollback, *_model(request)))


async def version_details(request: Request) -> Response:
    return json_response(await run_in_threadpool(services(request).versions.details, *_version(request)))


async def sample(request: Request) -> Response:
    return json_response(await run_in_threadpool(services(request).versions.sample, *_version(request)))


async def replay(request: Request) -> Response:
    wanted = await body(request)
    run = partial(services(request).replays.run, *_version(request), wanted)
    return json_response(await slow_work(request, REPLAYS).run(request, run))


def _model(request: Request) -> tuple[str, str]:
    """Return the project and the model of a request."""
    return project(request), request.path_params["model"]


def _version(request: Request) -> tuple[str, str, str]:
    """Return the project, the model and the version of a request."""
    return *_model(request), request.path_params["version"]


_MODEL = "/trainshed/v1/projects/{project}/models/{model}"
_VERSION = f"{_MODEL}/versions/{{version}}"

ROUTES = (
    Route(
        method="GET",
        path=_MODEL,
        access=Access.READ,
        scope=ProjectScope.PATH,
        handler=details,
        schema=RouteSchema(
            name="models.details",
            summary="Get a model with its split and its traffic",
            response=shapes.ModelDetailsBody,
        ),
    ),
    Route(
        method="POST",
        path=f"{_MODEL}:split",
        access=Access.WRITE,
        scope=ProjectScope.PATH,
        handler=split,
        schema=RouteSchema(
            name="models.split",
            summary="Spread requests over several versions",
            description="The next request is routed by it.",
            body=shapes.SplitRequestBody,
            response=shapes.ModelDetailsBody,
        ),
    ),
    Route(
        method="POST",
        path=f"{_MODEL}:rollback",
        access=Access.WRITE,
        scope=ProjectScope.PATH,
        handler=rollback,
        schema=RouteSchema(
            name="models.rollback",
            summary="End a split, or make the default of before the default again",
            description="The next request is routed by it.",
            response=shapes.ModelDetailsBody,
        ),
    ),
    Route(
        method="GET",
        path=_VERSION,
        access=Access.READ,
        scope=ProjectScope.PATH,
        handler=version_details,
        schema=RouteSchema(
            name="versions.details", summary="Get a version with its hosts", response=shapes.VersionDetailsBody
        ),
    ),
    Route(
        method="GET",
        path=f"{_VERSION}/sample",
        access=Access.READ,
        scope=ProjectScope.PATH,
        handler=sample,
        schema=RouteSchema(
            name="versions.sample",
            summary="Get instances to begin with",
            description="No host is asked or woken.",
            response=shapes.SampleRequestBody,
        ),
    ),
    Route(
        method="POST",
        path=f"{_VERSION}:replay",
        access=Access.READ,
        scope=ProjectScope.PATH,
        handler=replay,
        schema=RouteSchema(
            name="versions.replay",
            summary="Send logged requests of the model to a version, and compare",
            body=shapes.ReplayRequestBody,
            response=shapes.ReplayBody,
            errors=(HTTPStatus.TOO_MANY_REQUESTS,),
        ),
    ),
)
