"""Logs over HTTP: Cloud Logging's `entries:list`, and following the log of one job."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.bodies import read_json_object
from trainshed.api.http.long_poll import wait_for_entries, wait_s
from trainshed.api.http.request import principal, project, services
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import Access
from trainshed.domain.logs import LogCursor, LogEntry, LogSelection, parse_since
from trainshed.domain.times import now_us, rfc3339
from trainshed.errors import InvalidArgumentError
from trainshed.services.logs.entries import LogBatch, LogQuery

_LIST_FIELDS = frozenset({"resourceNames", "projectIds", "filter", "orderBy", "pageSize", "pageToken"})
_FOLLOW_PARAMETERS = frozenset({"replica", "since", "grep", "tail", "after", "until", "wait_s"})


async def list_entries(request: Request) -> Response:
    query = _query(await read_json_object(request))
    page = await run_in_threadpool(services(request).logs.entries, principal(request), query)
    body: dict[str, Any] = {"entries": [entry.body() for entry in page.entries]} if page.entries else {}
    return _json(body | ({"nextPageToken": page.next_token} if page.next_token else {}))


async def follow(request: Request) -> Response:
    parameters = _parameters(request)
    selection, until = _selection(parameters), _cursor(parameters, "until")
    reader, job, project_id = services(request).logs, request.path_params["job"], project(request)
    batch = await wait_for_entries(
        lambda after: reader.follow(project_id, job, selection, after, until),
        lambda cursor: reader.sizes(project_id, job, cursor),
        _cursor(parameters, "after"),
        wait_s=wait_s(parameters["wait_s"]),
        is_disconnected=request.is_disconnected,
    )
    # a duration, resolved by this server's clock
    since = {"since": rfc3339(selection.since_us)} if parameters["since"] else {}
    return _json(_batch_body(batch) | since)


def _batch_body(batch: LogBatch) -> dict[str, Any]:
    body = {"entries": [_entry_body(entry) for entry in batch.entries], "next": str(batch.cursor)}
    end = {"end": str(batch.end)} if batch.end is not None else {}
    return body | end | {"more": batch.more, "ended": batch.ended}


def _cursor(parameters: dict[str, str], name: str) -> LogCursor | None:
    return LogCursor.read(parameters[name], field=name) if parameters[name] else None


def _query(body: dict[str, Any]) -> LogQuery:
    if unknown := set(body) - _LIST_FIELDS:
        raise InvalidArgumentError(
            f"Unknown field {min(unknown)!r}. The fields are: {', '.join(sorted(_LIST_FIELDS))}."
        )
    resources = [*_strings(body, "resourceNames"), *(f"projects/{name}" for name in _strings(body, "projectIds"))]
    return LogQuery(
        resource_names=tuple(resources),
        filter=_text(body, "filter"),
        order_by=_text(body, "orderBy"),
        page_size=_count(body.get("pageSize", 0), "pageSize"),
        page_token=_text(body, "pageToken"),
    )


def _parameters(request: Request) -> dict[str, str]:
    parameters = dict(request.query_params)
    if unknown := set(parameters) - _FOLLOW_PARAMETERS:
        raise InvalidArgumentError(
            f"Unknown parameter {min(unknown)!r}. The parameters are: {', '.join(sorted(_FOLLOW_PARAMETERS))}."
        )
    return dict.fromkeys(_FOLLOW_PARAMETERS, "") | parameters


def _selection(parameters: dict[str, str]) -> LogSelection:
    return LogSelection(
        replica=parameters["replica"],
        since_us=parse_since(parameters["since"], now_us=now_us()) if parameters["since"] else 0,
        grep=parameters["grep"],
        tail=_count(parameters["tail"], "tail") if parameters["tail"] else None,
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


def _entry_body(entry: LogEntry) -> dict[str, str]:
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
