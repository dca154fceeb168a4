"""The page of the matrix is what the routes say, and a public route that is not listed as open is closed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from starlette.requests import Request

from trainshed.api import app
from trainshed.api.access_matrix import IDENTITIES, AccessOutcome, outcome, page
from trainshed.api.http.open_routes import OPEN_ROUTES
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.api.native.server import health
from trainshed.domain.iam import GRANTS, OWN_ONLY, Access, Role
from trainshed.services.registry import Services

ROOT = Path(__file__).parents[3]


def test_the_page_has_a_row_for_every_route() -> None:
    remedy = "the routes changed: python -m trainshed.api.access_matrix > docs/access.md, and look at the difference"
    assert (ROOT / "docs/access.md").read_text() == page(), remedy


def test_every_role_has_a_row_and_nobody_has_what_is_public() -> None:
    assert set(GRANTS) == set(Role)
    assert not any(Access.PUBLIC in granted for granted in GRANTS.values())
    assert GRANTS[Role.VIEWER] < GRANTS[Role.EDITOR] < GRANTS[Role.OWNER]
    assert set(Access) - {Access.PUBLIC} == GRANTS[Role.OWNER]


def test_the_token_of_a_job_changes_nothing_but_objects_studies_and_its_log() -> None:
    job = next(identity for identity in IDENTITIES if identity.role is Role.JOB)
    changes = {
        route.access
        for route in app.ROUTES
        if route.method != "GET" and outcome(route, job) in (AccessOutcome.YES, AccessOutcome.OWN)
    }
    objects = {Access.READ_OBJECTS, Access.WRITE_OBJECTS}  # a batch is a POST that reads
    studies = {Access.READ_STUDIES, Access.WRITE_STUDIES, Access.RUN_TRIALS}
    assert changes <= {*objects, *studies, Access.PREDICT, Access.WRITE_LOG}


def test_a_route_that_belongs_to_a_job_or_version_names_it() -> None:
    for route in app.ROUTES:
        if route.access in OWN_ONLY:
            assert "{job}" in route.path or "{model}" in route.path, route.path


def test_a_public_route_that_is_not_listed_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    unlisted = Route(method="GET", path="/unlisted", access=Access.PUBLIC, scope=ProjectScope.SERVER, handler=health)
    monkeypatch.setattr(app, "ROUTES", (*app.ROUTES, unlisted))
    audit = SimpleNamespace(end=lambda trail, outcome, refused: None)
    services = cast(Services, SimpleNamespace(buckets=SimpleNamespace(owner=None), audit=audit))
    api = app.Api(services, allowed_hosts=["localhost"], authentication=False, body_limit=1)

    def status(path: str) -> int:
        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""}
        scope |= {"headers": [(b"host", b"localhost")]}
        return asyncio.run(api.respond(Request(scope))).status_code

    assert ("GET", "/healthz") in OPEN_ROUTES
    assert status("/healthz") == 200
    assert status("/unlisted") == 403
