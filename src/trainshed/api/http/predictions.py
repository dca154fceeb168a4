"""Sends the body of a request to a host: what the routes of all prediction protocols share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.bodies import read_body
from trainshed.api.http.request import principal, services
from trainshed.gateway.gateway import Answer, RequestClient
from trainshed.gateway.routes import PredictTarget

_GONE = 499  #: the client has disconnected


async def send_prediction(request: Request, target: PredictTarget, *, head: bytes = b"") -> Answer | None:
    """Send `head` and the request's body to a host. Returns None if the client disconnects first.

    Raises `QuotaExceededError` beyond a limit of requests a second, before it reads the body.
    """
    services(request).rates.check(target.project, principal(request))
    body = await read_body(request, limit=request.scope["trainshed.body_limit"])
    request.scope["trainshed.quiet"] = True  # the model's settings decide whether the gateway logs it
    client = cast("RequestClient | None", request.scope.get("trainshed.client"))
    return await services(request).predictions.send(target, head + body if head else body, client)


def remember(request: Request, target: PredictTarget) -> None:
    """Let the fast path serve the next request to this URL."""
    request.scope["trainshed.app"].fast_path.remember(request.scope, target)


def json_prediction(answer: Answer | None) -> Response:
    """The response of a host whose body is JSON, or of a client that is gone."""
    if answer is None:
        return Response(status_code=_GONE)
    status, body = answer
    return Response(body, status, retry_headers(status), media_type="application/json")


def retry_headers(status: int) -> Mapping[str, str]:
    return {"retry-after": "1"} if status in (429, 503) else {}
