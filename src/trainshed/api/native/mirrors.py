"""Mirrors of public objects: owners of all projects add, list and remove them."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse

from trainshed.api.http.request import body, services, trail
from trainshed.api.http.routing import Handler, ProjectScope, Route, RouteSchema
from trainshed.api.http.slow_work import COPIES, slow_work
from trainshed.api.schemas import storage as shapes
from trainshed.api.schemas.server import EmptyBody
from trainshed.domain.iam import Access
from trainshed.domain.work_budget import WorkBudget
from trainshed.services.registry import Services
from trainshed.services.storage.objects import ObjectSource
from trainshed.services.storage.uris import parse_uri

_ALL = "/trainshed/v1/mirrors"


async def show_all(request: Request) -> JSONResponse:
    return JSONResponse({"mirrors": await run_in_threadpool(services(request).public_data.mirrors.list)})


async def create(request: Request) -> JSONResponse:
    wanted = await body(request)
    uri, source = str(wanted.get("uri", "")), str(wanted.get("source", ""))
    trail(request).name(uri)
    add = partial(_add, services(request), uri, source)
    return JSONResponse(await slow_work(request, COPIES).run(request, add))


def _add(services: Services, uri: str, source: str, budget: WorkBudget) -> dict[str, object]:
    bucket, name = parse_uri(source, field="source")
    services.buckets.owner(bucket)
    with services.objects.open(ObjectSource(bucket=bucket, name=name)) as reader:
        return services.public_data.mirrors.add(uri, reader, budget)


async def remove(request: Request) -> JSONResponse:
    uri = str((await body(request)).get("uri", ""))
    trail(request).name(uri)
    await run_in_threadpool(services(request).public_data.mirrors.remove, uri)
    return JSONResponse({})


def _route(method: str, path: str, handler: Handler, schema: RouteSchema) -> Route:
    return Route(
        method=method, path=path, access=Access.ADMIN, scope=ProjectScope.SERVER, handler=handler, schema=schema
    )


ROUTES = (
    _route(
        "GET",
        _ALL,
        show_all,
        RouteSchema(name="mirrors.list", summary="List mirrors of public objects", response=shapes.MirrorsBody),
    ),
    _route(
        "POST",
        _ALL,
        create,
        RouteSchema(
            name="mirrors.create",
            summary="Add a mirror of a public object, or replace it",
            description="Its bytes are copied from an object of a bucket here.",
            body=shapes.MirrorRequestBody,
            response=shapes.MirrorBody,
            errors=(HTTPStatus.NOT_FOUND,),
        ),
    ),
    _route(
        "POST",
        f"{_ALL}:remove",
        remove,
        RouteSchema(
            name="mirrors.remove",
            summary="Remove a mirror of a public object",
            body=shapes.MirrorNameBody,
            response=EmptyBody,
            errors=(HTTPStatus.NOT_FOUND,),
        ),
    ),
)
