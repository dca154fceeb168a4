"""The log of one job: for a reader that follows it, and for a view that scrolls, searches and stays open."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.long_poll import MAX_WAIT_S, wait_for_entries, wait_seconds
from trainshed.api.http.request import project, query, services
from trainshed.api.http.responses import json_response
from trainshed.api.http.routing import Parameter, ProjectScope, Route, RouteSchema
from trainshed.api.http.slow_work import LOG_PAGES, slow_work
from trainshed.api.schemas import logs as shapes
from trainshed.domain.iam import Access
from trainshed.domain.logs import LogCursor, LogSelection, parse_since
from trainshed.domain.times import now_us, rfc3339
from trainshed.services.logs.pages import DEFAULT_PAGE, END, MAX_PAGE, LogPage, LogPageRequest

_PARAMETERS = (
    Parameter(name="replica", description="Only lines of this replica, or of `service`."),
    Parameter(name="trial", description="Only lines of this trial of a tuning job.", type=int, default=0, minimum=0),
    Parameter(name="severity", description="Lines of this severity or a higher one."),
    Parameter(name="search", description="Lines that contain this text, in upper or lower case."),
    Parameter(name="grep", description="Lines that match this regular expression (RE2)."),
    Parameter(name="since", description="Lines from this time on; a duration such as `10m` counts back from now."),
    Parameter(name="tail", description="Start this number of lines before the end of the log.", type=int, minimum=0),
    Parameter(name="cursor", description="The lines after this cursor."),
    Parameter(name="before", description="The page before this cursor; `end` is the last page."),
    Parameter(name="until", description="Stop at this cursor."),
    Parameter(
        name="pageSize", description="Lines of a page.", type=int, default=DEFAULT_PAGE, minimum=1, maximum=MAX_PAGE
    ),
    Parameter(
        name="waitSeconds",
        description="Long poll: wait so long for a line.",
        type=float,
        default=0.0,
        minimum=0,
        maximum=MAX_WAIT_S,
    ),
)


async def logs(request: Request) -> Response:
    wanted = query(request)
    page_request = _page_request(wanted)
    page = await _page(request, page_request, wait_seconds(wanted["waitSeconds"]))
    # a duration, resolved by this server's clock
    since = {"since": rfc3339(page_request.selection.since_us)} if wanted["since"] else {}
    return json_response(page_body(page) | since)


async def _page(request: Request, page_request: LogPageRequest, wait_s: float) -> LogPage:
    reader, job, project_id = services(request).log_pages, request.path_params["job"], project(request)
    read = partial(slow_work(request, LOG_PAGES).run, request)
    if page_request.before is not None:
        return await read(partial(reader.page, project_id, job, page_request))
    return await wait_for_entries(
        lambda cursor: read(partial(reader.page, project_id, job, page_request.on_from(cursor))),
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


def _page_request(wanted: Mapping[str, Any]) -> LogPageRequest:
    return LogPageRequest(
        selection=LogSelection(
            replica=wanted["replica"],
            trial=wanted["trial"],
            severity=wanted["severity"],
            words=wanted["search"],
            grep=wanted["grep"],
            since_us=parse_since(wanted["since"], now_us=now_us()) if wanted["since"] else 0,
            tail=None if wanted["tail"] == "" else wanted["tail"],
        ),
        cursor=_cursor(wanted, "cursor"),
        before=END if wanted["before"] == END else _cursor(wanted, "before"),
        until=_cursor(wanted, "until"),
        page_size=wanted["pageSize"],
    )


def _cursor(wanted: Mapping[str, Any], name: str) -> LogCursor | None:
    return LogCursor.read(wanted[name], field=name) if wanted[name] else None


ROUTES = (
    Route(
        method="GET",
        path="/trainshed/v1/projects/{project}/jobs/{job}/logs",
        access=Access.READ_JOB,
        scope=ProjectScope.PATH,
        handler=logs,
        schema=RouteSchema(
            name="jobs.logs",
            summary="Get a page of a job's log, in either direction, or follow it",
            query=_PARAMETERS,
            response=shapes.LogPageBody,
            errors=(HTTPStatus.TOO_MANY_REQUESTS,),
        ),
    ),
)
