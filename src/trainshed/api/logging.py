"""Cloud Logging over HTTP: `entries:list`, `entries:write` and `logs.list`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http import auth
from trainshed.api.http.bodies import read_json_object
from trainshed.api.http.request import principal, project, services
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.api.http.slow_work import LOG_QUERIES, slow_work
from trainshed.domain.iam import Access
from trainshed.domain.json_fields import snake
from trainshed.errors import InvalidArgumentError
from trainshed.services.logs.entries import LogQuery
from trainshed.services.logs.writes import parse_entries

_LIST_FIELDS = frozenset({"resourceNames", "projectIds", "filter", "orderBy", "pageSize", "pageToken"})
_WRITE_FIELDS = frozenset({"logName", "resource", "labels", "entries", "partialSuccess", "dryRun"})


async def list_entries(request: Request) -> Response:
    query = _query(await read_json_object(request))
    if any(auth.is_number(name.removeprefix("projects/")) for name in query.resource_names):
        query = await run_in_threadpool(_with_ids, request, query)
    read = partial(services(request).logs.entries, principal(request), query)
    page = await slow_work(request, LOG_QUERIES).run(request, read)
    body: dict[str, Any] = {"entries": [entry.body() for entry in page.entries]} if page.entries else {}
    return _json(body | ({"nextPageToken": page.next_token} if page.next_token else {}))


async def write_entries(request: Request) -> Response:
    names = {snake(name): name for name in _WRITE_FIELDS}  # google-cloud-logging writes partial_success
    body = {names.get(key, key): value for key, value in (await read_json_object(request)).items()}
    _check_names(body, _WRITE_FIELDS)
    entries = parse_entries(body)
    write = partial(services(request).log_writer.write, principal(request), entries, dry_run=bool(body.get("dryRun")))
    await run_in_threadpool(write)
    return _json({})


async def list_logs(request: Request) -> Response:
    query = request.query_params
    resources = [name for text in query.getlist("resourceNames") for name in text.split(",") if name]
    token, size = query.get("pageToken", ""), _count(query.get("pageSize", 0), "pageSize")
    names = tuple(await run_in_threadpool(_ids, request, resources)) if resources else (f"projects/{project(request)}",)
    read = partial(services(request).logs.names, principal(request), names, size=size, token=token)
    page = await run_in_threadpool(read)
    body: dict[str, Any] = {"logNames": page.names} if page.names else {}
    return _json(body | ({"nextPageToken": page.next_token} if page.next_token else {}))


def _check_names(body: dict[str, Any], known: frozenset[str]) -> None:
    if unknown := set(body) - known:
        raise InvalidArgumentError(f"Unknown field {min(unknown)!r}. The fields are: {', '.join(sorted(known))}.")


def _with_ids(request: Request, query: LogQuery) -> LogQuery:
    """Name the projects by their ids where the request names them by their numbers."""
    return replace(query, resource_names=tuple(_ids(request, query.resource_names)))


def _ids(request: Request, resource_names: Iterable[str]) -> Iterator[str]:
    """Yield the names of projects with their ids in place of their numbers."""
    for name in resource_names:
        yield f"projects/{auth.project_id(name.removeprefix('projects/'), principal(request), services(request))}"


def _query(body: dict[str, Any]) -> LogQuery:
    _check_names(body, _LIST_FIELDS)
    resources = [*_strings(body, "resourceNames"), *(f"projects/{name}" for name in _strings(body, "projectIds"))]
    return LogQuery(
        resource_names=tuple(resources),
        filter=_text(body, "filter"),
        order_by=_text(body, "orderBy"),
        page_size=_count(body.get("pageSize", 0), "pageSize"),
        page_token=_text(body, "pageToken"),
    )


def _strings(body: dict[str, Any], name: str) -> list[str]:
    value = body.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value) or len(value) > 100:
        raise InvalidArgumentError(f"`{name}` is a list of at most 100 strings.", field=name)
    return value


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name, "")
    if not isinstance(value, str):
        raise InvalidArgumentError(f"`{name}` is a string.", field=name)
    return value


def _count(value: object, name: str) -> int:
    text = str(value)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidArgumentError(f"`{name}` is a whole number, 0 or more.", field=name)
    return int(text)


def _json(body: dict[str, Any]) -> Response:
    return Response(orjson.dumps(body), media_type="application/json")


ROUTES = (
    Route(
        method="GET",
        path="/v2/projects/{project}/logs",
        access=Access.READ,
        scope=ProjectScope.PATH,
        handler=list_logs,
    ),
    Route(method="POST", path="/v2/entries:list", access=Access.READ, scope=ProjectScope.BODY, handler=list_entries),
    Route(
        method="POST",
        path="/v2/entries:write",
        access=Access.WRITE_LOG,
        scope=ProjectScope.BODY,
        handler=write_entries,
    ),
)
