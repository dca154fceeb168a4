"""The log of one job: for a reader that follows it, and for a view that scrolls, searches and stays open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.long_poll import wait_for_entries, wait_seconds
from trainshed.api.http.request import number, project, read_query, services
from trainshed.api.http.responses import json_response
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import Access
from trainshed.domain.logs import LogCursor, LogSelection, parse_since
from trainshed.domain.times import now_us, rfc3339
from trainshed.services.logs.pages import DEFAULT_PAGE, END, LogPage, LogPageRequest

_PARAMETERS = (
    *("replica", "severity", "search", "grep", "since", "tail"),
    *("cursor", "before", "until", "pageSize", "waitSeconds"),
)


async def logs(request: Request) -> Response:
    query = read_query(request, *_PARAMETERS)
    page_request = _page_request(query)
    page = await _page(request, page_request, wait_seconds(query.get("waitSeconds", "")))
    # a duration, resolved by this server's clock
    since = {"since": rfc3339(page_request.selection.since_us)} if query.get("since") else {}
    return json_response(page_body(page) | since)


async def _page(request: Request, page_request: LogPageRequest, wait_s: float) -> LogPage:
    reader, job, project_id = services(request).log_pages, request.path_params["job"], project(request)
    if page_request.before is not None:
        return await run_in_threadpool(reader.page, project_id, job, page_request)
    return await wait_for_entries(
        lambda cursor: reader.page(project_id, job, page_request.on_from(cursor)),
        lambda cursor: reader.sizes(project_id, job, cursor),
        page_request.cursor,
        wait_s=wait_s,
        is_disconnected=request.is_disconnected,
    )


def page_body(page: LogPage) -> dict[str, Any]:
    body: dict[str, Any] = {
        "entries": [entry.line() for entry in page.entries],
        "cursor": str(page.cursor),
        "before": "" if page.before is None else str(page.before),
        "more": page.more,
        "ended": page.ended,
        "replicas": list(page.replicas),
    }
    return body | ({} if page.end is None else {"end": str(page.end)})


def _page_request(query: Mapping[str, str]) -> LogPageRequest:
    return LogPageRequest(
        selection=LogSelection(
            replica=query.get("replica", ""),
            severity=query.get("severity", ""),
            words=query.get("search", ""),
            grep=query.get("grep", ""),
            since_us=parse_since(query["since"], now_us=now_us()) if query.get("since") else 0,
            tail=number(query, "tail") if query.get("tail") else None,
        ),
        cursor=_cursor(query, "cursor"),
        before=END if query.get("before") == END else _cursor(query, "before"),
        until=_cursor(query, "until"),
        page_size=number(query, "pageSize", default=DEFAULT_PAGE),
    )


def _cursor(query: Mapping[str, str], name: str) -> LogCursor | None:
    return LogCursor.read(query[name], field=name) if query.get(name) else None


ROUTES = (
    Route(
        method="GET",
        path="/trainshed/v1/projects/{project}/jobs/{job}/logs",
        access=Access.READ,
        scope=ProjectScope.PATH,
        handler=logs,
    ),
)
