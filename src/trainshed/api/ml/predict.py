"""Predictions over HTTP. Requests with the URL and Host of an accepted one take the fast path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.bodies import read_body
from trainshed.api.http.request import project, services
from trainshed.api.http.routing import Handler, ProjectScope, Route
from trainshed.api.ml.fast_path import ACCESS
from trainshed.errors import InvalidArgumentError
from trainshed.gateway.gateway import Answer, FrameKind, RequestClient, pack_raw, unpack_raw
from trainshed.gateway.routes import PredictTarget

_KINDS: Mapping[str, FrameKind] = {
    "predict": FrameKind.PREDICT,
    "explain": FrameKind.EXPLAIN,
    "rawPredict": FrameKind.RAW,
}
_PROJECT = "/v1/projects/{project}"
_MODEL = f"{_PROJECT}/models/{{model}}"
_VERSION = f"{_MODEL}/versions/{{version}}"


def _handler(kind: FrameKind) -> Handler:
    async def predict(request: Request) -> Response:
        params = request.path_params
        target = PredictTarget(
            project=project(request), model=params["model"], version=params.get("version", ""), kind=kind
        )
        body = await read_body(request, limit=request.scope["trainshed.body_limit"])
        if kind is FrameKind.RAW:
            body = pack_raw(request.headers.get("content-type", ""), body)
        request.scope["trainshed.quiet"] = True  # the model's settings decide whether the gateway logs it
        client = cast("RequestClient | None", request.scope.get("trainshed.client"))
        result = await services(request).predictions.send(target, body, client)
        if kind is not FrameKind.RAW:
            request.scope["trainshed.app"].fast_path.remember(request.scope, target)
        return _response(result, kind)

    return predict


def _response(result: Answer | None, kind: FrameKind) -> Response:
    if result is None:
        return Response(status_code=499)  # the client is gone
    status, body = result
    if kind is FrameKind.RAW and status == 200:
        content_type, body = unpack_raw(body)
        return Response(body, status, {"content-security-policy": "sandbox"}, media_type=content_type)
    return Response(body, status, _retry_headers(status), media_type="application/json")


def _retry_headers(status: int) -> dict[str, str]:
    return {"retry-after": "1"} if status in (429, 503) else {}


async def model_missing(request: Request) -> Response:
    raise InvalidArgumentError(
        "Name the model, and a version if you like: projects/PROJECT/models/MODEL[/versions/VERSION]."
    )


ROUTES = tuple(
    Route(
        method="POST",
        path=f"{path}:{verb}",
        access=ACCESS,
        scope=ProjectScope.PATH,
        handler=model_missing if path == _PROJECT else _handler(kind),
    )
    for verb, kind in _KINDS.items()
    for path in (_PROJECT, _MODEL, _VERSION)
)
