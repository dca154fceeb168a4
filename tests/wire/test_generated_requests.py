"""Requests that are generated from the API's own descriptions, to every route."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from trainshed.api.app import ROUTES
from trainshed.api.discovery.document import APIS
from trainshed.api.discovery.document import document as discovery_document
from trainshed.api.openapi.document import document as openapi_document
from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.reliability.fuzz.generator import GeneratedRequest, RequestGenerator
from trainshed.testing.reliability.fuzz.operations import ApiOperation, operations
from trainshed.testing.reliability.fuzz.routes import run, run_batch, served_operations
from trainshed.testing.reliability.fuzz.wire import WireClient, WireResponse, response_faults
from trainshed.testing.reliability.reports import FaultReport, record_report

REQUESTS = 1500  #: in every run
SOAK_REQUESTS = 100_000

DESCRIBED = operations(
    openapi_document(ROUTES), [discovery_document(api, ROUTES, "http://localhost/") for api in APIS.values()]
)


def test_every_route_is_an_operation() -> None:
    generator = RequestGenerator(DESCRIBED, "1")
    methods = {(each.method, each.path.count("/")) for each in DESCRIBED}
    assert {(route.method, route.path.count("/")) for route in ROUTES} <= methods
    assert len(DESCRIBED) >= len(ROUTES)
    sent = {str(generator.next().operation) for _ in range(20 * len(DESCRIBED))}
    assert {str(each) for each in DESCRIBED} == sent


def test_the_same_seed_sends_the_same_requests() -> None:
    one, other, third = (RequestGenerator(DESCRIBED, seed) for seed in ("1", "1", "2"))
    sent = [[generator.next().encoded("h", "t") for _ in range(200)] for generator in (one, other, third)]
    assert sent[0] == sent[1]
    assert sent[0] != sent[2]


@pytest.mark.fault("F74")
def test_generated_requests_break_nothing(tmp_path: Path) -> None:
    report = run_batch(tmp_path, seed="quick", requests=REQUESTS)
    assert [str(each) for each in report.violations] == []


@pytest.mark.soak  # fifteen hundred are in every run
@pytest.mark.timeout(0)
@pytest.mark.fault("F74")
def test_a_hundred_thousand_generated_requests_break_nothing(tmp_path: Path) -> None:
    reports: list[FaultReport] = []

    def tell(report: FaultReport) -> None:
        record_report("F74", report)
        reports.append(report)

    violations = run(SOAK_REQUESTS, random.SystemRandom().randrange(1 << 32), tmp_path, tell)
    assert [str(each) for each in violations] == []
    assert sum(report.rounds for report in reports) == SOAK_REQUESTS


@pytest.mark.parametrize("name", [[[]], {}, 3, None])
def test_the_name_of_a_quota_that_is_no_text_is_refused(server: RunningServer, name: object) -> None:
    for method in ("set", "unset"):
        path = f"/trainshed/v1/projects/generated/quotas:{method}"
        status, answer = Caller(server.url)("POST", path, token=server.token, body={"name": name})
        assert status == 400, answer


def test_an_access_list_whose_entity_is_no_text_is_ignored_as_any_other(server: RunningServer) -> None:
    """It opens nothing to everybody."""
    bucket, call = "generated-acl", server.call
    call("POST", "/storage/v1/b?project=generated", {"name": bucket, "acl": [{"entity": {"a": []}, "role": "READER"}]})
    call("POST", f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name=a", b"bytes")
    body = {"acl": [{"entity": [], "role": "READER"}]}
    assert call("POST", f"/storage/v1/b/{bucket}/o/a/rewriteTo/b/{bucket}/o/b", body)["done"] is True


def test_an_unknown_parameter_leaves_the_form_of_errors_of_oauth(server: RunningServer) -> None:
    status, answer = Caller(server.url)("POST", "/token?unknown=1", body=b"grant_type=x")
    assert (status, answer) == (400, {"error": "unsupported_grant_type"})


_OPERATION = ApiOperation(method="GET", path="/trainshed/v1/server", source="openapi")
_REQUEST = GeneratedRequest(operation=_OPERATION, target=_OPERATION.path, headers=(), body=b"")
_ERROR = b'{"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT"}}'


@pytest.mark.parametrize(
    ("status", "body", "fault"),
    [
        (400, _ERROR, ""),
        (503, _ERROR.replace(b"400", b"503"), ""),
        (200, b'{"a": 1}', ""),
        (500, _ERROR, "500"),
        (404, _ERROR, "another form"),
        (400, b"no JSON", "another form"),
        (200, b"no JSON", "no JSON"),
        (200, b'{"a": "secret"}', "a secret"),
        (0, b"reset", "without a response"),
    ],
)
def test_what_is_wrong_with_a_response(status: int, body: bytes, fault: str) -> None:
    found = response_faults(_REQUEST, WireResponse(status=status, media="application/json", body=body), ["secret"])
    assert len(found) == bool(fault)
    assert all(fault in each for each in found)


_XML = ApiOperation(method="GET", path="/xml/v1/b/{bucket}", source="openapi")
_XML_ERROR = b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>NoSuchBucket</Code><Message>m</Message></Error>"


@pytest.mark.parametrize(("body", "is_error"), [(_XML_ERROR, True), (_ERROR, False), (b"<Error/>", False)])
def test_an_error_of_the_xml_api_is_a_document(body: bytes, is_error: bool) -> None:
    request = GeneratedRequest(operation=_XML, target="/xml/v1/b/a", headers=(), body=b"")
    found = response_faults(request, WireResponse(status=404, media="application/xml", body=body), [])
    assert (not found) is is_error


def test_the_documents_of_a_server_are_those_of_its_routes(server: RunningServer) -> None:
    assert [str(each) for each in served_operations(server)] == [str(each) for each in DESCRIBED]


def test_a_request_whose_head_does_not_fit_its_body_does_not_hang(server: RunningServer) -> None:
    client = WireClient(server.url, server.token)
    for header in (("content-length", "1000"), ("transfer-encoding", "chunked")):
        request = GeneratedRequest(operation=_OPERATION, target=_OPERATION.path, headers=[header], body=b"x")
        assert client.send(request).status in (200, 400)
    client.close()
