"""CORS: pages of other sites use a bucket if its rules let them, with a credential of their own and never a cookie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.routing import ProjectScope, Route, Router
from trainshed.domain.storage.cors import preflight_headers, response_headers
from trainshed.services.registry import Services


async def preflight(request: Request, router: Router, services: Services) -> Response | None:
    """Return the answer to a preflight request that a bucket's rules allow. Returns None for any other request."""
    method = request.headers.get("access-control-request-method", "")
    if request.method != "OPTIONS" or not method or not (origin := _foreign_origin(request)):
        return None
    route, params, _ = router.find(method, request.scope["raw_path"])
    if route is None or route.scope is not ProjectScope.BUCKET:
        return None
    asked = request.headers.get("access-control-request-headers", "")
    names = [each.strip() for each in asked.split(",") if each.strip()]
    rules = await run_in_threadpool(services.buckets.cors, params["bucket"])
    headers = preflight_headers(rules, origin=origin, method=method, headers=names)
    return None if headers is None else Response(b"", 200, headers)


async def is_allowed(request: Request, route: Route | None, params: Mapping[str, Any], services: Services) -> bool:
    """Return whether the rules of a bucket let the page of another site make this request, which has no cookie.

    The response gets the headers that let the page read it.
    """
    origin = _foreign_origin(request)
    if route is None or route.scope is not ProjectScope.BUCKET or not origin or "cookie" in request.headers:
        return False
    rules = await run_in_threadpool(services.buckets.cors, params["bucket"])
    headers = response_headers(rules, origin=origin, method=request.method)
    request.scope["trainshed.cors"] = headers or {}
    return headers is not None


def _foreign_origin(request: Request) -> str:
    """Return the Origin of a request if it is another site's; empty otherwise."""
    origin = request.headers.get("origin", "")
    try:
        own = urlsplit(origin).netloc == request.headers["host"]
    except ValueError:
        return ""
    return "" if own else origin
