"""The ASGI app: every request passes through `auth`, then goes to one route."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from functools import cache
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from trainshed.api import logging as log_routes
from trainshed.api.console import assets, oidc, sessions, tensorboards
from trainshed.api.discovery import routes as discovery_routes
from trainshed.api.http import audit, auth, cookies
from trainshed.api.http.method_override import override_method
from trainshed.api.http.open_routes import is_open
from trainshed.api.http.request import declared_query
from trainshed.api.http.responses import (
    SECURITY_HEADERS,
    error_in_form,
    error_response,
    partial_response,
    problem_response,
)
from trainshed.api.http.routing import ProjectScope, Route, Router
from trainshed.api.http.slow_work import SlowWork
from trainshed.api.ml import jobs as ml_jobs
from trainshed.api.ml import models as ml_models
from trainshed.api.ml import operations as ml_operations
from trainshed.api.ml import predict
from trainshed.api.ml import projects as ml_projects
from trainshed.api.ml import studies as ml_studies
from trainshed.api.ml import versions as ml_versions
from trainshed.api.ml.fast_path import FastPath
from trainshed.api.native import (
    artifacts,
    device_sign_in,
    job_logs,
    mirrors,
    overview,
    quotas,
    runtimes,
    searches,
    secrets,
    server,
    steering,
    tokens,
    users,
)
from trainshed.api.native import audit as native_audit
from trainshed.api.native import jobs as native_jobs
from trainshed.api.native import models as native_models
from trainshed.api.openapi.document import encoded
from trainshed.api.protocols import mlflow, open_inference, tf_serving
from trainshed.api.storage import batch as storage_batch
from trainshed.api.storage import buckets as storage_buckets
from trainshed.api.storage import cors, public, signed_requests, xml_buckets, xml_documents
from trainshed.api.storage import objects as storage_objects
from trainshed.api.storage import uploads as storage_uploads
from trainshed.api.storage import xml as storage_xml
from trainshed.domain.iam import Access, Principal
from trainshed.domain.partial_response import read_fields
from trainshed.errors import NotFoundError, UnavailableError, UnimplementedError
from trainshed.services.access.audit import Trail
from trainshed.services.registry import Services

LOG = logging.getLogger("trainshed.api")
MAX_CONCURRENT_REQUESTS = 1000  #: with a token, long polls included

ROUTES: tuple[Route, ...] = (
    *assets.ROUTES,
    *sessions.ROUTES,
    *oidc.ROUTES,
    *tensorboards.ROUTES,
    *server.ROUTES,
    *tokens.ROUTES,
    *users.ROUTES,
    *quotas.ROUTES,
    *secrets.ROUTES,
    *device_sign_in.ROUTES,
    *native_audit.ROUTES,
    *runtimes.ROUTES,
    *mirrors.ROUTES,
    *ml_projects.ROUTES,
    *ml_jobs.ROUTES,
    *ml_models.ROUTES,
    *ml_versions.ROUTES,
    *native_jobs.ROUTES,
    *artifacts.ROUTES,
    *searches.ROUTES,
    *steering.ROUTES,
    *overview.ROUTES,
    *ml_operations.ROUTES,
    *predict.ROUTES,
    *tf_serving.ROUTES,
    *mlflow.ROUTES,
    *open_inference.ROUTES,
    *native_models.ROUTES,
    *ml_studies.ROUTES,
    *log_routes.ROUTES,
    *job_logs.ROUTES,
    *storage_buckets.ROUTES,
    *storage_objects.ROUTES,
    *storage_uploads.ROUTES,
    *storage_xml.ROUTES,
    *xml_buckets.ROUTES,
    *storage_batch.ROUTES,
    *discovery_routes.ROUTES,
)


@cache
def _openapi() -> bytes:
    return encoded(ROUTES)


class Api:
    """Responds to every request. Handlers run only after `auth` has accepted the request."""

    def __init__(
        self, services: Services, *, allowed_hosts: Collection[str], authentication: bool, body_limit: int
    ) -> None:
        self._services = services
        self._router = Router(ROUTES)
        self._taken = frozenset(route.path.split("/")[1] for route in ROUTES)  #: not names of buckets in paths
        self._hosts = frozenset(allowed_hosts)
        self._authentication = authentication
        self._body_limit = body_limit
        self._slow_work = SlowWork()
        self._in_progress = 0  #: requests with a token
        self.fast_path = FastPath(services, authentication=authentication, body_limit=body_limit)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        try:
            await self._serve(scope, receive, send)
        finally:
            if scope.get("trainshed.counted"):
                self._in_progress -= 1

    async def _serve(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        response = await self.respond(Request(scope, receive))
        for name, value in SECURITY_HEADERS.items():
            response.headers.setdefault(name, value)
        # a cookie does not keep a cache from storing one user's response
        if scope.get("trainshed.session") is not None:
            response.headers.setdefault("cache-control", "no-store")
        await response(scope, receive, send)
        seconds = time.perf_counter() - started
        self._services.metrics.http.add(scope["raw_path"], response.status_code, seconds)
        if "trainshed.quiet" not in scope:
            ms = seconds * 1000
            LOG.info(
                "request method=%s path=%s status=%d ms=%.1f",
                *(scope["method"], _as_sent(scope["raw_path"]), response.status_code, ms),
            )

    async def respond(self, request: Request) -> Response:
        """Return the response to a request. Raises nothing."""
        trail = request.scope["trainshed.trail"] = audit.new_trail(request)
        try:
            response = await self._dispatch(request, trail)
        except Exception as exc:  # noqa: BLE001  the edge: every error becomes a response; unforeseen ones are logged
            response = error_response(exc)
        response = _in_form_of_route(response, request.scope.get("trainshed.route"))
        response.headers.update(request.scope.get("trainshed.cors", {}))
        if trail.changes or response.status_code >= 400:
            audit.record(self._services.audit, trail, request, response.status_code)
        return response

    @property
    def routes(self) -> tuple[Route, ...]:
        return self._router.routes

    def openapi(self) -> bytes:
        """Return the OpenAPI document of the routes."""
        return _openapi()

    async def _dispatch(self, request: Request, trail: Trail) -> Response:
        scope = request.scope
        auth.check_host(request, allowed_hosts=self._hosts)
        _check_transfer(request)
        await override_method(request)
        route, params, methods = self._router.find(_routed_method(scope), _current_path(scope["raw_path"]))
        if route is None and not methods and signed_requests.rewrite_path(scope, request.headers["host"], self._taken):
            route, params, methods = self._router.find(_routed_method(scope), scope["raw_path"])
        if (answer := await cors.preflight(request, self._router, self._services)) is not None:
            return answer
        if not await cors.is_allowed(request, route, params, self._services):
            auth.check_origin(request, route)
        scope.update(
            {
                "path_params": params,
                "trainshed.route": route,
                "trainshed.services": self._services,
                "trainshed.app": self,
                "trainshed.body_limit": self._body_limit,
                "trainshed.slow_work": self._slow_work,
                "trainshed.authentication": self._authentication,
            }
        )
        if route is not None and is_open(route):
            if audit.is_sign_in(route):
                audit.describe(trail, route, request)
            return await _handle(request, route)
        if route is not None and await public.is_anonymous_read(request, route):
            return await public.respond(request, route)
        principal = await self._by_url(request, route) or await self._principal(request)
        audit.identify(trail, principal)
        self._count(scope)
        if route is None:
            return _no_route(scope, methods)
        scope["trainshed.principal"] = principal
        try:
            scope["trainshed.project"] = await self._project(request, route, principal)
        except NotFoundError:
            if not await public.is_read_by(request, route, principal):
                raise
            return await public.respond(request, route)
        if audit.is_change(route):
            audit.describe(trail, route, request)
        if not trail.changes or not audit.joins_its_change(route):
            return await _handle(request, route)
        with self._services.audit.riding(trail):
            return await _handle(request, route)

    async def _project(self, request: Request, route: Route, principal: Principal) -> str:
        """Return the project of the request, which the principal may use."""
        if route.scope is ProjectScope.BUCKET or auth.names_number(request, route):
            return await run_in_threadpool(auth.authorise, request, route, principal, self._services)
        return auth.authorise(request, route, principal, self._services)

    def _count(self, scope: AsgiScope) -> None:
        """Count a request with a token; a batch is one. Raises `UnavailableError` if there are too many."""
        client = scope.get("trainshed.client")
        if client is None:
            return
        client.set_authenticated()
        if self._in_progress >= MAX_CONCURRENT_REQUESTS:
            raise UnavailableError(
                f"The server has {MAX_CONCURRENT_REQUESTS:,} requests in progress, the most that it takes. Try again."
            )
        self._in_progress += 1
        scope["trainshed.counted"] = True

    async def _by_url(self, request: Request, route: Route | None) -> Principal | None:
        """Return who continues a resumable upload by its URL alone, or has signed the URL of an object."""
        if not self._authentication or route is None:
            return None
        if auth.is_upload_session(request, route):
            return await run_in_threadpool(auth.uploader, request, self._services)
        if signed_requests.is_signed_request(request, route):
            return await run_in_threadpool(signed_requests.signer, request, self._services)
        return None

    async def _principal(self, request: Request) -> Principal:
        if not self._authentication:
            return auth.ANONYMOUS
        session = request.scope["trainshed.session"] = cookies.session_of(request)
        token, tokens = session or auth.bearer_token(request), self._services.tokens
        principal = tokens.known(token) or await run_in_threadpool(tokens.find, token)
        if principal is None:
            raise cookies.ended() if session else auth.unknown_token()
        return principal


def _in_form_of_route(response: Response, route: Route | None) -> Response:
    """Return an error in the form of the protocol that the route serves."""
    if route is None or response.status_code < 400:
        return response
    if route.xml_errors:
        return xml_documents.error(response)
    if route.error_form is None:
        return response
    return error_in_form(response, route.error_form)


async def _handle(request: Request, route: Route) -> Response:
    if route.schema is not None:
        request.scope["trainshed.query"] = declared_query(request, route.schema)
        return await route.handler(request)
    fields = request.query_params.get("fields")
    if not fields or route.access is Access.PREDICT or request.query_params.get("alt") == "media":
        return await route.handler(request)
    selection = read_fields(fields)
    return partial_response(await route.handler(request), selection)


def _routed_method(scope: AsgiScope) -> str:
    """Return the method of the route. Downloads of objects know HEAD too, as Cloud Storage's XML API does."""
    is_head = scope["method"] == "HEAD" and scope["raw_path"].startswith((b"/download/storage/", b"/xml/"))
    return "GET" if is_head else str(scope["method"])


def _current_path(raw_path: bytes) -> bytes:
    """Return the path in ml v1 of a path in v1beta1, whose methods it has."""
    return raw_path.replace(b"/v1beta1/", b"/v1/", 1) if raw_path.startswith(b"/v1beta1/") else raw_path


def _check_transfer(request: Request) -> None:
    """Raises `UnimplementedError` for a transfer coding other than chunked, which would be read as the body itself."""
    codings = ", ".join(request.headers.getlist("transfer-encoding"))
    if codings.lower() not in ("", "chunked"):
        raise UnimplementedError(
            f"A body with Transfer-Encoding {codings[:40]!r} is not read here. Send it as it is, or chunked."
        )


def _as_sent(raw_path: bytes) -> str:
    """Return the path as sent, with non-ASCII bytes escaped, so that it stays one line of the log.

    The rest of a path below /tensorboard/ is a secret and is left out.
    """
    if raw_path.startswith(b"/tensorboard/"):
        return "/tensorboard/..."
    return quote(raw_path, safe="%/:@!$&'()*+,;=?[]")


def _no_route(scope: AsgiScope, methods: tuple[str, ...]) -> Response:
    if methods:
        message = f"{scope['method']} is not a method of this path; it has {', '.join(methods)}."
        return problem_response(
            405, "UNIMPLEMENTED", "methodNotAllowed", message, headers={"allow": ", ".join(methods)}
        )
    raise NotFoundError(f"There is nothing at {scope['path']}.")
