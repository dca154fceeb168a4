"""Jobs beyond Google's API: search, details, progress, resource use, exports and chaos."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.request import body, principal, project, query, services
from trainshed.api.http.responses import json_response, json_unless_known
from trainshed.api.http.routing import Parameter, ProjectScope, Route, RouteSchema
from trainshed.api.schemas import jobs as shapes
from trainshed.domain.iam import Access
from trainshed.domain.names import trial_number
from trainshed.services.jobs.progress import DEFAULT_POINTS, MAX_POINTS
from trainshed.services.jobs.search import DEFAULT_ROWS, MAX_ROWS, JobSearchRequest

_JOBS = "/trainshed/v1/projects/{project}/jobs"
_JOB = f"{_JOBS}/{{job}}"


async def search(request: Request) -> Response:
    found = query(request)
    wanted = JobSearchRequest(
        search=found["search"],
        state=found["state"],
        label=found["label"],
        kind=found["kind"],
        page_size=found["pageSize"],
        page_token=found["pageToken"],
    )
    return json_response(await run_in_threadpool(services(request).job_rows.page, project(request), wanted))


async def details(request: Request) -> Response:
    return json_unless_known(request, await run_in_threadpool(services(request).jobs.details, *_job(request)))


async def progress(request: Request) -> Response:
    return json_response(await run_in_threadpool(services(request).progress.progress, *_job(request)))


async def stats(request: Request) -> Response:
    points = query(request)["points"]
    return json_response(await run_in_threadpool(services(request).progress.stats, *_job(request), points=points))


async def exports(request: Request) -> Response:
    return json_response(await run_in_threadpool(services(request).exports.of, *_job(request)))


async def kill(request: Request) -> Response:
    wanted = await body(request)
    return json_response(await run_in_threadpool(services(request).chaos.kill, *_job(request), wanted))


async def trials(request: Request) -> Response:
    return json_response(await run_in_threadpool(services(request).tuning.trials, *_job(request)))


async def stop_trial(request: Request) -> Response:
    stop = partial(services(request).tuning.stop, *_job(request), user=principal(request).user)
    return json_response(await run_in_threadpool(stop, trial_number(request.path_params["trial"])))


def _job(request: Request) -> tuple[str, str]:
    """Return the project and the job of a request."""
    return project(request), request.path_params["job"]


_SEARCH = (
    Parameter(name="search", description="A part of the id, or of a label as `key=value`, in upper or lower case."),
    Parameter(name="state", description="One state or more: repeated, or with commas between them.", repeated=True),
    Parameter(
        name="label",
        description="`key=value`, or `key` for any value; repeated, or with commas between them: all of them.",
        repeated=True,
    ),
    Parameter(name="kind", description="`training` or `prediction`."),
    Parameter(
        name="pageSize", description="Rows of a page.", type=int, default=DEFAULT_ROWS, minimum=1, maximum=MAX_ROWS
    ),
    Parameter(name="pageToken", description="The `nextPageToken` of the page before."),
)
_POINTS = Parameter(
    name="points",
    description="The most points that a series may have.",
    type=int,
    default=DEFAULT_POINTS,
    minimum=1,
    maximum=MAX_POINTS,
)

ROUTES = (
    Route(
        method="GET",
        path=_JOBS,
        access=Access.READ,
        scope=ProjectScope.PATH,
        handler=search,
        schema=RouteSchema(
            name="jobs.search",
            summary="Search the jobs of a project",
            description="Newest first.",
            query=_SEARCH,
            response=shapes.JobTableBody,
        ),
    ),
    Route(
        method="GET",
        path=_JOB,
        access=Access.READ_JOB,
        scope=ProjectScope.PATH,
        handler=details,
        schema=RouteSchema(name="jobs.details", summary="Get a job with its history", response=shapes.JobDetailsBody),
    ),
    Route(
        method="GET",
        path=f"{_JOB}/progress",
        access=Access.READ_JOB,
        scope=ProjectScope.PATH,
        handler=progress,
        schema=RouteSchema(
            name="jobs.progress", summary="Get the progress of a job and its replicas", response=shapes.JobProgressBody
        ),
    ),
    Route(
        method="GET",
        path=f"{_JOB}/stats",
        access=Access.READ_JOB,
        scope=ProjectScope.PATH,
        handler=stats,
        schema=RouteSchema(
            name="jobs.stats",
            summary="Get CPU, memory and metrics of a job over time",
            query=(_POINTS,),
            response=shapes.JobStatsBody,
        ),
    ),
    Route(
        method="GET",
        path=f"{_JOB}/exports",
        access=Access.READ_JOB,
        scope=ProjectScope.PATH,
        handler=exports,
        schema=RouteSchema(
            name="jobs.exports",
            summary="List the folders that a version can be created from",
            description=(
                "Those with a SavedModel, a Keras file, `model.joblib`, `model.pkl` or `model.bst`, below `jobDir` and "
                "below the `gs://` addresses in the arguments that the trainer writes to."
            ),
            response=shapes.ExportsBody,
        ),
    ),
    Route(
        method="GET",
        path=f"{_JOB}/trials",
        access=Access.READ_JOB,
        scope=ProjectScope.PATH,
        handler=trials,
        schema=RouteSchema(
            name="jobs.trials",
            summary="List the trials of a tuning job, with what they reported",
            response=shapes.TrialsBody,
            errors=(HTTPStatus.BAD_REQUEST,),
        ),
    ),
    Route(
        method="POST",
        path=f"{_JOB}/trials/{{trial}}:stop",
        access=Access.WRITE,
        scope=ProjectScope.PATH,
        handler=stop_trial,
        schema=RouteSchema(
            name="jobs.stopTrial",
            summary="Stop a trial of a tuning job, and keep what it has reported",
            description="Its processes get SIGTERM. The response comes before it has ended.",
            response=shapes.TrialBody,
            errors=(HTTPStatus.BAD_REQUEST,),
        ),
    ),
    Route(
        method="POST",
        path=f"{_JOB}:chaos",
        access=Access.WRITE,
        scope=ProjectScope.PATH,
        handler=kill,
        schema=RouteSchema(
            name="jobs.chaos",
            summary="Send a signal to a replica, to see how its gang recovers",
            description="The response comes before the signal is delivered.",
            body=shapes.KillRequestBody,
            response=shapes.KilledBody,
        ),
    ),
)
