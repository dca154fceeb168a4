"""Sign-in to the console by OpenID Connect: the way to the provider, and the way back."""

from __future__ import annotations

import secrets

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from trainshed.api.console.sessions import PRIVATE, base_url
from trainshed.api.http import cookies
from trainshed.api.http.request import services, sign_in
from trainshed.api.http.routing import Handler, ProjectScope, Route
from trainshed.domain import names
from trainshed.domain.iam import Access
from trainshed.errors import NotFoundError, PermissionDeniedError, TrainshedError, UnavailableError
from trainshed.services.access.oidc import SIGN_IN_TTL_S, OidcSignIn
from trainshed.services.access.sessions import SESSION_TTL_S

_CALLBACK = "/console/oidc/callback"


async def ways(request: Request) -> Response:
    return JSONResponse({"openId": services(request).oidc is not None}, headers=PRIVATE)


async def start(request: Request) -> Response:
    oidc = _oidc(request)
    project = request.query_params.get("project", "")
    redirect_uri = base_url(request) + _CALLBACK
    try:
        project = names.project_id(project) if project else ""
        state, url = await run_in_threadpool(oidc.start, redirect_uri=redirect_uri, project=project)
    except TrainshedError as exc:
        return _problem(exc)
    response = RedirectResponse(url, 303, PRIVATE)
    cookies.set_state(request, response, state, max_age_s=SIGN_IN_TTL_S, path=_CALLBACK)
    return response


async def callback(request: Request) -> Response:
    """Sign in. Errors are plain text, because a person reads them in a browser."""
    oidc, query = _oidc(request), request.query_params
    state, kept = query.get("state", "")[:200], cookies.state_of(request)
    if not kept or not secrets.compare_digest(kept.encode(), state.encode()):
        return PlainTextResponse("This sign-in did not begin in this browser. Sign in again.\n", 401, PRIVATE)
    if "error" in query:
        return PlainTextResponse("The OpenID provider did not sign you in. Sign in again.\n", 401, PRIVATE)
    try:
        session = await run_in_threadpool(oidc.finish, state, query.get("code", "")[:4096])
    except TrainshedError as exc:
        return _problem(exc)
    if (holder := await run_in_threadpool(services(request).tokens.find, session)) is not None:
        sign_in(request, holder)
    response = RedirectResponse("/", 303, PRIVATE)
    cookies.set_session(request, response, session, max_age_s=SESSION_TTL_S)
    return response


def _oidc(request: Request) -> OidcSignIn:
    oidc = services(request).oidc
    if oidc is None:
        raise NotFoundError("This server has no OpenID provider. Sign in with a token.")
    return oidc


def _problem(exc: TrainshedError) -> Response:
    status = 401
    if isinstance(exc, PermissionDeniedError):
        status = 403
    elif isinstance(exc, UnavailableError):
        status = 503
    return PlainTextResponse(f"{exc}\n", status, PRIVATE)


def _route(path: str, handler: Handler) -> Route:
    return Route(method="GET", path=path, access=Access.PUBLIC, scope=ProjectScope.SERVER, handler=handler, linked=True)


ROUTES = (_route("/console/sign-in", ways), _route("/console/oidc/start", start), _route(_CALLBACK, callback))
