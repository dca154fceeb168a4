"""Runtimes: everyone lists them, owners of the server install and remove them."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse

from trainshed.api.http.request import body, services
from trainshed.api.http.routing import ProjectScope, Route, RouteSchema
from trainshed.api.schemas.server import EmptyBody, RuntimeBody, RuntimesBody
from trainshed.domain.iam import Access

_ALL = "/trainshed/v1/runtimes"
_ONE = _ALL + "/{runtime}"


async def show_all(request: Request) -> JSONResponse:
    return JSONResponse({"runtimes": await run_in_threadpool(services(request).runtimes.visible)})


async def install(request: Request) -> JSONResponse:
    await body(request)
    name = request.path_params["runtime"]
    return JSONResponse(await run_in_threadpool(services(request).runtimes.install, name))


async def remove(request: Request) -> JSONResponse:
    name = request.path_params["runtime"]
    return JSONResponse(await run_in_threadpool(services(request).runtimes.remove, name))


ROUTES = (
    Route(
        method="GET",
        path=_ALL,
        access=Access.READ,
        scope=ProjectScope.CALLER,
        handler=show_all,
        schema=RouteSchema(name="runtimes.list", summary="List the runtimes", response=RuntimesBody),
    ),
    Route(
        method="POST",
        path=_ONE + ":install",
        access=Access.ADMIN,
        scope=ProjectScope.SERVER,
        handler=install,
        schema=RouteSchema(
            name="runtimes.install",
            summary="Start to build a runtime",
            description="The response comes at once; the list tells how far it is.",
            response=RuntimeBody,
        ),
    ),
    Route(
        method="DELETE",
        path=_ONE,
        access=Access.ADMIN,
        scope=ProjectScope.SERVER,
        handler=remove,
        schema=RouteSchema(name="runtimes.remove", summary="Remove a runtime that nothing uses", response=EmptyBody),
    ),
)
