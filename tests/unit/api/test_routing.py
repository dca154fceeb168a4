"""The route table: segments are split before they are decoded, and the tightest pattern wins."""

from __future__ import annotations

import pytest
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.routing import ProjectScope, Route, Router
from trainshed.domain.iam import Access
from trainshed.errors import InvalidArgumentError


async def handler(_request: Request) -> Response:
    return Response()


def route(method: str, path: str) -> Route:
    return Route(method=method, path=path, access=Access.READ, scope=ProjectScope.PATH, handler=handler)


ROUTER = Router(
    [
        route("GET", "/v1/projects/{project}/jobs/{job}"),
        route("POST", "/v1/projects/{project}/jobs/{job}:cancel"),
        route("GET", "/v1/projects/{project}/jobs/{job}:getIamPolicy"),
        route("GET", "/b/{bucket}/o/{object}"),
        route("POST", "/b/{bucket}/o/{object}/rewriteTo/b/{to}/o/{name}"),
        route("GET", "/open/{path*}"),
        route("GET", "/open/door"),
        route("POST", "/open/{key}/{path*}"),
    ]
)


@pytest.mark.parametrize(
    ("method", "path", "wanted", "params"),
    [
        ("GET", b"/v1/projects/p/jobs/j", "/v1/projects/{project}/jobs/{job}", {"project": "p", "job": "j"}),
        (
            "POST",
            b"/v1/projects/p/jobs/j:cancel",
            "/v1/projects/{project}/jobs/{job}:cancel",
            {"project": "p", "job": "j"},
        ),
        (
            "GET",
            b"/v1/projects/p/jobs/j:getIamPolicy",
            "/v1/projects/{project}/jobs/{job}:getIamPolicy",
            {"project": "p", "job": "j"},
        ),
        ("GET", b"/b/x/o/a%2Fb%2F..%2Fc", "/b/{bucket}/o/{object}", {"bucket": "x", "object": "a/b/../c"}),
        ("GET", b"/b/x/o/a%252Fb", "/b/{bucket}/o/{object}", {"bucket": "x", "object": "a%2Fb"}),
        ("GET", b"/open", "/open/{path*}", {"path": ""}),
        ("GET", b"/open/", "/open/{path*}", {"path": ""}),
        ("GET", b"/open/a/b%2Fc/../d", "/open/{path*}", {"path": "a/b/c/../d"}),
        ("GET", b"/open/door", "/open/door", {}),
        ("POST", b"/open/k/", "/open/{key}/{path*}", {"key": "k", "path": ""}),
        ("POST", b"/open/k/a/b", "/open/{key}/{path*}", {"key": "k", "path": "a/b"}),
        ("GET", "/b/x/o/käse%20%3A1".encode(), "/b/{bucket}/o/{object}", {"bucket": "x", "object": "käse :1"}),
    ],
)
def test_a_path_finds_its_route(method: str, path: bytes, wanted: str, params: dict[str, str]) -> None:
    found, given, _ = ROUTER.find(method, path)
    assert found is not None
    assert (found.path, given) == (wanted, params)


def test_a_known_path_with_another_method_names_the_methods() -> None:
    assert ROUTER.find("PUT", b"/b/x/o/y") == (None, {}, ("GET",))
    assert ROUTER.find("PUT", b"/open/x/y") == (None, {}, ("GET", "POST"))


@pytest.mark.parametrize("path", [b"/", b"/v1", b"/v1/projects/p/jobs/", b"/b/x/o/a/b", b"/v2/projects/p/jobs/j"])
def test_nothing_else_is_there(path: bytes) -> None:
    assert ROUTER.find("GET", path) == (None, {}, ())


def test_a_path_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="UTF-8"):
        ROUTER.find("GET", b"/b/x/o/%ff")
