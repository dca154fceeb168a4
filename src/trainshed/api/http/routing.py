"""The route table. A route can't be written down without saying who may call it and about which project it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response

from trainshed.domain.iam import Access
from trainshed.errors import InvalidArgumentError

Handler = Callable[[Request], Awaitable[Response]]


class ProjectScope(StrEnum):
    """Where a request says which project it is about."""

    PATH = "path"  #: {project} in the path
    QUERY = "query"  #: project= in the query
    BUCKET = "bucket"  #: {bucket} in the path; the project is the one that owns it
    BODY = "body"  #: in the body; the service asks the principal
    SERVER = "server"  #: the server itself; the token must be good for every project, unless the access is READ


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method of one path. `{name}` stands for one segment, decoded once, slashes in it included; `{name*}`, at the
    end, for all that follow, also none.
    """

    method: str
    path: str
    access: Access
    scope: ProjectScope
    handler: Handler
    linked: bool = False  #: a link on a page of another site may lead a browser here
    from_anywhere: bool = False  #: the address is a secret: who knows it may ask from a page of any origin


class Router:
    """Finds the route of a request. Segments are split before they are decoded, so %2F never makes a new one."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._by_length: dict[int, list[tuple[Route, tuple[str, ...]]]] = {}
        self._open: list[tuple[Route, tuple[str, ...]]] = []  #: those that go on with any number of segments
        for route in self.routes:
            pattern = tuple(route.path.strip("/").split("/"))
            if pattern[-1].endswith("*}"):
                self._open.append((route, pattern))
            else:
                self._by_length.setdefault(len(pattern), []).append((route, pattern))
        for candidates in self._by_length.values():  # `{job}:cancel` before `{job}`, literals before both
            candidates.sort(key=lambda item: [_looseness(segment) for segment in item[1]])

    def find(self, method: str, raw_path: bytes) -> tuple[Route | None, Mapping[str, str], tuple[str, ...]]:
        """The route, its path parameters, and the methods that the path knows.

        `InvalidArgumentError` if it is not UTF-8.
        """
        segments = [_decoded(part) for part in raw_path.strip(b"/").split(b"/")]
        known: list[str] = []
        for route, pattern in self._by_length.get(len(segments), ()):
            if (params := _match(pattern, segments)) is None:
                continue
            if route.method == method:
                return route, params, ()
            known.append(route.method)
        for route, pattern in self._open:
            if (params := _match_open(pattern, segments)) is None:
                continue
            if route.method == method:
                return route, params, ()
            known.append(route.method)
        return None, {}, tuple(known)


def _looseness(segment: str) -> int:
    if not segment.startswith("{"):
        return 0
    return 2 if segment.endswith("}") else 1


def _match(pattern: tuple[str, ...], segments: list[str]) -> dict[str, str] | None:
    params: dict[str, str] = {}
    for wanted, given in zip(pattern, segments, strict=True):
        if not wanted.startswith("{"):
            if wanted != given:
                return None
            continue
        name, _, verb = wanted[1:].partition("}")
        if not given.endswith(verb) or len(given) == len(verb):
            return None
        params[name] = given[: len(given) - len(verb)]
    return params


def _match_open(pattern: tuple[str, ...], segments: list[str]) -> dict[str, str] | None:
    fixed, rest = pattern[:-1], pattern[-1].strip("{*}")
    if len(segments) < len(fixed) or (params := _match(fixed, segments[: len(fixed)])) is None:
        return None
    return params | {rest: "/".join(segments[len(fixed) :])}


def _decoded(segment: bytes) -> str:
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise InvalidArgumentError("The path of this request is not UTF-8.") from None
