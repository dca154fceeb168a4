"""Predictions over HTTP. Requests with the URL and Host of an accepted one take the fast path."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.predictions import json_prediction, remember, send_prediction
from trainshed.api.http.request import project
from trainshed.api.http.routing import Handler, ProjectScope, Route
from trainshed.api.ml.fast_path import ACCESS
from trainshed.errors import InvalidArgumentError
from trainshed.gateway.gateway import Answer, FrameKind, pack_raw, unpack_raw
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
        if kind is FrameKind.RAW:
            head = pack_raw(request.headers.get("content-type", ""), b"")
            return _raw_response(await send_prediction(request, target, head=head))
        answer = await send_prediction(request, target)
        remember(request, target)
        return json_prediction(answer)

    return predict


def _raw_response(answer: Answer | None) -> Response:
    if answer is None or answer[0] != 200:
        return json_prediction(answer)
    content_type, body = unpack_raw(answer[1])
    return Response(body, 200, {"content-security-policy": "sandbox"}, media_type=content_type)


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
