"""Secrets of a project: owners set and delete them, and nobody reads their values here."""

from __future__ import annotations

from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse

from trainshed.api.http.request import body, principal, project, services
from trainshed.api.http.routing import ProjectScope, Route, RouteSchema
from trainshed.api.schemas import secrets as shapes
from trainshed.api.schemas.server import EmptyBody
from trainshed.domain.iam import Access

_ALL = "/trainshed/v1/projects/{project}/secrets"


async def show_all(request: Request) -> JSONResponse:
    return JSONResponse({"secrets": await run_in_threadpool(services(request).secrets.listed, project(request))})


async def set_(request: Request) -> JSONResponse:
    wanted, name = await body(request), request.path_params["secret"]
    store = partial(services(request).secrets.set, user=principal(request).user)
    return JSONResponse(await run_in_threadpool(store, project(request), name, wanted.get("value")))


async def delete(request: Request) -> JSONResponse:
    await run_in_threadpool(services(request).secrets.delete, project(request), request.path_params["secret"])
    return JSONResponse({})


async def rotate_key(request: Request) -> JSONResponse:
    await body(request)
    return JSONResponse(await run_in_threadpool(services(request).secrets.rotate_key))


ROUTES = (
    Route(
        method="GET",
        path=_ALL,
        access=Access.READ,
        scope=ProjectScope.PATH,
        handler=show_all,
        schema=RouteSchema(
            name="secrets.list", summary="List the names of a project's secrets", response=shapes.SecretsBody
        ),
    ),
    Route(
        method="POST",
        path=f"{_ALL}/{{secret}}:set",
        access=Access.ADMIN,
        scope=ProjectScope.PATH,
        handler=set_,
        schema=RouteSchema(
            name="secrets.set",
            summary="Set a secret",
            description="Jobs that run keep the value that they have.",
            body=shapes.SecretRequestBody,
            response=shapes.SecretBody,
        ),
    ),
    Route(
        method="DELETE",
        path=f"{_ALL}/{{secret}}",
        access=Access.ADMIN,
        scope=ProjectScope.PATH,
        handler=delete,
        schema=RouteSchema(name="secrets.delete", summary="Delete a secret", response=EmptyBody),
    ),
    Route(
        method="POST",
        path="/trainshed/v1/secrets:rotateKey",
        access=Access.ADMIN,
        scope=ProjectScope.SERVER,
        handler=rotate_key,
        schema=RouteSchema(
            name="secrets.rotateKey",
            summary="Encrypt all secrets with a new key",
            description="The older keys are forgotten.",
            response=shapes.RotationBody,
        ),
    ),
)
