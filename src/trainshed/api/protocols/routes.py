"""Routes of protocols that are not Google's: predictions, with errors in the form that these protocols share."""

from __future__ import annotations

from trainshed.api.http.routing import Handler, ProjectScope, Route
from trainshed.domain.iam import Access
from trainshed.gateway.protocols.wire_forms import plain_error


def protocol_route(method: str, path: str, handler: Handler) -> Route:
    """Return a route for those who may request predictions of the project in its path."""
    return Route(
        method=method,
        path=path,
        access=Access.PREDICT,
        scope=ProjectScope.PATH,
        handler=handler,
        error_form=plain_error,
    )
