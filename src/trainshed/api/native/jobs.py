"""The jobs of a project as a table."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.queries import number, read_query
from trainshed.api.http.request import project, services
from trainshed.api.http.responses import json_response
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import Access
from trainshed.services.jobs.search import DEFAULT_ROWS, JobSearchRequest


async def show(request: Request) -> Response:
    query = read_query(request, "search", "state", "label", "kind", "limit", "page", repeated=("state", "label"))
    limit = number(query, "limit", default=DEFAULT_ROWS)
    wanted = JobSearchRequest(**{name: text for name, text in query.items() if name != "limit"}, limit=limit)
    return json_response(await run_in_threadpool(services(request).job_rows.page, project(request), wanted))


ROUTES = (
    Route(
        method="GET",
        path="/trainshed/v1/projects/{project}/jobs",
        access=Access.READ,
        scope=ProjectScope.PATH,
        handler=show,
    ),
)
