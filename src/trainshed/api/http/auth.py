"""Authentication around every route: Host, Origin, token, project, access. Denies by default."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from starlette.requests import Request

from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain import names
from trainshed.domain.iam import ALL_PROJECTS, Access, Principal, Role
from trainshed.domain.objects import bucket_not_found
from trainshed.domain.storage import xml_paths
from trainshed.errors import InvalidArgumentError, NotFoundError, PermissionDeniedError, UnauthenticatedError

if TYPE_CHECKING:
    from trainshed.services.access.audit import Trail
    from trainshed.services.registry import Services

_NUMBER = re.compile(r"[0-9]{6,18}", re.ASCII)  #: of a project
_UPLOADS = "/upload/storage/v1/b/{bucket}/o"  #: the end of the paths of uploads
#: query parameters that hold a token
TOKEN_PARAMETERS = ("access_token", "oauth_token")
ANONYMOUS = Principal(user="anonymous", project=ALL_PROJECTS, role=Role.OWNER)


def check_host(request: Request, *, allowed_hosts: Collection[str]) -> None:
    """Raises `PermissionDeniedError` for a Host that is not this server's (DNS rebinding).

    `*.DOMAIN` allows all names of a domain. An IP address is allowed, because it can't be rebound.
    """
    if len(hosts := request.headers.getlist("host")) != 1:
        raise PermissionDeniedError(f"A request names one Host; this one names {len(hosts)}.")
    [host] = hosts
    name = _host_name(host)
    domain = f"*.{name.partition('.')[2]}"
    if name not in allowed_hosts and domain not in allowed_hosts and not _is_address(name):
        raise PermissionDeniedError(
            f"This server does not answer to the host name {name!r}. If it is yours, add it to "
            f"TRAINSHED_SERVER_ALLOWED_HOSTS."
        )


def check_origin(request: Request, route: Route | None) -> None:
    """Raises `PermissionDeniedError` for a request that another site's page makes.

    Following a link to a route with `linked` is allowed.
    """
    if route is not None and route.cross_origin:
        return
    origin = request.headers.get("origin")
    if origin is not None and _netloc(origin) != request.headers["host"]:
        raise PermissionDeniedError("Pages of other sites may not call this server.")
    if request.headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return
    if route is None or not route.linked or not _is_navigation(request):
        raise PermissionDeniedError("Pages of other sites may not call this server.")


def _is_navigation(request: Request) -> bool:
    """Return whether a browser navigates a window of its own to this URL."""
    fetch_metadata = (request.headers.get("sec-fetch-mode"), request.headers.get("sec-fetch-dest"))
    return fetch_metadata == ("navigate", "document")


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        raise PermissionDeniedError(f"The Host of this request, {host[:100]!r}, is no address.") from None


def _netloc(origin: str) -> str | None:
    """Return None for an invalid URL such as `http://[::1`. None equals no Host."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def bearer_token(request: Request) -> str:
    """Return the bearer token of the header or the URL, which may be invalid.

    Raises `UnauthenticatedError` if there is none.
    """
    headers = request.headers.getlist("authorization")
    if not headers:
        for name in TOKEN_PARAMETERS:
            if in_url := request.query_params.get(name):
                return in_url
    if len(headers) > 1:
        raise UnauthenticatedError("This request has more than one Authorization header. Send one.")
    scheme, _, token = "".join(headers).partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise UnauthenticatedError(
            "This request has no bearer token. Send 'Authorization: Bearer TOKEN'; "
            "`trainshed auth print-access-token` prints yours."
        )
    return token.strip()


def is_upload_session(request: Request, route: Route) -> bool:
    """Return whether a request continues a resumable upload and brings no other credential."""
    return (
        route.access is Access.WRITE_OBJECTS
        and (route.path.endswith(_UPLOADS) or (route.path == xml_paths.OBJECT and route.method == "PUT"))
        and bool(request.query_params.get("upload_id"))
        and "authorization" not in request.headers
        and "cookie" not in request.headers
        and not any(name in request.query_params for name in TOKEN_PARAMETERS)
    )


def uploader(request: Request, services: Services) -> Principal | None:
    """Return who started the upload that the URL names. Returns None if it has ended, or if its user may do no more."""
    bucket = request.path_params["bucket"]
    try:
        return services.tokens.uploader(*services.objects.uploader(bucket, request.query_params["upload_id"]))
    except NotFoundError:
        return None


def unknown_token() -> UnauthenticatedError:
    return UnauthenticatedError(
        "This token is unknown, expired or revoked. `trainshed auth print-access-token` prints a good one; if you "
        "signed in with `trainshed auth login`, do so again."
    )


def authorise(request: Request, route: Route, principal: Principal, services: Services) -> str:
    """Return the project of the request, which may name it by its number.

    Raises `PermissionDeniedError` if the principal may not do this, and `NotFoundError` for a bucket it may not see.
    """
    match route.scope:
        case ProjectScope.PATH:
            project = project_id(request.path_params["project"], principal, services)
        case ProjectScope.QUERY:
            if not (name := request.query_params.get("project", "")):
                raise InvalidArgumentError("The query parameter 'project' is missing.")
            project = project_id(name, principal, services)
        case ProjectScope.BUCKET:
            project = _owner(request, principal, services.buckets.owner)
        case ProjectScope.BODY | ProjectScope.CALLER:
            project = principal.project
        case ProjectScope.SERVER:
            project = ALL_PROJECTS
    if not principal.may(route.access, project) or not principal.may_name(route.access, request.path_params):
        named = _named_project(request, route) or project  # whose id is not told to all who know its number
        raise _denied(principal, route, "server" if project == ALL_PROJECTS else f"project {named}")
    return "" if route.scope is ProjectScope.BODY else project


def names_number(request: Request, route: Route) -> bool:
    """Return whether the request names its project by its number, which must be looked up."""
    return is_number(_named_project(request, route))


def _named_project(request: Request, route: Route) -> str:
    """Return the project as the request names it; empty if it names none."""
    if route.scope is ProjectScope.QUERY:
        return request.query_params.get("project", "")
    return str(request.path_params["project"]) if route.scope is ProjectScope.PATH else ""


def is_number(name: str) -> bool:
    """Return whether a project is named by its number."""
    return _NUMBER.fullmatch(name) is not None


def project_id(name: str, principal: Principal, services: Services) -> str:
    """Return the id of a project that is named by its id or its number, which is looked up. Blocks in that case."""
    if not is_number(name):
        return names.project_id(name)
    try:
        return services.projects.id_of(int(name))
    except NotFoundError:
        if principal.project == ALL_PROJECTS:
            raise
        return name  # as that of a project which the principal may not see


def _denied(principal: Principal, route: Route, scope: str) -> PermissionDeniedError:
    return PermissionDeniedError(
        f"This token ({principal.role} of {_project_phrase(principal.project)}) may not do this in {scope}. "
        f"The request needs {route.access} access."
    )


def _owner(request: Request, principal: Principal, owner: Callable[[str], str]) -> str:
    bucket, about = request.path_params["bucket"], cast("Trail", request.scope["trainshed.trail"])
    project = about.project = owner(bucket)
    if not principal.sees(project):
        about.hidden = True
        raise bucket_not_found(bucket)  # the same error as for a missing bucket, so that nothing is revealed
    return project


def _project_phrase(project: str) -> str:
    return "every project" if project == ALL_PROJECTS else f"project {project}"
