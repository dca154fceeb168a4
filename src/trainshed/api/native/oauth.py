"""OAuth 2 for clients that hold a refresh token, as gsutil does: a Trainshed token buys a short-lived one."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse

from trainshed.api.http.bodies import read_body
from trainshed.api.http.request import services
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import Access

FORM_LIMIT = 16_384
ACCESS_TOKEN_S = 3600


async def token(request: Request) -> JSONResponse:
    form = parse_qs((await read_body(request, limit=FORM_LIMIT)).decode("ascii", "replace"))
    if form.get("grant_type") != ["refresh_token"]:
        return JSONResponse({"error": "unsupported_grant_type"}, 400)
    issue = services(request).tokens.exchange
    access_token = await run_in_threadpool(issue, form.get("refresh_token", [""])[0], ttl_s=ACCESS_TOKEN_S)
    if access_token is None:
        return JSONResponse({"error": "invalid_grant", "error_description": "The refresh token is not known."}, 400)
    return JSONResponse({"access_token": access_token, "token_type": "Bearer", "expires_in": ACCESS_TOKEN_S})


ROUTES = tuple(
    Route(method="POST", path=path, access=Access.PUBLIC, scope=ProjectScope.SERVER, handler=token)
    for path in ("/token", "/oauth2/token")
)
