"""The cookie of a browser's session: when it counts, and what it looks like.

A browser sends cookies also with requests that other pages make, so a cookie counts only where our own page is behind
the request. Cookies know no ports: each server of a machine has a name of its own for its cookie.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from trainshed.errors import PermissionDeniedError, UnauthenticatedError

HEADER = "x-trainshed-console"  #: a page of another origin can't set it without asking us first, and we say no
_SAFE = ("GET", "HEAD")


def session_of(request: Request) -> str | None:
    """The session that the request's cookie holds, good or not; None without a cookie, or beside another credential.

    `PermissionDeniedError` if it comes with a change that is not provably our own page's. That a page of another
    origin has no part
    in a request that only reads was seen to before; what it could do with the answer, the answer's headers forbid.
    """
    if "authorization" in request.headers:
        return None
    session = request.cookies.get(_name(request)) or None
    if session is not None and request.method not in _SAFE:
        _check_own_page(request)
    return session


def ended() -> UnauthenticatedError:
    return UnauthenticatedError("Your session has ended: it expired, or its token was revoked. Sign in again.")


def _check_own_page(request: Request) -> None:
    if "origin" not in request.headers or HEADER not in request.headers:  # another's Origin was denied before
        raise PermissionDeniedError(
            f"With a session's cookie only the console's own page may change anything: the request needs an Origin "
            f"of this server, and the header {HEADER}. Programs send a token instead."
        )


def _name(request: Request) -> str:
    port = request.headers["host"].rpartition(":")[2]
    return f"trainshed-{port}" if port.isascii() and port.isdigit() else "trainshed"


def set_session(request: Request, response: Response, session: str, *, max_age_s: int) -> None:
    response.set_cookie(
        _name(request),
        session,
        max_age=max_age_s,
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def clear_session(request: Request, response: Response) -> None:
    response.delete_cookie(
        _name(request), path="/", secure=request.url.scheme == "https", httponly=True, samesite="strict"
    )
