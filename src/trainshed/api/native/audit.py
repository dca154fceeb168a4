"""The audit record: owners of a project read its entries, owners of all projects read all."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.request import project, query, services
from trainshed.api.http.responses import json_response
from trainshed.api.http.routing import Parameter, ProjectScope, Route, RouteSchema
from trainshed.api.schemas.audit import AuditPageBody
from trainshed.domain.access.audit import AuditSearch
from trainshed.domain.iam import Access
from trainshed.domain.logs import parse_since
from trainshed.domain.times import now_us
from trainshed.services.access.audit import DEFAULT_PAGE, MAX_PAGE


async def show(request: Request) -> Response:
    wanted = query(request)
    search = AuditSearch(
        project=project(request),
        user=wanted["user"],
        method=wanted["method"],
        resource=wanted["resource"],
        outcome=wanted["outcome"],
        since_us=parse_since(wanted["since"], now_us=now_us()) if wanted["since"] else 0,
    )
    limits = {"limit": wanted["pageSize"], "page_token": wanted["pageToken"], "after": wanted["after"]}
    return json_response(await run_in_threadpool(services(request).audit.page, search, **limits))


_PARAMETERS = (
    Parameter(name="user", description="Only entries of this user."),
    Parameter(name="method", description="Only methods that contain this text."),
    Parameter(name="resource", description="Only resources that contain this text."),
    Parameter(name="outcome", description="`OK`, the code of an error, or `refused` for everything but `OK`."),
    Parameter(name="since", description="Entries from this time on; a duration such as `10m` counts back from now."),
    Parameter(
        name="pageSize", description="Entries of a page.", type=int, default=DEFAULT_PAGE, minimum=1, maximum=MAX_PAGE
    ),
    Parameter(name="pageToken", description="The `nextPageToken` of the page before."),
    Parameter(name="after", description="The `cursor` of an earlier response: the entries after it, oldest first."),
)

ROUTES = tuple(
    Route(
        method="GET",
        path=path,
        access=Access.ADMIN,
        scope=scope,
        handler=show,
        schema=RouteSchema(name=name, summary=summary, query=_PARAMETERS, response=AuditPageBody),
    )
    for name, path, scope, summary in (
        (
            "audit.list",
            "/trainshed/v1/projects/{project}/audit",
            ProjectScope.PATH,
            "List changes and refused tries in a project",
        ),
        ("audit.listAll", "/trainshed/v1/audit", ProjectScope.SERVER, "List changes and refused tries on the server"),
    )
)
