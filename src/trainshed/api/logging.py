"""Logs over HTTP: Cloud Logging's `entries:list`, and a cheap way to follow one job."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.bodies import read_json_object
from trainshed.api.http.long_poll import wait_for_news, wait_s
from trainshed.api.http.request import principal, project, services
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import Access
from trainshed.domain.logs import LogCursor, LogEntry, LogSelection, parse_since
from trainshed.domain.times import now_us, rfc3339
from trainshed.errors import InvalidArgumentError
from trainshed.services.logs.entries import LogBatch, LogQuery

_LISTED = frozenset({"resourceNames", "projectIds", "filter", "orderBy", "pageSize", "pageToken"})
_FOLLOWED = frozenset({"replica", "since", "grep", "tail", "after", "until", "wait_s"})


async def list_entries(request: Request) -> Response:
    query = _query(await read_json_object(request))
    page = await run_in_threadpool(services(request).logs.entries, principal(request), query)
    body: dict[str, Any] = {"entries": [entry.body() for entry in page.entries]} if page.entries else {}
    return _json(body | ({"nextPageToken": page.next_token} if page.next_token else {}))


async def follow(request: Request) -> Response:
    asked = _asked(request)
    selection, until = _selection(asked), _cursor(asked, "until")
    reader, job, where = services(request).logs, request.path_params["job"], project(request)
    batch = await wait_for_news(
        lambda after: reader.follow(where, job, selection, after, until),
        lambda cursor: reader.sizes(where, job, cursor),
        _cursor(asked, "after"),
        wait_s=wait_s(asked["wait_s"]),
        gone=request.is_disconnected,
    )
    since_then = {"since": rfc3339(selection.since_us)} if asked["since"] else {}  # a duration, by this clock
    return _json(_batch_body(batch) | since_then)


def _batch_body(batch: LogBatch) -> dict[str, Any]:
    body = {"entries": [_line(entry) for entry in batch.entries], "next": str(batch.cursor)}
    end = {"end": str(batch.end)} if batch.end is not None else {}
    return body | end | {"more": batch.more, "ended": batch.ended}


def _cursor(asked: dict[str, str], name: str) -> LogCursor | None:
    return LogCursor.read(asked[name], field=name) if asked[name] else None


def _query(body: dict[str, Any]) -> LogQuery:
    if unknown := set(body) - _LISTED:
        raise InvalidArgumentError(f"Unknown field {min(unknown)!r}. The fields are: {', '.join(sorted(_LISTED))}.")
    resources = [*_strings(body, "resourceNames"), *(f"projects/{name}" for name in _strings(body, "projectIds"))]
    return LogQuery(
        resource_names=tuple(resources),
        filter=_text(body, "filter"),
        order_by=_text(body, "orderBy"),
        page_size=_count(body.get("pageSize", 0), "pageSize"),
        page_token=_text(body, "pageToken"),
    )


def _asked(request: Request) -> dict[str, str]:
    given = dict(request.query_params)
    if unknown := set(given) - _FOLLOWED:
        raise InvalidArgumentError(
            f"Unknown parameter {min(unknown)!r}. The parameters are: {', '.join(sorted(_FOLLOWED))}."
        )
    return dict.fromkeys(_FOLLOWED, "") | given


def _selection(asked: dict[str, str]) -> LogSelection:
    return LogSelection(
        replica=asked["replica"],
        since_us=parse_since(asked["since"], now_us=now_us()) if asked["since"] else 0,
        grep=asked["grep"],
        tail=_count(asked["tail"], "tail") if asked["tail"] else None,
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


def _line(entry: LogEntry) -> dict[str, str]:
    return {
        "time": rfc3339(entry.time_us),
        "insertId": entry.insert_id,
        "replica": entry.replica,
        "severity": entry.severity,
        "message": entry.message,
    }


def _json(body: dict[str, Any]) -> Response:
    return Response(orjson.dumps(body), media_type="application/json")


ROUTES = (
    Route(method="POST", path="/v2/entries:list", access=Access.READ, scope=ProjectScope.BODY, handler=list_entries),
    Route(
        method="GET",
        path="/trainshed/v1/projects/{project}/jobs/{job}/logs",
        access=Access.READ,
        scope=ProjectScope.PATH,
        handler=follow,
    ),
)
