"""MLflow's scoring protocol, on every version: below /mlflow/projects/PROJECT/models/MODEL[/versions/VERSION]."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from trainshed import __version__
from trainshed.api.http.bodies import CSV
from trainshed.api.http.predictions import json_prediction, remember, send_prediction
from trainshed.api.http.request import project
from trainshed.api.protocols.routes import available_route, protocol_route, version_route
from trainshed.errors import InvalidArgumentError
from trainshed.gateway.gateway import FrameKind
from trainshed.gateway.protocols.wire_forms import mlflow_error
from trainshed.gateway.routes import PredictTarget

_MODEL = "/mlflow/projects/{project}/models/{model}"
_VERSION = f"{_MODEL}/versions/{{version}}"


async def invocations(request: Request) -> Response:
    if request.headers.get("content-type", "").lower().startswith(CSV):
        raise InvalidArgumentError('This server reads no CSV. Send the table as JSON, as "dataframe_split".')
    params = request.path_params
    target = PredictTarget(
        project=project(request), model=params["model"], version=params.get("version", ""), kind=FrameKind.MLFLOW
    )
    answer = await send_prediction(request, target)
    remember(request, target)
    return json_prediction(answer)


async def ping(request: Request) -> Response:
    available_route(request)
    return _text("\n")


async def version(request: Request) -> Response:
    version_route(request)  # a version that is not there is 404
    return _text(__version__)


def _text(content: str) -> Response:
    """A response of MLflow's, which calls its texts JSON."""
    return Response(content, media_type="application/json")


ROUTES = tuple(
    protocol_route(method, f"{path}{rest}", handler, error_form=mlflow_error)
    for path in (_MODEL, _VERSION)
    for method, rest, handler in (
        ("POST", "/invocations", invocations),
        ("GET", "/ping", ping),
        ("GET", "/health", ping),
        ("GET", "/version", version),
    )
)
