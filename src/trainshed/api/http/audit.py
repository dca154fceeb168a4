"""What the edge tells the audit record of a request: names of the route and its path, and never a query or a body."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request

from trainshed.api.http.open_routes import SIGN_INS
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.access.audit import OK
from trainshed.domain.iam import ALL_PROJECTS, Access, Principal
from trainshed.services.access.audit import AuditLog, Trail

_CHANGES = frozenset(
    {Access.WRITE, Access.WRITE_OBJECTS, Access.WRITE_STUDIES, Access.ADMIN}
)  # not RUN_TRIALS: too many
_PREFIXES = (
    *("/trainshed/v1/", "/resumable/upload/storage/v1/", "/upload/storage/v1/", "/download/storage/v1/"),
    *("/xml/v1/", "/storage/v1/", "/v1/", "/v2/", "/"),
)
_COLLECTIONS = {"b": "buckets", "o": "objects"}
_UNFINISHED = 308  #: the status of a resumable upload that goes on
_OUTCOMES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    412: "FAILED_PRECONDITION",
    429: "RESOURCE_EXHAUSTED",
}


def is_change(route: Route) -> bool:
    """Return whether a success of this route is recorded."""
    return is_sign_in(route) or route.recorded or (route.method != "GET" and route.access in _CHANGES)


def joins_its_change(route: Route) -> bool:
    """Return whether the entry is committed with the change. Objects are files, so theirs is not."""
    return route.access is not Access.WRITE_OBJECTS


def is_sign_in(route: Route) -> bool:
    return (route.method, route.path) in SIGN_INS


def new_trail(request: Request) -> Trail:
    return Trail(address=request.client.host if request.client else "", method=request.method)


def describe(trail: Trail, route: Route, request: Request) -> None:
    """Fill in what the route and the path say."""
    params = request.path_params
    trail.method = f"{route.method} {route.path}" if route.schema is None else route.schema.name
    trail.resource = resource_name(route, params)
    trail.changes = is_change(route)
    known = request.scope.get("trainshed.project", "")  # the request may name it by its number
    if route.scope is ProjectScope.PATH:
        trail.project = known or params["project"]
    elif route.scope is ProjectScope.QUERY:
        trail.project = known or request.query_params.get("project", "")


def identify(trail: Trail, principal: Principal) -> None:
    trail.user, trail.job = principal.user, principal.job
    trail.project = "" if principal.project == ALL_PROJECTS else principal.project


def record(audit: AuditLog, trail: Trail, request: Request, status: int) -> None:
    """Record the outcome of a request, if it is a change or was refused."""
    route: Route | None = request.scope.get("trainshed.route")
    refused = _is_refused(route, status, trail)
    if not refused and not trail.changes:
        return
    if route is not None and not trail.resource:
        describe(trail, route, request)
    success = status < 400 and status != _UNFINISHED
    if success or status >= 400:
        audit.end(trail, OK if success else _OUTCOMES.get(status, str(status)), refused=refused)


def _is_refused(route: Route | None, status: int, trail: Trail) -> bool:
    if status < 400:
        return False
    if status in (401, 403):
        return True
    if route is None:
        return False
    if status == 404:  # another project's bucket, which is answered as if it were missing
        return trail.hidden
    return is_sign_in(route) or (status == 429 and is_change(route))


def resource_name(route: Route, params: Mapping[str, str]) -> str:
    """Return the name of what a path is about, such as `projects/p/jobs/j` or `buckets/b/objects/o`."""
    prefix = next(each for each in _PREFIXES if route.path.startswith(each))
    names = []
    for segment in route.path.removeprefix(prefix).split("/"):
        if segment == "{key}":  # a secret, and all below it
            break
        if segment.startswith("{"):
            names.append(params.get(segment[1:].partition("}")[0].rstrip("*"), ""))
        else:
            names.append(_COLLECTIONS.get(segment, segment.partition(":")[0]))
    return "/".join(names)
