"""Quotas, and the network of a project: those who may read a project read them; owners set them.

An owner of a project sets limits of its users, and how long it keeps things. Others need an owner of all projects.
"""

from __future__ import annotations

from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse

from trainshed.api.http.request import body, project, query, services, trail
from trainshed.api.http.routing import Handler, Parameter, ProjectScope, Route, RouteSchema
from trainshed.api.schemas import networks
from trainshed.api.schemas import quotas as shapes
from trainshed.api.schemas.server import EmptyBody
from trainshed.domain.access.quotas import RETENTION
from trainshed.domain.iam import Access
from trainshed.errors import InvalidArgumentError

_OF_PROJECT = "/trainshed/v1/projects/{project}/quotas"
_ALL = "/trainshed/v1/quotas"
_NETWORK = "/trainshed/v1/projects/{project}/network"
_NO_USER = (
    "Name the user, or `*` for each user. A limit of the project as a whole is set by an owner of all projects, at "
    f"{_ALL}:set or with `trainshed quotas set` without --user."
)


async def show(request: Request) -> JSONResponse:
    quotas, user = services(request).quotas, str(query(request)["user"])
    read = partial(quotas.of_user, project(request), user) if user else partial(quotas.listed, project(request))
    return JSONResponse({"quotas": await run_in_threadpool(read)})


async def show_all(request: Request) -> JSONResponse:
    return JSONResponse({"quotas": await run_in_threadpool(services(request).quotas.all)})


async def set_of_user(request: Request) -> JSONResponse:
    return await _set(request, project(request), await _of_user(request))


async def unset_of_user(request: Request) -> JSONResponse:
    return await _unset(request, project(request), await _of_user(request))


async def set_of_any(request: Request) -> JSONResponse:
    wanted = await body(request)
    return await _set(request, str(wanted.get("project", "")), wanted)


async def unset_of_any(request: Request) -> JSONResponse:
    wanted = await body(request)
    return await _unset(request, str(wanted.get("project", "")), wanted)


async def _of_user(request: Request) -> dict[str, object]:
    wanted = await body(request)
    if not wanted.get("user") and str(wanted.get("name")) not in RETENTION:
        raise InvalidArgumentError(_NO_USER, field="user")
    return wanted


async def _set(request: Request, of_project: str, wanted: dict[str, object]) -> JSONResponse:
    _name(request, of_project, wanted)
    return JSONResponse(await run_in_threadpool(services(request).quotas.set, of_project, wanted))


async def _unset(request: Request, of_project: str, wanted: dict[str, object]) -> JSONResponse:
    _name(request, of_project, wanted)
    await run_in_threadpool(services(request).quotas.unset, of_project, wanted)
    return JSONResponse({})


def _name(request: Request, of_project: str, wanted: dict[str, object]) -> None:
    """Note which limit it is, for the audit record."""
    user = f"/users/{wanted['user']}" if wanted.get("user") else ""
    trail(request).resource = f"projects/{of_project}{user}/quotas/{wanted.get('name', '')}={wanted.get('value', '')}"


async def show_network(request: Request) -> JSONResponse:
    return JSONResponse(await run_in_threadpool(services(request).networks.body, project(request)))


async def set_network(request: Request) -> JSONResponse:
    wanted = (await body(request)).get("network")
    trail(request).resource = f"projects/{project(request)}/network={str(wanted)[:40]}"
    return JSONResponse(await run_in_threadpool(services(request).networks.set, project(request), wanted))


async def reset_network(request: Request) -> JSONResponse:
    await body(request)
    trail(request).resource = f"projects/{project(request)}/network"
    return JSONResponse(await run_in_threadpool(services(request).networks.reset, project(request)))


def _route(method: str, path: str, access: Access, handler: Handler, schema: RouteSchema) -> Route:
    scope = ProjectScope.PATH if "{project}" in path else ProjectScope.SERVER
    return Route(method=method, path=path, access=access, scope=scope, handler=handler, schema=schema)


ROUTES = (
    _route(
        "GET",
        _OF_PROJECT,
        Access.READ,
        show,
        RouteSchema(
            name="quotas.list",
            summary="List the limits that apply in a project, with what is in use",
            query=(Parameter(name="user", description="Only the limits that apply to this user."),),
            response=shapes.QuotaUsesBody,
        ),
    ),
    _route(
        "POST",
        f"{_OF_PROJECT}:set",
        Access.ADMIN,
        set_of_user,
        RouteSchema(
            name="quotas.setOfUser",
            summary="Set a limit of a user of a project, or of each user; or how long the project keeps something",
            body=shapes.UserQuotaRequestBody,
            response=shapes.QuotaBody,
        ),
    ),
    _route(
        "POST",
        f"{_OF_PROJECT}:unset",
        Access.ADMIN,
        unset_of_user,
        RouteSchema(
            name="quotas.unsetOfUser",
            summary="Remove a limit of a user of a project, or of each user; or how long the project keeps something",
            body=shapes.UserQuotaNameBody,
            response=EmptyBody,
        ),
    ),
    _route(
        "GET",
        _ALL,
        Access.ADMIN,
        show_all,
        RouteSchema(name="quotas.listAll", summary="List all limits as they were set", response=shapes.QuotasBody),
    ),
    _route(
        "POST",
        f"{_ALL}:set",
        Access.ADMIN,
        set_of_any,
        RouteSchema(
            name="quotas.set",
            summary="Set a limit of a project, of each project, or of their users",
            body=shapes.QuotaRequestBody,
            response=shapes.QuotaBody,
        ),
    ),
    _route(
        "POST",
        f"{_ALL}:unset",
        Access.ADMIN,
        unset_of_any,
        RouteSchema(
            name="quotas.unset",
            summary="Remove a limit of a project, of each project, or of their users",
            body=shapes.QuotaNameBody,
            response=EmptyBody,
        ),
    ),
    _route(
        "GET",
        _NETWORK,
        Access.READ,
        show_network,
        RouteSchema(
            name="network.get",
            summary="Show what user code of a project reaches",
            response=networks.NetworkBody,
        ),
    ),
    _route(
        "POST",
        f"{_NETWORK}:set",
        Access.ADMIN,
        set_network,
        RouteSchema(
            name="network.set",
            summary="Set what user code of a project reaches",
            description="Jobs and hosts that run keep what they have.",
            body=networks.NetworkRequestBody,
            response=networks.NetworkBody,
        ),
    ),
    _route(
        "POST",
        f"{_NETWORK}:reset",
        Access.ADMIN,
        reset_network,
        RouteSchema(
            name="network.reset",
            summary="Let a project have the network of the server's setting",
            response=networks.NetworkBody,
        ),
    ),
)
