"""A job's lines for a view that can be scrolled, searched and left open."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.long_poll import first_news, wait_s
from trainshed.api.http.queries import number, read_query
from trainshed.api.http.request import project, services
from trainshed.api.http.responses import answer
from trainshed.api.http.routing import Route, Scope
from trainshed.domain.iam import Access
from trainshed.domain.logs import Cursor, Selection
from trainshed.services.logs.pages import DEFAULT_LINES, LinesPage, LinesRequest

_PARAMETERS = ("replica", "severity", "search", "after", "before", "limit", "wait_s")


async def lines(request: Request) -> Response:
    query = read_query(request, *_PARAMETERS)
    page = await _page(request, _wanted(query), wait_s(query.get("wait_s", "")))
    return answer(page.body())


async def _page(request: Request, wanted: LinesRequest, held_s: float) -> LinesPage:
    reader, job, where = services(request).lines, request.path_params["job"], project(request)
    if wanted.after is None:
        return await run_in_threadpool(reader.page, where, job, wanted)
    return await first_news(
        lambda after: reader.page(where, job, wanted.since(after)),
        lambda cursor: reader.sizes(where, job, cursor),
        wanted.after,
        wait_s=held_s,
        gone=request.is_disconnected,
    )


def _wanted(query: Mapping[str, str]) -> LinesRequest:
    return LinesRequest(
        selection=Selection(
            replica=query.get("replica", ""), severity=query.get("severity", ""), words=query.get("search", "")
        ),
        after=_cursor(query, "after"),
        before=_cursor(query, "before"),
        limit=number(query, "limit", default=DEFAULT_LINES),
    )


def _cursor(query: Mapping[str, str], name: str) -> Cursor | None:
    return Cursor.read(query[name], field=name) if query.get(name) else None


ROUTES = (
    Route(
        method="GET",
        path="/trainshed/v1/projects/{project}/jobs/{job}/lines",
        access=Access.READ,
        scope=Scope.PATH,
        handler=lines,
    ),
)
