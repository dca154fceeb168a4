"""Sign-in of command lines by OpenID Connect: a person ends it in any browser, with a code (RFC 8628)."""

from __future__ import annotations

from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from trainshed.api.http.request import body, services, sign_in, trail
from trainshed.api.http.routing import Handler, ProjectScope, Route, RouteSchema
from trainshed.api.http.slow_work import SIGN_INS, slow_work
from trainshed.api.schemas import access as shapes
from trainshed.domain import names
from trainshed.domain.iam import Access
from trainshed.errors import FailedPreconditionError, UnauthenticatedError
from trainshed.services.access.oidc import OidcSignIn

_PATH = "/trainshed/v1/device-sign-in"
_BODY_LIMIT = 4096
_PRIVATE = {"cache-control": "no-store"}


async def start(request: Request) -> Response:
    fields = await body(request, limit=_BODY_LIMIT)
    oidc = _oidc(request)
    project = names.project_id(str(fields["project"])) if fields.get("project") else ""
    begun = await slow_work(request, SIGN_INS).run(request, lambda _budget: oidc.start_device(project=project))
    return JSONResponse(
        {
            "handle": begun.handle,
            "userCode": begun.code.user_code,
            "url": begun.code.url,
            "urlWithCode": begun.code.url_with_code,
            "expiresSeconds": begun.code.ttl_s,
            "intervalSeconds": begun.code.interval_s,
        },
        headers=_PRIVATE,
    )


async def finish(request: Request) -> Response:
    """Give the token of a session. While the person has yet to sign in, 202, which is no entry of the record."""
    fields = await body(request, limit=_BODY_LIMIT)
    oidc, handle = _oidc(request), str(fields.get("handle", ""))
    outcome = await slow_work(request, SIGN_INS).run(request, lambda _budget: oidc.finish_device(handle))
    if not isinstance(outcome, str):
        trail(request).changes = False
        return JSONResponse({"intervalSeconds": outcome}, HTTPStatus.ACCEPTED, _PRIVATE)
    holder = await run_in_threadpool(services(request).tokens.find, outcome)
    if holder is None:  # ended in the meantime
        raise UnauthenticatedError("This sign-in has ended already. Sign in again.")
    sign_in(request, holder)
    signed_in = {"token": outcome, "user": holder.user, "project": holder.project, "role": holder.role.value}
    return JSONResponse(signed_in, headers=_PRIVATE)


def _oidc(request: Request) -> OidcSignIn:
    oidc = services(request).oidc
    if oidc is None:
        raise FailedPreconditionError("This server has no OpenID provider. Ask its owner for a token.")
    return oidc


def _route(path: str, handler: Handler, schema: RouteSchema) -> Route:
    return Route(
        method="POST", path=path, access=Access.PUBLIC, scope=ProjectScope.SERVER, handler=handler, schema=schema
    )


ROUTES = (
    _route(
        _PATH,
        start,
        RouteSchema(
            name="sessions.startDevice",
            summary="Begin the sign-in of a command line",
            description="The person opens `url` in any browser and types in `userCode`.",
            body=shapes.DeviceSignInRequestBody,
            response=shapes.DeviceSignInBody,
            errors=(HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE),
        ),
    ),
    _route(
        f"{_PATH}:finish",
        finish,
        RouteSchema(
            name="sessions.finishDevice",
            summary="Get the token of a command line that signs in",
            description=(
                "The status is 202, with `intervalSeconds` alone, while the person has yet to sign in: ask again after "
                "that time."
            ),
            body=shapes.DeviceHandleBody,
            response=shapes.DeviceOutcomeBody,
            errors=(
                HTTPStatus.UNAUTHORIZED,
                HTTPStatus.FORBIDDEN,
                HTTPStatus.TOO_MANY_REQUESTS,
                HTTPStatus.SERVICE_UNAVAILABLE,
            ),
        ),
    ),
)
