"""Whether the server answers at all."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse

from trainshed import __version__
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import Access


async def health(_request: Request) -> JSONResponse:
    return JSONResponse({"status": "ok", "version": __version__})


ROUTES = (Route(method="GET", path="/healthz", access=Access.PUBLIC, scope=ProjectScope.SERVER, handler=health),)
