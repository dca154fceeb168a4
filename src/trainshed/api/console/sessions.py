"""Sessions of the console: sign-in with a token or by a sign-in link, sign-out, and a description of the session."""

from __future__ import annotations

import ipaddress
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from trainshed.api.http import auth, cookies
from trainshed.api.http.request import body, principal, services, sign_in
from trainshed.api.http.routing import ProjectScope, Route, RouteSchema
from trainshed.api.schemas import access as shapes
from trainshed.api.schemas.server import EmptyBody
from trainshed.domain import names
from trainshed.domain.iam import Access, Principal
from trainshed.errors import FailedPreconditionError, InvalidArgumentError, ResourceExhaustedError
from trainshed.services.access.sessions import CODE_TTL_S, SESSION_TTL_S

BODY_LIMIT = 4096
_PATH = "/trainshed/v1/session"
PRIVATE = {"cache-control": "no-store", "referrer-policy": "no-referrer"}
_LINK_EXPIRED = (
    f"This link was opened before, or it is older than {CODE_TTL_S} seconds. Run `trainshed console` again, or go to "
    f"the console's own address and sign in with a token.\n"
)


async def begin(request: Request) -> Response:
    fields = await body(request, limit=BODY_LIMIT)
    if not request.scope["trainshed.authentication"]:
        return await _session_response(request, auth.ANONYMOUS)
    if not isinstance(token := fields.get("token"), str) or not token.strip():
        raise InvalidArgumentError('The body must hold the token to sign in with: {"token": "..."}.', field="token")
    sessions, tokens = services(request).sessions, services(request).tokens
    session = await run_in_threadpool(sessions.begin, token.strip(), address=_address(request))
    holder = await run_in_threadpool(tokens.find, session)
    if holder is None:  # revoked in the meantime
        raise cookies.ended()
    sign_in(request, holder)
    response = await _session_response(request, holder)
    cookies.set_session(request, response, session, max_age_s=SESSION_TTL_S)
    return response


async def show(request: Request) -> Response:
    return await _session_response(request, principal(request))


async def end(request: Request) -> Response:
    session = request.scope.get("trainshed.session")
    if session is None and request.scope["trainshed.authentication"]:
        session = auth.bearer_token(request)  # of a command line
    if session is None or not await run_in_threadpool(services(request).sessions.end, session):
        raise FailedPreconditionError("This request has no session to end: it came with a token, or needs none.")
    response = JSONResponse({}, headers=PRIVATE)
    cookies.clear_session(request, response)
    return response


async def link(request: Request) -> Response:
    fields = await body(request, limit=BODY_LIMIT)
    project = names.project_id(str(fields["project"])) if fields.get("project") else ""
    if not request.scope["trainshed.authentication"]:
        return JSONResponse({"url": base_url(request) + _page_of(project)}, headers=PRIVATE)
    sessions, token, local = services(request).sessions, auth.bearer_token(request), _is_local(request)
    code = await run_in_threadpool(sessions.link, token, project, local=local)
    return JSONResponse({"url": f"{base_url(request)}/console/enter?code={code}"}, headers=PRIVATE)


async def enter(request: Request) -> Response:
    """Sign in by a link. Errors are plain text, because a person reads them in a browser."""
    sessions = services(request).sessions
    code = request.query_params.get("code", "")[:200]
    try:
        cross_site = request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        entry = await run_in_threadpool(sessions.enter, code, address=_address(request), cross_site=cross_site)
    except ResourceExhaustedError as exc:
        return PlainTextResponse(f"{exc}\n", 429, {**PRIVATE, "retry-after": str(exc.retry_after_s)})
    if entry is None:
        return PlainTextResponse(_LINK_EXPIRED, 401, PRIVATE)
    if (holder := await run_in_threadpool(services(request).tokens.find, entry.session)) is not None:
        sign_in(request, holder)
    response = RedirectResponse(_page_of(entry.project), 303, PRIVATE)
    cookies.set_session(request, response, entry.session, max_age_s=SESSION_TTL_S)
    return response


async def _session_response(request: Request, holder: Principal) -> JSONResponse:
    projects = await run_in_threadpool(services(request).projects.known_to, holder)
    session = {
        "user": holder.user,
        "project": holder.project,
        "role": holder.role.value,
        "projects": projects,
        "version": services(request).server.version,
        "url": base_url(request),
        "authentication": request.scope["trainshed.authentication"],
    }
    return JSONResponse(session, headers=PRIVATE)


def _page_of(project: str) -> str:
    return f"/#/p/{project}" if project else "/"


def base_url(request: Request) -> str:
    """Return the base URL by which the caller reached this server.

    A wildcard address becomes the loopback address, since no browser can open a wildcard.
    """
    host = request.headers["host"]
    for wildcard, loopback in (("0.0.0.0", "127.0.0.1"), ("[::]", "[::1]")):  # noqa: S104  compared, not bound
        if host == wildcard or host.startswith(f"{wildcard}:"):
            host = loopback + host.removeprefix(wildcard)
    return f"{request.url.scheme}://{host}"


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


def _is_local(request: Request) -> bool:
    try:
        return ipaddress.ip_address(_address(request)).is_loopback
    except ValueError:
        return False


ROUTES = (
    Route(
        method="POST",
        path=_PATH,
        access=Access.PUBLIC,
        scope=ProjectScope.SERVER,
        handler=begin,
        schema=RouteSchema(
            name="sessions.begin",
            summary="Sign a browser in",
            description="Sets the cookie of the session.",
            body=shapes.SignInRequestBody,
            response=shapes.SessionBody,
            errors=(HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS),
        ),
    ),
    Route(
        method="GET",
        path=_PATH,
        access=Access.CONNECT,
        scope=ProjectScope.CALLER,
        handler=show,
        schema=RouteSchema(name="sessions.get", summary="Get who is signed in", response=shapes.SessionBody),
    ),
    Route(
        method="DELETE",
        path=_PATH,
        access=Access.READ,
        scope=ProjectScope.CALLER,
        handler=end,
        recorded=True,
        schema=RouteSchema(name="sessions.end", summary="Sign a browser or a command line out", response=EmptyBody),
    ),
    Route(
        method="POST",
        path=f"{_PATH}:link",
        access=Access.READ,
        scope=ProjectScope.CALLER,
        handler=link,
        schema=RouteSchema(
            name="sessions.link",
            summary="Create a sign-in link",
            description="For a token, not for a session.",
            body=shapes.LinkRequestBody,
            response=shapes.SignInLinkBody,
        ),
    ),
    Route(
        method="GET", path="/console/enter", access=Access.PUBLIC, scope=ProjectScope.SERVER, handler=enter, linked=True
    ),
)
