"""The one layer around every route: Host and Origin, the token, the project, the access. It denies by default."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection
from urllib.parse import urlsplit

from starlette.requests import Request

from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain import names
from trainshed.domain.iam import ALL_PROJECTS, Access, Principal, Role
from trainshed.domain.objects import bucket_not_found
from trainshed.errors import InvalidArgumentError, PermissionDeniedError, UnauthenticatedError

ANONYMOUS = Principal(user="anonymous", project=ALL_PROJECTS, role=Role.OWNER)


def check_host(request: Request, *, allowed_hosts: Collection[str]) -> None:
    """`PermissionDeniedError` for a Host that is not ours (DNS rebinding).

    An address in digits can't be rebound, so it is fine.
    """
    if len(hosts := request.headers.getlist("host")) != 1:
        raise PermissionDeniedError(f"A request names one Host; this one names {len(hosts)}.")
    [host] = hosts
    name = _host_name(host)
    if name not in allowed_hosts and not _is_address(name):
        raise PermissionDeniedError(
            f"This server does not answer to the host name {name!r}. If it is yours, add it to "
            f"TRAINSHED_SERVER_ALLOWED_HOSTS."
        )


def check_origin(request: Request, route: Route | None) -> None:
    """`PermissionDeniedError` for requests made by another site's page.

    That it may link to a route that says so is no request.
    """
    if route is not None and route.from_anywhere:
        return
    origin = request.headers.get("origin")
    if origin is not None and _netloc(origin) != request.headers["host"]:
        raise PermissionDeniedError("Pages of other sites may not call this server.")
    if request.headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return
    if route is None or not route.linked or not _follows_a_link(request):
        raise PermissionDeniedError("Pages of other sites may not call this server.")


def _follows_a_link(request: Request) -> bool:
    """Whether a browser goes to this address with a window of its own, not for another page's use."""
    asked = (request.headers.get("sec-fetch-mode"), request.headers.get("sec-fetch-dest"))
    return asked == ("navigate", "document")


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        raise PermissionDeniedError(f"The Host of this request, {host[:100]!r}, is no address.") from None


def _netloc(origin: str) -> str | None:
    """None for what is no URL, such as `http://[::1`; it equals no Host."""
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
    """The token that the request carries, good or not. `UnauthenticatedError` if it carries none."""
    given = request.headers.getlist("authorization")
    if len(given) > 1:
        raise UnauthenticatedError("This request has more than one Authorization header. Send one.")
    scheme, _, token = "".join(given).partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise UnauthenticatedError(
            "This request has no bearer token. Send 'Authorization: Bearer TOKEN'; "
            "`trainshed auth print-access-token` prints yours."
        )
    return token.strip()


def unknown_token() -> UnauthenticatedError:
    return UnauthenticatedError(
        "This token is unknown, expired or revoked. `trainshed auth print-access-token` prints a good one."
    )


def authorise(request: Request, route: Route, principal: Principal, owner: Callable[[str], str]) -> str:
    """The project that the request is about; else `PermissionDeniedError`, or `NotFoundError` where it is none of
    their business.
    """
    match route.scope:
        case ProjectScope.PATH:
            project = names.project_id(request.path_params["project"])
        case ProjectScope.QUERY:
            if not (given := request.query_params.get("project", "")):
                raise InvalidArgumentError("The query parameter 'project' is missing.")
            project = names.project_id(given)
        case ProjectScope.BUCKET:
            project = _owner(request.path_params["bucket"], principal, owner)
        case ProjectScope.BODY:
            if principal.role.access < Access.READ:  # nobody who may so little has business here
                raise _denied(principal, route, "this server")
            return ""
        case ProjectScope.SERVER:
            project = ALL_PROJECTS if route.access > Access.READ else principal.project
    if not principal.may(route.access, project):
        raise _denied(principal, route, "server" if project == ALL_PROJECTS else f"project {project}")
    return project


def _denied(principal: Principal, route: Route, where: str) -> PermissionDeniedError:
    return PermissionDeniedError(
        f"This token ({principal.role} of {_named(principal.project)}) may not do this in {where}. "
        f"The request needs {route.access.name.lower()} access."
    )


def _owner(bucket: str, principal: Principal, owner: Callable[[str], str]) -> str:
    project = owner(bucket)
    if not principal.sees(project):
        raise bucket_not_found(bucket)  # in the very words for one that is not there
    return project


def _named(project: str) -> str:
    return "every project" if project == ALL_PROJECTS else f"project {project}"
