"""Tokens: owners create, list and revoke them. Clients exchange refresh tokens for access tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse

from trainshed.api.http.bodies import read_body
from trainshed.api.http.request import body, principal, services, sign_in, trail
from trainshed.api.http.routing import ProjectScope, Route, RouteSchema
from trainshed.api.schemas import access as shapes
from trainshed.api.schemas.server import TokenErrorBody
from trainshed.domain.iam import ALL_PROJECTS, Access
from trainshed.errors import TrainshedError

FORM_LIMIT = 16_384
ACCESS_TOKEN_TTL_S = 3600
_BY_KEY = "urn:ietf:params:oauth:grant-type:jwt-bearer"


async def create(request: Request) -> JSONResponse:
    wanted = await body(request)
    about = trail(request)
    about.name(str(wanted.get("user", "")))
    about.project = _project_of(wanted.get("project"))
    return JSONResponse(await run_in_threadpool(services(request).tokens.create, principal(request), wanted))


def _project_of(value: object) -> str:
    """Return the project that the record shows a change of tokens to. Empty for all projects."""
    return value if isinstance(value, str) and value != ALL_PROJECTS else ""


async def create_key(request: Request) -> JSONResponse:
    wanted = await body(request)
    about = trail(request)
    about.name(str(wanted.get("user", "")))
    about.project = _project_of(wanted.get("project"))
    make = partial(
        services(request).account_keys.create, token_uri=f"{request.scope['scheme']}://{request.headers['host']}/token"
    )
    return JSONResponse(await run_in_threadpool(make, principal(request), wanted))


async def show_all(request: Request) -> JSONResponse:
    rows = await run_in_threadpool(services(request).tokens.visible, principal(request))
    return JSONResponse({"tokens": rows})


async def revoke(request: Request) -> JSONResponse:
    """Revoke a token and stop the TensorBoards of its project: its holder may know their URLs, which need no token."""
    tokens, boards = services(request).tokens, services(request).tensorboards
    await body(request)
    revoked = await run_in_threadpool(tokens.revoke, principal(request), request.path_params["token"])
    await run_in_threadpool(boards.end_of, revoked["project"])
    return JSONResponse(revoked)


async def token(request: Request) -> JSONResponse:
    try:
        form = parse_qs((await read_body(request, limit=FORM_LIMIT)).decode("ascii", "replace"))
    except TrainshedError as exc:  # in the form that OAuth has for errors
        return JSONResponse({"error": "invalid_request", "error_description": str(exc)}, 400)
    grants: dict[str, tuple[Callable[..., str | None], str]] = {
        "refresh_token": (services(request).tokens.exchange, "refresh_token"),
        _BY_KEY: (services(request).account_keys.exchange, "assertion"),
    }
    grant = grants.get(form.get("grant_type", [""])[0])
    if grant is None:
        return JSONResponse({"error": "unsupported_grant_type"}, 400)
    issue, field = grant
    access_token = await run_in_threadpool(issue, form.get(field, [""])[0], ttl_s=ACCESS_TOKEN_TTL_S)
    holder = None if access_token is None else await run_in_threadpool(services(request).tokens.find, access_token)
    if holder is None:
        return JSONResponse({"error": "invalid_grant", "error_description": f"The {field} is not valid."}, 400)
    sign_in(request, holder)
    return JSONResponse({"access_token": access_token, "token_type": "Bearer", "expires_in": ACCESS_TOKEN_TTL_S})


ROUTES = (
    Route(
        method="POST",
        path="/trainshed/v1/tokens",
        access=Access.ADMIN,
        scope=ProjectScope.BODY,
        handler=create,
        schema=RouteSchema(
            name="tokens.create",
            summary="Create a token",
            description="It can do no more than the token that creates it.",
            body=shapes.TokenRequestBody,
            response=shapes.NewTokenBody,
        ),
    ),
    Route(
        method="POST",
        path="/trainshed/v1/tokens:createKey",
        access=Access.ADMIN,
        scope=ProjectScope.BODY,
        handler=create_key,
        schema=RouteSchema(
            name="tokens.createKey",
            summary="Create a key of a service account",
            description="It is listed and revoked as a token. The server keeps the public key alone.",
            body=shapes.KeyRequestBody,
            response=shapes.NewKeyBody,
        ),
    ),
    Route(
        method="GET",
        path="/trainshed/v1/tokens",
        access=Access.ADMIN,
        scope=ProjectScope.BODY,
        handler=show_all,
        schema=RouteSchema(name="tokens.list", summary="List the tokens", response=shapes.TokensBody),
    ),
    Route(
        method="POST",
        path="/trainshed/v1/tokens/{token}:revoke",
        access=Access.ADMIN,
        scope=ProjectScope.BODY,
        handler=revoke,
        schema=RouteSchema(
            name="tokens.revoke",
            summary="Revoke a token",
            description="What was got for it ends with it, and so do the TensorBoards of its project.",
            response=shapes.TokenBody,
        ),
    ),
    *(
        Route(
            method="POST",
            path=path,
            access=Access.PUBLIC,
            scope=ProjectScope.SERVER,
            handler=token,
            schema=RouteSchema(
                name=name,
                summary="Exchange a token for one that lasts an hour",
                description="As OAuth has it (RFC 6749), so its fields are in snake_case.",
                body=shapes.RefreshRequestBody,
                body_media="application/x-www-form-urlencoded",
                response=shapes.AccessTokenBody,
                error=TokenErrorBody,
                ignores_unknown_query=True,
            ),
        )
        for path, name in (("/token", "tokens.exchange"), ("/oauth2/token", "tokens.exchangeOauth2"))
    ),
)
