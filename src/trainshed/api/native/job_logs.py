"""Log pages of a job for a view that scrolls, searches and stays open."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.long_poll import wait_for_entries, wait_s
from trainshed.api.http.request import number, project, read_query, services
from trainshed.api.http.responses import json_response
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import Access
from trainshed.domain.logs import LogCursor, LogSelection
from trainshed.services.logs.pages import DEFAULT_LINES, LogPage, LogPageRequest

_PARAMETERS = ("replica", "severity", "search", "after", "before", "limit", "wait_s")


async def lines(request: Request) -> Response:
    query = read_query(request, *_PARAMETERS)
    page = await _page(request, _page_request(query), wait_s(query.get("wait_s", "")))
    return json_response(page.body())


async def _page(request: Request, page_args: LogPageRequest, hold_s: float) -> LogPage:
    reader, job, project_id = services(request).lines, request.path_params["job"], project(request)
    if page_args.after is None:
        return await run_in_threadpool(reader.page, project_id, job, page_args)
    return await wait_for_entries(
        lambda after: reader.page(project_id, job, page_args.since(after)),
        lambda cursor: reader.sizes(project_id, job, cursor),
        page_args.after,
        wait_s=hold_s,
        is_disconnected=request.is_disconnected,
    )


def _page_request(query: Mapping[str, str]) -> LogPageRequest:
    return LogPageRequest(
        selection=LogSelection(
            replica=query.get("replica", ""), severity=query.get("severity", ""), words=query.get("search", "")
        ),
        after=_cursor(query, "after"),
        before=_cursor(query, "before"),
        limit=number(query, "limit", default=DEFAULT_LINES),
    )


def _cursor(query: Mapping[str, str], name: str) -> LogCursor | None:
    return LogCursor.read(query[name], field=name) if query.get(name) else None


ROUTES = (
    Route(
        method="GET",
        path="/trainshed/v1/projects/{project}/jobs/{job}/lines",
        access=Access.READ,
        scope=ProjectScope.PATH,
        handler=lines,
    ),
)
