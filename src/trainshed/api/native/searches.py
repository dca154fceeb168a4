"""Searches as people look at them: tuning jobs and studies with their trials in one answer, and the list of studies."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.request import project, query, services
from trainshed.api.http.responses import json_response, json_unless_known, tag_of, unless_known
from trainshed.api.http.routing import Parameter, ProjectScope, Route, RouteSchema
from trainshed.api.schemas import searches as shapes
from trainshed.domain.iam import Access
from trainshed.domain.tuning.search_table import MAX_CURVE_POINTS
from trainshed.domain.tuning.study import StudyKey
from trainshed.services.tuning.search_tables import DEFAULT_POINTS, DEFAULT_STUDIES, MAX_STUDIES

_PROJECT = "/trainshed/v1/projects/{project}"


async def of_job(request: Request) -> Response:
    searches, points = services(request).searches, query(request)["points"]
    place = (project(request), request.path_params["job"])

    def respond() -> Response:
        tag = tag_of(searches.version_of_job(*place, points=points).encode())
        return unless_known(request, tag, partial(searches.of_job, *place, points=points))

    return await run_in_threadpool(respond)


async def of_study(request: Request) -> Response:
    params = request.path_params
    key = StudyKey(project=project(request), location=params["location"], id=params["study"])
    found = await run_in_threadpool(services(request).searches.of_study, key, points=query(request)["points"])
    return json_unless_known(request, found)


async def studies(request: Request) -> Response:
    found = query(request)
    page = partial(services(request).searches.studies, project(request))
    return json_response(await run_in_threadpool(page, page_size=found["pageSize"], page_token=found["pageToken"]))


_POINTS = Parameter(
    name="points",
    description="The most points that all curves together may have; 0 leaves them out.",
    type=int,
    default=DEFAULT_POINTS,
    minimum=0,
    maximum=MAX_CURVE_POINTS,
)

ROUTES = (
    Route(
        method="GET",
        path=f"{_PROJECT}/jobs/{{job}}/search",
        access=Access.READ_JOB,
        scope=ProjectScope.PATH,
        handler=of_job,
        schema=RouteSchema(
            name="jobs.getSearch",
            summary="Get the search of a tuning job: all trials and their curves",
            description=(
                "With the trials of the jobs whose search it continues. With the `etag` of an earlier response in "
                "`if-none-match`, the response is 304 while nothing has changed."
            ),
            query=(_POINTS,),
            response=shapes.SearchTableBody,
            errors=(HTTPStatus.BAD_REQUEST,),
        ),
    ),
    Route(
        method="GET",
        path=f"{_PROJECT}/studies",
        access=Access.READ_STUDIES,
        scope=ProjectScope.PATH,
        handler=studies,
        schema=RouteSchema(
            name="studies.list",
            summary="List the studies of all locations",
            query=(
                Parameter(
                    name="pageSize",
                    description="Studies of a page.",
                    type=int,
                    default=DEFAULT_STUDIES,
                    minimum=1,
                    maximum=MAX_STUDIES,
                ),
                Parameter(name="pageToken", description="The `nextPageToken` of the page before."),
            ),
            response=shapes.StudyTableBody,
        ),
    ),
    Route(
        method="GET",
        path=f"{_PROJECT}/locations/{{location}}/studies/{{study}}/search",
        access=Access.READ_STUDIES,
        scope=ProjectScope.PATH,
        handler=of_study,
        schema=RouteSchema(
            name="studies.getSearch",
            summary="Get a study with all trials and their curves",
            query=(_POINTS,),
            response=shapes.SearchTableBody,
        ),
    ),
)
