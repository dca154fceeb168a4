"""Models beyond Google's API: details, splits, rollbacks, rollouts, sample requests and replays of logged requests."""

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
from trainshed.api.schemas import rollouts as rollout_shapes
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


async def create_rollout(request: Request) -> Response:
    wanted = await body(request)
    return json_response(await run_in_threadpool(services(request).rollouts.create, *_model(request), wanted))


async def list_rollouts(request: Request) -> Response:
    return json_response(await run_in_threadpool(services(request).rollouts.list, *_model(request)))


async def get_rollout(request: Request) -> Response:
    return json_response(await run_in_threadpool(services(request).rollouts.get, *_rollout(request)))


async def stop_rollout(request: Request) -> Response:
    await body(request)
    return json_response(await run_in_threadpool(services(request).rollouts.stop, *_rollout(request)))


async def promote_rollout(request: Request) -> Response:
    await body(request)
    return json_response(await run_in_threadpool(services(request).rollouts.promote, *_rollout(request)))


def _model(request: Request) -> tuple[str, str]:
    """Return the project and the model of a request."""
    return project(request), request.path_params["model"]


def _version(request: Request) -> tuple[str, str, str]:
    """Return the project, the model and the version of a request."""
    return *_model(request), request.path_params["version"]


def _rollout(request: Request) -> tuple[str, str, str]:
    """Return the project, the model and the rollout of a request."""
    return *_model(request), request.path_params["rollout"]


_MODEL = "/trainshed/v1/projects/{project}/models/{model}"
_VERSION = f"{_MODEL}/versions/{{version}}"
_ROLLOUTS = f"{_MODEL}/rollouts"
_ROLLOUT = f"{_ROLLOUTS}/{{rollout}}"

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
    Route(
        method="POST",
        path=_ROLLOUTS,
        access=Access.WRITE,
        scope=ProjectScope.PATH,
        handler=create_rollout,
        schema=RouteSchema(
            name="rollouts.create",
            summary="Roll a version out by stages, and back if a condition says so",
            body=rollout_shapes.RolloutRequestBody,
            response=rollout_shapes.RolloutBody,
        ),
    ),
    Route(
        method="GET",
        path=_ROLLOUTS,
        access=Access.READ,
        scope=ProjectScope.PATH,
        handler=list_rollouts,
        schema=RouteSchema(
            name="rollouts.list", summary="List the rollouts of a model", response=rollout_shapes.RolloutListBody
        ),
    ),
    Route(
        method="GET",
        path=_ROLLOUT,
        access=Access.READ,
        scope=ProjectScope.PATH,
        handler=get_rollout,
        schema=RouteSchema(
            name="rollouts.get", summary="Get a rollout with what it has measured", response=rollout_shapes.RolloutBody
        ),
    ),
    Route(
        method="POST",
        path=f"{_ROLLOUT}:stop",
        access=Access.WRITE,
        scope=ProjectScope.PATH,
        handler=stop_rollout,
        schema=RouteSchema(
            name="rollouts.stop",
            summary="Stop a rollout: all requests go to the version of before",
            description="The next request is routed by it.",
            response=rollout_shapes.RolloutBody,
        ),
    ),
    Route(
        method="POST",
        path=f"{_ROLLOUT}:promote",
        access=Access.WRITE,
        scope=ProjectScope.PATH,
        handler=promote_rollout,
        schema=RouteSchema(
            name="rollouts.promote",
            summary="Make the version of a rollout the default now",
            description="The next request is routed by it.",
            response=rollout_shapes.RolloutBody,
        ),
    ),
)
