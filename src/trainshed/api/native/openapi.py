"""The OpenAPI document of this API. It holds nothing of any project, and is public."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.routing import ProjectScope, Route, RouteSchema
from trainshed.api.schemas.server import OpenApiBody
from trainshed.domain.iam import Access


async def show(request: Request) -> Response:
    return Response(request.scope["trainshed.app"].openapi(), media_type="application/json")


ROUTES = (
    Route(
        method="GET",
        path="/trainshed/v1/openapi.json",
        access=Access.PUBLIC,
        scope=ProjectScope.SERVER,
        handler=show,
        schema=RouteSchema(
            name="server.openapi",
            summary="Get this API as an OpenAPI document",
            description="It holds nothing of any project.",
            response=OpenApiBody,
        ),
    ),
)
