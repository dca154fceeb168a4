"""Logs over HTTP: Cloud Logging's `entries:list`, and a cheap way to follow one job."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.access import principal, project, services
from trainshed.api.bodies import read_json_object
from trainshed.api.routing import Route, Scope
from trainshed.domain.iam import Access
from trainshed.domain.logs import Cursor, Entry, Selection, since
from trainshed.domain.times import now_us, rfc3339
from trainshed.errors import Invalid
from trainshed.services.logs import Batch, Logs, Query

MAX_WAIT_S = 20.0
_LOOK_S = 0.1  #: between looks at the size of the files
_LOOKS = 3  #: between looks at the job and its events
_LISTED = frozenset({"resourceNames", "projectIds", "filter", "orderBy", "pageSize", "pageToken"})
_FOLLOWED = frozenset({"replica", "since", "grep", "tail", "after", "wait_s"})


async def list_entries(request: Request) -> Response:
    query = _query(await read_json_object(request))
    page = await run_in_threadpool(services(request).logs.entries, principal(request), query)
    body: dict[str, Any] = {"entries": [entry.body() for entry in page.entries]} if page.entries else {}
    return _json(body | ({"nextPageToken": page.next_token} if page.next_token else {}))


async def follow(request: Request) -> Response:
    asked = _asked(request)
    after = Cursor.read(asked["after"]) if asked["after"] else None
    waiting = asyncio.get_running_loop().time() + _wait_s(asked["wait_s"])
    selection = _selection(asked)
    batch = await next_batch(
        services(request).logs, project(request), request.path_params["job"], selection, after, waiting
    )
    body = {"entries": [_line(entry) for entry in batch.entries], "next": str(batch.cursor)}
    since_then = {"since": rfc3339(selection.since_us)} if asked["since"] else {}  # a duration, by this clock
    return _json(body | since_then | {"more": batch.more, "ended": batch.ended})


async def next_batch(
    logs: Logs, project_id: str, job: str, selection: Selection, after: Cursor | None, until: float
) -> Batch:
    """What there is beyond `after`, as soon as there is something, the job has ended, or the time is up."""
    clock = asyncio.get_running_loop().time
    while True:
        batch = await run_in_threadpool(logs.follow, project_id, job, selection, after)
        if batch.entries or batch.ended or clock() >= until:
            return batch
        after = batch.cursor
        if batch.more:
            continue
        sizes = logs.sizes(project_id, job, after)
        for _ in range(_LOOKS):
            await asyncio.sleep(_LOOK_S)
            if clock() >= until or logs.sizes(project_id, job, after) != sizes:
                break


def _query(body: dict[str, Any]) -> Query:
    if unknown := set(body) - _LISTED:
        raise Invalid(f"Unknown field {min(unknown)!r}. The fields are: {', '.join(sorted(_LISTED))}.")
    resources = [*_strings(body, "resourceNames"), *(f"projects/{name}" for name in _strings(body, "projectIds"))]
    return Query(
        resource_names=tuple(resources),
        filter=_text(body, "filter"),
        order_by=_text(body, "orderBy"),
        page_size=_count(body.get("pageSize", 0), "pageSize"),
        page_token=_text(body, "pageToken"),
    )


def _asked(request: Request) -> dict[str, str]:
    given = dict(request.query_params)
    if unknown := set(given) - _FOLLOWED:
        raise Invalid(f"Unknown parameter {min(unknown)!r}. The parameters are: {', '.join(sorted(_FOLLOWED))}.")
    return dict.fromkeys(_FOLLOWED, "") | given


def _selection(asked: dict[str, str]) -> Selection:
    return Selection(
        replica=asked["replica"],
        since_us=since(asked["since"], now_us=now_us()) if asked["since"] else 0,
        grep=asked["grep"],
        tail=_count(asked["tail"], "tail") if asked["tail"] else None,
    )


def _wait_s(text: str) -> float:
    try:
        seconds = float(text or 0)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_WAIT_S:
        raise Invalid(f"`wait_s` is a number of seconds from 0 to {MAX_WAIT_S:g}.", field="wait_s")
    return seconds


def _strings(body: dict[str, Any], name: str) -> list[str]:
    value = body.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value) or len(value) > 100:
        raise Invalid(f"`{name}` is a list of at most 100 strings.", field=name)
    return value


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name, "")
    if not isinstance(value, str):
        raise Invalid(f"`{name}` is a string.", field=name)
    return value


def _count(value: object, name: str) -> int:
    text = str(value)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Invalid(f"`{name}` is a whole number, 0 or more.", field=name)
    return int(text)


def _line(entry: Entry) -> dict[str, str]:
    return {
        "time": rfc3339(entry.time_us),
        "insertId": entry.insert_id,
        "replica": entry.replica,
        "severity": entry.severity,
        "message": entry.text,
    }


def _json(body: dict[str, Any]) -> Response:
    return Response(orjson.dumps(body), media_type="application/json")


ROUTES = (
    Route(method="POST", path="/v2/entries:list", access=Access.READ, scope=Scope.BODY, handler=list_entries),
    Route(
        method="GET",
        path="/trainshed/v1/projects/{project}/jobs/{job}/logs",
        access=Access.READ,
        scope=Scope.PATH,
        handler=follow,
    ),
)
