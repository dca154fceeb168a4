"""The packages of a job and the files of a version, fetched by the machines that run them with a token that can do only
that.
"""

from __future__ import annotations

from typing import Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.media import SeekableBytes, StreamedResponse, parse_range
from trainshed.api.http.request import principal, project, read_query, services
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import Access

#: it is a file to save, whatever it holds
_HEADERS = {
    "content-type": "application/octet-stream",
    "content-disposition": "attachment",
    "content-security-policy": "sandbox; default-src 'none'",
    "cache-control": "private, no-store",
    "accept-ranges": "bytes",
}


class ArtifactFile(SeekableBytes, Protocol):
    """An open file."""

    size: int


async def fetch(request: Request) -> Response:
    read_query(request)
    job, sha256 = request.path_params["job"], request.path_params["sha256"]
    found = await run_in_threadpool(services(request).packages.open, principal(request), project(request), job, sha256)
    return _sent(request, found)


async def fetch_of_version(request: Request) -> Response:
    read_query(request)
    names = [request.path_params[name] for name in ("model", "version", "sha256")]
    opening = services(request).version_files.open
    return _sent(request, await run_in_threadpool(opening, principal(request), project(request), *names))


def _sent(request: Request, found: ArtifactFile) -> Response:
    """What was found, or the part of it that was asked for."""
    try:
        part = parse_range(request.headers.get("range", ""), found.size)
    except BaseException:
        found.close()
        raise
    headers = _HEADERS | {"content-length": str(part.stop - part.start)}
    if part.partial:
        headers["content-range"] = f"bytes {part.start}-{part.stop - 1}/{found.size}"
    return StreamedResponse(found, part, 206 if part.partial else 200, headers)


ROUTES = (
    Route(
        method="GET",
        path="/trainshed/v1/projects/{project}/models/{model}/versions/{version}/files/{sha256}",
        access=Access.FETCH,
        scope=ProjectScope.PATH,
        handler=fetch_of_version,
    ),
    Route(
        method="GET",
        path="/trainshed/v1/projects/{project}/jobs/{job}/packages/{sha256}",
        access=Access.FETCH,
        scope=ProjectScope.PATH,
        handler=fetch,
    ),
)
