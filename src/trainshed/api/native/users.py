"""Users and service accounts: owners of all projects add, list, disable and enable them."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse

from trainshed.api.http.request import body, principal, services, trail
from trainshed.api.http.routing import Handler, ProjectScope, Route, RouteSchema
from trainshed.api.schemas import access as shapes
from trainshed.domain.iam import ALL_PROJECTS, Access

_ALL = "/trainshed/v1/users"


async def show_all(request: Request) -> JSONResponse:
    return JSONResponse({"users": await run_in_threadpool(services(request).users.visible)})


async def create(request: Request) -> JSONResponse:
    wanted = await body(request)
    trail(request).name(str(wanted.get("name", "")))
    return JSONResponse(await run_in_threadpool(services(request).users.create, wanted))


async def disable(request: Request) -> JSONResponse:
    """Disable a user and stop all TensorBoards: the user may know their URLs, which need no token."""
    await body(request)
    disable_user = partial(services(request).users.disable, request.path_params["user"], by=principal(request).user)
    user = await run_in_threadpool(disable_user)
    await run_in_threadpool(services(request).tensorboards.end_of, ALL_PROJECTS)
    return JSONResponse(user)


async def enable(request: Request) -> JSONResponse:
    await body(request)
    return JSONResponse(await run_in_threadpool(services(request).users.enable, request.path_params["user"]))


def _route(method: str, path: str, handler: Handler, schema: RouteSchema) -> Route:
    return Route(
        method=method, path=path, access=Access.ADMIN, scope=ProjectScope.SERVER, handler=handler, schema=schema
    )


ROUTES = (
    _route(
        "GET",
        _ALL,
        show_all,
        RouteSchema(name="users.list", summary="List users and service accounts", response=shapes.UsersBody),
    ),
    _route(
        "POST",
        _ALL,
        create,
        RouteSchema(
            name="users.create",
            summary="Add a user or a service account",
            description="A token for a name that is not there yet adds a user too.",
            body=shapes.UserRequestBody,
            response=shapes.UserBody,
            errors=(HTTPStatus.CONFLICT,),
        ),
    ),
    _route(
        "POST",
        f"{_ALL}/{{user}}:disable",
        disable,
        RouteSchema(
            name="users.disable",
            summary="End the tokens and sessions of a user",
            description=(
                "The last owner of all projects can't be disabled. The setting `disabled_users_jobs` says whether the "
                "user's jobs go on."
            ),
            response=shapes.UserBody,
        ),
    ),
    _route(
        "POST",
        f"{_ALL}/{{user}}:enable",
        enable,
        RouteSchema(
            name="users.enable",
            summary="Let the tokens of a user be valid again",
            description="Sessions that ended stay ended if they have expired meanwhile.",
            response=shapes.UserBody,
        ),
    ),
)
