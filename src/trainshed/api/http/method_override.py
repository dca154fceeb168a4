"""X-HTTP-Method-Override: a POST that stands for another method.

Google's clients send a GET with a long query this way, with the query as the body.
"""

from __future__ import annotations

from starlette.requests import Request

from trainshed.api.http.bodies import read_body
from trainshed.errors import InvalidArgumentError

_METHODS = ("GET", "PUT", "PATCH", "DELETE")
_FORM = "application/x-www-form-urlencoded"
_MAX_QUERY_BYTES = 65_536


async def override_method(request: Request) -> None:
    """Give the request the method that its header names. A form in the body of a GET becomes its query.

    Raises `InvalidArgumentError` for a method that can't be overridden, or by a header that can't override it.
    """
    method = request.headers.get("x-http-method-override", "").upper()
    scope = request.scope
    if not method or method == scope["method"]:
        return
    if scope["method"] != "POST" or method not in _METHODS:
        raise InvalidArgumentError(
            f"X-HTTP-Method-Override makes a POST one of {', '.join(_METHODS)}; {scope['method']} can't become "
            f"{method[:20]!r}."
        )
    scope["method"] = method
    if method == "GET" and request.headers.get("content-type", "").partition(";")[0].strip().lower() == _FORM:
        query = await read_body(request, limit=_MAX_QUERY_BYTES)
        scope["query_string"] = b"&".join(part for part in (scope["query_string"], query.strip()) if part)
