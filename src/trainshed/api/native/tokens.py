"""Tokens: made, listed and revoked by owners."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse

from trainshed.api.http.bodies import read_json_object
from trainshed.api.http.request import principal, services
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import Access


async def create(request: Request) -> JSONResponse:
    body = await read_json_object(request)
    return JSONResponse(await run_in_threadpool(services(request).tokens.create, principal(request), body))


async def show_all(request: Request) -> JSONResponse:
    rows = await run_in_threadpool(services(request).tokens.visible, principal(request))
    return JSONResponse({"tokens": rows})


async def revoke(request: Request) -> JSONResponse:
    """Its holder may know the addresses of TensorBoards, which need no token: they end too."""
    tokens, boards = services(request).tokens, services(request).tensorboards
    body = await run_in_threadpool(tokens.revoke, principal(request), request.path_params["token"])
    await run_in_threadpool(boards.end_of, body["project"])
    return JSONResponse(body)


ROUTES = (
    Route(method="POST", path="/trainshed/v1/tokens", access=Access.ADMIN, scope=ProjectScope.BODY, handler=create),
    Route(method="GET", path="/trainshed/v1/tokens", access=Access.ADMIN, scope=ProjectScope.BODY, handler=show_all),
    Route(
        method="POST",
        path="/trainshed/v1/tokens/{token}:revoke",
        access=Access.ADMIN,
        scope=ProjectScope.BODY,
        handler=revoke,
    ),
)
