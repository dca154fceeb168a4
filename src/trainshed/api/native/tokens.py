"""Tokens: owners create, list and revoke them. Clients exchange refresh tokens for access tokens."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse

from trainshed.api.http.bodies import read_body, read_json_object
from trainshed.api.http.request import principal, services
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import Access

FORM_LIMIT = 16_384
ACCESS_TOKEN_TTL_S = 3600


async def create(request: Request) -> JSONResponse:
    body = await read_json_object(request)
    return JSONResponse(await run_in_threadpool(services(request).tokens.create, principal(request), body))


async def show_all(request: Request) -> JSONResponse:
    rows = await run_in_threadpool(services(request).tokens.visible, principal(request))
    return JSONResponse({"tokens": rows})


async def revoke(request: Request) -> JSONResponse:
    """Revoke a token and stop the TensorBoards of its project: its holder may know their URLs, which need no token."""
    tokens, boards = services(request).tokens, services(request).tensorboards
    body = await run_in_threadpool(tokens.revoke, principal(request), request.path_params["token"])
    await run_in_threadpool(boards.end_of, body["project"])
    return JSONResponse(body)


async def token(request: Request) -> JSONResponse:
    form = parse_qs((await read_body(request, limit=FORM_LIMIT)).decode("ascii", "replace"))
    if form.get("grant_type") != ["refresh_token"]:
        return JSONResponse({"error": "unsupported_grant_type"}, 400)
    issue = services(request).tokens.exchange
    access_token = await run_in_threadpool(issue, form.get("refresh_token", [""])[0], ttl_s=ACCESS_TOKEN_TTL_S)
    if access_token is None:
        return JSONResponse({"error": "invalid_grant", "error_description": "The refresh token is not known."}, 400)
    return JSONResponse({"access_token": access_token, "token_type": "Bearer", "expires_in": ACCESS_TOKEN_TTL_S})


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
    *(
        Route(method="POST", path=path, access=Access.PUBLIC, scope=ProjectScope.SERVER, handler=token)
        for path in ("/token", "/oauth2/token")
    ),
)
