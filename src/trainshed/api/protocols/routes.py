"""Routes of protocols that are not Google's: predictions, with errors in the form of each protocol."""

from __future__ import annotations

from starlette.requests import Request

from trainshed.api.http.request import project, services
from trainshed.api.http.routing import Handler, ProjectScope, Route
from trainshed.domain.iam import Access
from trainshed.errors import UnavailableError
from trainshed.gateway.protocols.tf_serving import is_available
from trainshed.gateway.protocols.wire_forms import ErrorForm, plain_error
from trainshed.gateway.routes import VersionRoute


def protocol_route(method: str, path: str, handler: Handler, *, error_form: ErrorForm = plain_error) -> Route:
    """Return a route for those who may request predictions of the project in its path."""
    return Route(
        method=method,
        path=path,
        access=Access.PREDICT,
        scope=ProjectScope.PATH,
        handler=handler,
        error_form=error_form,
    )


def version_route(request: Request) -> VersionRoute:
    """The version in the path of a request, or the model's default."""
    params = request.path_params
    return services(request).predictions.version(project(request), params["model"], params.get("version", ""))


def available_route(request: Request) -> VersionRoute:
    """Like `version_route`. Raises `UnavailableError` if the version takes no requests."""
    route = version_route(request)
    if not is_available(route):
        raise UnavailableError(route.reason or f"Version {route.version} of model {route.model} is not ready.")
    return route
