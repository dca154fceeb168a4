"""TensorFlow Serving's REST API below /tfserving/projects/PROJECT, which is KServe's V1 protocol too."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.predictions import json_prediction, remember, send_prediction
from trainshed.api.http.request import project, services
from trainshed.api.http.responses import json_response
from trainshed.api.protocols.routes import protocol_route
from trainshed.errors import UnimplementedError
from trainshed.gateway.gateway import FrameKind
from trainshed.gateway.protocols import tf_serving as words
from trainshed.gateway.routes import PredictTarget

_PROJECT = "/tfserving/projects/{project}"
_MODEL = f"{_PROJECT}/v1/models/{{model}}"
_VERSION = f"{_MODEL}/versions/{{version}}"


async def live(request: Request) -> Response:
    return json_response({"status": "alive"})


async def predict(request: Request) -> Response:
    target = PredictTarget(
        project=project(request),
        model=request.path_params["model"],
        version=_version(request),
        kind=FrameKind.TF_SERVING,
    )
    answer = await send_prediction(request, target)
    remember(request, target)
    return json_prediction(answer)


async def status(request: Request) -> Response:
    predictions, named = services(request).predictions, (project(request), request.path_params["model"])
    version = _version(request)
    model = predictions.model(*named)
    return json_response(
        words.status(model, [predictions.version(*named, version)] if version else model.versions.values())
    )


async def metadata(request: Request) -> Response:
    route = services(request).predictions.version(project(request), request.path_params["model"], _version(request))
    signatures = await run_in_threadpool(
        services(request).versions.signatures, route.project, route.model, route.version
    )
    return json_response(words.metadata(route, signatures))


async def unserved(request: Request) -> Response:
    raise UnimplementedError(
        "This server has no classify and no regress of TensorFlow Serving. Send the same signature to :predict."
    )


def _version(request: Request) -> str:
    return words.version_name(request.path_params.get("version", ""))


ROUTES = (
    protocol_route("GET", _PROJECT, live),
    *(
        protocol_route(method, f"{path}{rest}", handler)
        for path in (_MODEL, _VERSION)
        for method, rest, handler in (
            ("GET", "", status),
            ("GET", "/metadata", metadata),
            ("POST", ":predict", predict),
            ("POST", ":classify", unserved),
            ("POST", ":regress", unserved),
        )
    ),
)
