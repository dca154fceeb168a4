"""Routes and their lookup. Every route declares its access and its project scope."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response

from trainshed.domain.iam import Access
from trainshed.errors import InvalidArgumentError
from trainshed.gateway.protocols.wire_forms import ErrorForm

Handler = Callable[[Request], Awaitable[Response]]


class ProjectScope(StrEnum):
    """Where a request names its project."""

    PATH = "path"  #: {project} in the path
    QUERY = "query"  #: project= in the query
    BUCKET = "bucket"  #: {bucket} in the path; the project is the bucket's owner
    BODY = "body"  #: in the body; the service checks the principal
    CALLER = "caller"  #: nowhere: it is about the caller, or about what all projects share
    SERVER = "server"  #: the server itself; the token must be valid for all projects


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A query parameter. Values of a repeated one are joined with commas."""

    name: str
    description: str
    type: type[str] | type[int] | type[float] = str
    default: str | int | float = ""
    minimum: int | float | None = None
    maximum: int | float | None = None
    repeated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSchema:
    """What a route of our own accepts and responds with. Requests are read by it, and the document is made of it."""

    name: str  #: unique, such as `jobs.progress`; the first word is the tag
    summary: str
    response: Any  #: a typed dict; None is a file
    description: str = ""
    query: tuple[Parameter, ...] = ()
    ignores_unknown_query: bool = False  #: as OAuth demands
    body: Any = None  #: a typed dict; None is no body
    body_media: str = "application/json"
    error: Any = None  #: the body of a 400 that is not in the usual form
    errors: tuple[HTTPStatus, ...] = ()  #: client errors besides those that every route has

    @property
    def tag(self) -> str:
        return self.name.partition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method of one path.

    `{name}` matches one segment, decoded once, with any slashes in it. `{name*}` at the end matches all remaining
    segments, or none.
    """

    method: str
    path: str
    access: Access
    scope: ProjectScope
    handler: Handler
    linked: bool = False  #: a browser may follow a link from another site to it
    recorded: bool = False  #: a success is in the audit record though its access is that of a read
    cross_origin: bool = False  #: the URL is a secret, so pages of any origin may call it
    schema: RouteSchema | None = None  #: of a route of our own API
    error_form: ErrorForm | None = None  #: of the protocol that the route serves; None is Google's
    xml_errors: bool = False  #: errors are those of Cloud Storage's XML API


class Router:
    """Finds the route of a request. Segments are split before they are decoded, so %2F never separates."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._by_length: dict[int, list[tuple[Route, tuple[str, ...]]]] = {}
        self._open_ended: list[tuple[Route, tuple[str, ...]]] = []  #: routes that end in any number of segments
        for route in self.routes:
            pattern = tuple(route.path.strip("/").split("/"))
            if pattern[-1].endswith("*}"):
                self._open_ended.append((route, pattern))
            else:
                self._by_length.setdefault(len(pattern), []).append((route, pattern))
        for candidates in self._by_length.values():  # `{job}:cancel` before `{job}`, literals before both
            candidates.sort(key=lambda item: [_looseness(segment) for segment in item[1]])

    def find(self, method: str, raw_path: bytes) -> tuple[Route | None, Mapping[str, str], tuple[str, ...]]:
        """Return the route, its path parameters, and, without a route, the methods of the path.

        Raises `InvalidArgumentError` if the path is not UTF-8.
        """
        segments = [_decode(part) for part in raw_path.strip(b"/").split(b"/")]
        methods: list[str] = []
        for route, pattern in self._by_length.get(len(segments), ()):
            if (params := _match(pattern, segments)) is None:
                continue
            if route.method == method:
                return route, params, ()
            methods.append(route.method)
        for route, pattern in self._open_ended:
            if (params := _match_open(pattern, segments)) is None:
                continue
            if route.method == method:
                return route, params, ()
            methods.append(route.method)
        return None, {}, tuple(methods)


def _looseness(segment: str) -> int:
    if not segment.startswith("{"):
        return 0
    return 2 if segment.endswith("}") else 1


def _match(pattern: tuple[str, ...], segments: list[str]) -> dict[str, str] | None:
    params: dict[str, str] = {}
    for template, segment in zip(pattern, segments, strict=True):
        if not template.startswith("{"):
            if template != segment:
                return None
            continue
        name, _, verb = template[1:].partition("}")
        if not segment.endswith(verb) or len(segment) == len(verb):
            return None
        params[name] = segment[: len(segment) - len(verb)]
    return params


def _match_open(pattern: tuple[str, ...], segments: list[str]) -> dict[str, str] | None:
    fixed, rest = pattern[:-1], pattern[-1].strip("{*}")
    if len(segments) < len(fixed) or (params := _match(fixed, segments[: len(fixed)])) is None:
        return None
    return params | {rest: "/".join(segments[len(fixed) :])}


def _decode(segment: bytes) -> str:
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise InvalidArgumentError("The path of this request is not UTF-8.") from None
