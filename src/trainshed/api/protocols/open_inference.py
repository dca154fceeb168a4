"""The Open Inference Protocol V2 below /v1/projects/PROJECT/v2, for clients of Triton, KServe and MLServer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed import __version__
from trainshed.api.http.predictions import json_prediction, remember, send_prediction
from trainshed.api.http.request import project, services
from trainshed.api.http.responses import json_response
from trainshed.api.protocols.routes import available_route, protocol_route, version_route
from trainshed.errors import UnimplementedError
from trainshed.gateway.gateway import Answer, FrameKind, unpack_infer
from trainshed.gateway.protocols import open_inference as words
from trainshed.gateway.routes import ModelRoute, PredictTarget

_SERVER = "/v1/projects/{project}/v2"
_MODEL = f"{_SERVER}/models/{{model}}"
_VERSION = f"{_MODEL}/versions/{{version}}"
#: extensions of Triton that its client asks for
_UNSERVED = (
    ("POST", "repository/index"),
    ("POST", "repository/models/{model}/load"),
    ("POST", "repository/models/{model}/unload"),
    ("GET", "systemsharedmemory/status"),
    ("GET", "cudasharedmemory/status"),
    ("GET", "trace/setting"),
    ("GET", "logging"),
)


async def server_metadata(request: Request) -> Response:
    return json_response(words.server_metadata(__version__))


async def live(request: Request) -> Response:
    return json_response({"live": True})


async def ready(request: Request) -> Response:
    return json_response({"ready": True})


async def model_metadata(request: Request) -> Response:
    return json_response(words.model_metadata(*await _signatures(request)))


async def model_config(request: Request) -> Response:
    return json_response(words.model_config(*await _signatures(request)))


async def _signatures(request: Request) -> tuple[ModelRoute, Mapping[str, Any]]:
    """The model of a request, and the signatures of the version."""
    route = version_route(request)
    model = services(request).predictions.model(route.project, route.model)
    found = await run_in_threadpool(services(request).versions.signatures, route.project, route.model, route.version)
    return model, found


async def unserved(request: Request) -> Response:
    raise UnimplementedError(
        "This server has no statistics, repository, shared memory, trace or log settings of Triton. Its metrics are at "
        "/metrics, and versions are created by the API of Trainshed."
    )


async def model_ready(request: Request) -> Response:
    return json_response({"name": available_route(request).model, "ready": True})


async def infer(request: Request) -> Response:
    params = request.path_params
    target = PredictTarget(
        project=project(request), model=params["model"], version=params.get("version", ""), kind=FrameKind.INFER
    )
    answer = await send_prediction(request, target, head=words.request_head(request.scope["headers"]))
    remember(request, target)
    return _infer_response(answer)


def _infer_response(answer: Answer | None) -> Response:
    if answer is None or answer[0] != 200:
        return json_prediction(answer)
    length, body = unpack_infer(answer[1])
    if not length:
        return Response(bytes(body), media_type="application/json")
    return Response(bytes(body), headers={words.JSON_LENGTH_HEADER: str(length)}, media_type="application/octet-stream")


ROUTES = (
    protocol_route("GET", _SERVER, server_metadata),
    protocol_route("GET", f"{_SERVER}/health/live", live),
    protocol_route("GET", f"{_SERVER}/health/ready", ready),
    *(
        protocol_route(method, f"{path}{rest}", handler)
        for path in (_MODEL, _VERSION)
        for method, rest, handler in (
            ("GET", "", model_metadata),
            ("GET", "/config", model_config),
            ("GET", "/ready", model_ready),
            ("GET", "/stats", unserved),
            ("POST", "/infer", infer),
        )
    ),
    *(protocol_route(method, f"{_SERVER}/{path}", unserved) for method, path in _UNSERVED),
)
