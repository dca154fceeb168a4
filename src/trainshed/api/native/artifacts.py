"""Downloads of job packages and version files by remote nodes, with a fetch token."""

from __future__ import annotations

from http import HTTPStatus
from typing import Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.media import SeekableBytes, StreamedResponse, parse_range
from trainshed.api.http.request import principal, project, services
from trainshed.api.http.routing import ProjectScope, Route, RouteSchema
from trainshed.domain.iam import Access

#: browsers save the file, whatever it holds
_HEADERS = {
    "content-type": "application/octet-stream",
    "content-disposition": "attachment",
    "content-security-policy": "sandbox; default-src 'none'",
    "cache-control": "private, no-store",
    "accept-ranges": "bytes",
}


class ArtifactFile(SeekableBytes, Protocol):
    """An open artifact file."""

    size: int


async def fetch_package(request: Request) -> Response:
    job, sha256 = request.path_params["job"], request.path_params["sha256"]
    file = await run_in_threadpool(services(request).packages.open, principal(request), project(request), job, sha256)
    return _file_response(request, file)


async def fetch_version_file(request: Request) -> Response:
    names = [request.path_params[name] for name in ("model", "version", "sha256")]
    open_file = services(request).version_files.open
    return _file_response(request, await run_in_threadpool(open_file, principal(request), project(request), *names))


def _file_response(request: Request, file: ArtifactFile) -> Response:
    """Send the file, or the range that the request names."""
    try:
        part = parse_range(request.headers.get("range", ""), file.size)
    except BaseException:
        file.close()
        raise
    headers = _HEADERS | {"content-length": str(part.stop - part.start)}
    if part.partial:
        headers["content-range"] = f"bytes {part.start}-{part.stop - 1}/{file.size}"
    return StreamedResponse(file, part, 206 if part.partial else 200, headers)


ROUTES = (
    Route(
        method="GET",
        path="/trainshed/v1/projects/{project}/models/{model}/versions/{version}/files/{sha256}",
        access=Access.FETCH,
        scope=ProjectScope.PATH,
        handler=fetch_version_file,
        schema=RouteSchema(
            name="artifacts.versionFile",
            summary="Download a file, or a package, of a version whose hosts run on other machines",
            response=None,
            errors=(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,),
        ),
    ),
    Route(
        method="GET",
        path="/trainshed/v1/projects/{project}/jobs/{job}/packages/{sha256}",
        access=Access.FETCH,
        scope=ProjectScope.PATH,
        handler=fetch_package,
        schema=RouteSchema(
            name="artifacts.jobPackage",
            summary="Download a package of a job that runs on other machines",
            response=None,
            errors=(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,),
        ),
    ),
)
