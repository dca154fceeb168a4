"""The server's description, settings and health."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from trainshed import __version__
from trainshed.api.http.request import principal, services
from trainshed.api.http.routing import ProjectScope, Route, RouteSchema
from trainshed.api.schemas import server as shapes
from trainshed.domain.iam import Access
from trainshed.gateway.open_metrics import CONTENT_TYPE


async def show(request: Request) -> JSONResponse:
    return JSONResponse(services(request).server.body(principal(request)))


async def settings(request: Request) -> JSONResponse:
    return JSONResponse(services(request).settings.body())


async def health(_request: Request) -> JSONResponse:
    return JSONResponse({"status": "ok", "version": __version__})


async def openapi(request: Request) -> Response:
    return Response(request.scope["trainshed.app"].openapi(), media_type="application/json")


async def metrics(request: Request) -> Response:
    body = await run_in_threadpool(services(request).metrics.body)
    return Response(body, headers={"content-type": CONTENT_TYPE})


ROUTES = (
    Route(method="GET", path="/metrics", access=Access.READ, scope=ProjectScope.SERVER, handler=metrics),
    Route(
        method="GET",
        path="/healthz",
        access=Access.PUBLIC,
        scope=ProjectScope.SERVER,
        handler=health,
        schema=RouteSchema(name="server.health", summary="Ask whether the server responds", response=shapes.HealthBody),
    ),
    Route(
        method="GET",
        path="/trainshed/v1/server",
        access=Access.CONNECT,
        scope=ProjectScope.CALLER,
        handler=show,
        schema=RouteSchema(
            name="server.get", summary="Get the endpoints and the process of the server", response=shapes.ServerBody
        ),
    ),
    Route(
        method="GET",
        path="/trainshed/v1/settings",
        access=Access.ADMIN,
        scope=ProjectScope.SERVER,
        handler=settings,
        schema=RouteSchema(name="server.settings", summary="Get the settings in effect", response=shapes.SettingsBody),
    ),
    Route(
        method="GET",
        path="/trainshed/v1/openapi.json",
        access=Access.PUBLIC,
        scope=ProjectScope.SERVER,
        handler=openapi,
        schema=RouteSchema(
            name="server.openapi",
            summary="Get this API as an OpenAPI document",
            description="It holds nothing of any project.",
            response=shapes.OpenApiBody,
        ),
    ),
)
