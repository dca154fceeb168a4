"""The session cookie of a browser: when it is accepted, and its attributes.

A browser also sends cookies with requests that other pages make, so a cookie is accepted only if the console's page
made the request. Cookies ignore ports, so each server of a machine has its own cookie name.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from trainshed.errors import PermissionDeniedError, UnauthenticatedError

HEADER = "x-trainshed-console"  #: a page of another origin can't set it without a preflight, which is denied
_SAFE_METHODS = ("GET", "HEAD")


def session_of(request: Request) -> str | None:
    """Return the session of the request's cookie, which may be invalid.

    Returns None without a cookie, or beside an Authorization header. Raises `PermissionDeniedError` for a change that
    is not provably made by the console's page. Pages of other origins were denied before, and headers of the response
    keep them from reading it.
    """
    if "authorization" in request.headers:
        return None
    session = request.cookies.get(_cookie_name(request)) or None
    if session is not None and request.method not in _SAFE_METHODS:
        _check_own_page(request)
    return session


def ended() -> UnauthenticatedError:
    return UnauthenticatedError("Your session has ended: it expired, or its token was revoked. Sign in again.")


def _check_own_page(request: Request) -> None:
    if "origin" not in request.headers or HEADER not in request.headers:  # another Origin was denied before
        raise PermissionDeniedError(
            f"With a session's cookie only the console's own page may change anything: the request needs an Origin "
            f"of this server, and the header {HEADER}. Programs send a token instead."
        )


def _cookie_name(request: Request) -> str:
    port = request.headers["host"].rpartition(":")[2]
    return f"trainshed-{port}" if port.isascii() and port.isdigit() else "trainshed"


def set_session(request: Request, response: Response, session: str, *, max_age_s: int) -> None:
    response.set_cookie(
        _cookie_name(request),
        session,
        max_age=max_age_s,
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def set_state(request: Request, response: Response, state: str, *, max_age_s: int, path: str) -> None:
    """Set the cookie that binds a sign-in at a provider to this browser. It comes back with the provider's redirect."""
    response.set_cookie(
        f"{_cookie_name(request)}-sign-in",
        state,
        max_age=max_age_s,
        path=path,
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )


def state_of(request: Request) -> str:
    return request.cookies.get(f"{_cookie_name(request)}-sign-in", "")


def clear_session(request: Request, response: Response) -> None:
    response.delete_cookie(
        _cookie_name(request), path="/", secure=request.url.scheme == "https", httponly=True, samesite="strict"
    )
