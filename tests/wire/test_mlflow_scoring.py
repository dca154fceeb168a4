"""MLflow's scoring protocol, as its clients send it: real hosts, models of a few lines."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from trainshed import __version__
from trainshed.domain.models.hosting import ServingState
from trainshed.gateway.routes import ModelRoute, VersionRoute
from trainshed.testing.processes.gateway import RunningGateway
from trainshed.testing.processes.model_hosts import gateway_with_models

PROJECT = "mlflow"
JSON = "application/json"
ROWS = [[1.0, 2.0, 0.5], [0.0, 0.0, 1.0]]
PREDICTIONS = [{"label": 0, "scores": [3.5, 2.0]}, {"label": 1, "scores": [-3.0, 4.0]}]
SPLIT = {"dataframe_split": {"columns": ["a", "b", "c"], "index": [0, 1], "data": ROWS}}


@pytest.fixture(scope="module")
def shed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    classes = {"scores": "Scorer", "sums": "Weighing"}
    with gateway_with_models(tmp_path_factory.mktemp("mlflow"), classes, project=PROJECT) as running:
        yield running


def ask(shed: RunningGateway, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
    """Status and text. Bytes are sent unchanged."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    sent = {"authorization": f"Bearer {shed.token}", "content-type": JSON, **headers}
    with closing(http.client.HTTPConnection(urlsplit(shed.url).netloc, timeout=60)) as connection:
        connection.request(method, f"/mlflow/projects/{PROJECT}/models/{path}", data, sent)
        answer = connection.getresponse()
        assert answer.headers["content-type"].startswith(JSON)
        return answer.status, answer.read().decode()


def invoke(shed: RunningGateway, path: str, body: object, **headers: str) -> tuple[int, Any]:
    """By the route and by the fast path, which answer alike."""
    first, second = (ask(shed, "POST", f"{path}/invocations", body, **headers) for _ in range(2))
    assert first == second
    return first[0], json.loads(first[1])


@pytest.mark.parametrize("path", ["scores", "scores/versions/v1"])
def test_invocations(shed: RunningGateway, path: str) -> None:
    for body in ({"instances": ROWS}, SPLIT, {"dataframe_records": [{"x": row} for row in ROWS]}):
        assert invoke(shed, path, body) == (200, {"predictions": PREDICTIONS})
    columns = {"label": [0, 1], "scores": [row["scores"] for row in PREDICTIONS]}
    assert invoke(shed, path, {"inputs": ROWS}) == (200, {"predictions": columns})


def test_a_table(shed: RunningGateway) -> None:
    assert invoke(shed, "sums", SPLIT) == (200, {"predictions": [0.25, 0.5]})


def test_health_and_version(shed: RunningGateway) -> None:
    for path in ("scores", "scores/versions/v1"):
        assert ask(shed, "GET", f"{path}/ping") == (200, "\n")
        assert ask(shed, "GET", f"{path}/health") == (200, "\n")
        assert ask(shed, "GET", f"{path}/version") == (200, __version__)


@pytest.mark.parametrize("state", list(ServingState))
def test_the_health_of_each_state(shed: RunningGateway, state: ServingState) -> None:
    version = VersionRoute(project=PROJECT, model="states", version="v1", state=state, reason="A reason.")
    shed.routes.publish(ModelRoute(project=PROJECT, model="states", default="v1", versions={"v1": version}))
    status, body = ask(shed, "GET", "states/ping")
    if state in (ServingState.STARTING, ServingState.UNHEALTHY):
        expected = {"error_code": "TEMPORARILY_UNAVAILABLE", "message": "A reason."}
        assert (status, json.loads(body)) == (503, expected)
    else:
        assert (status, body) == (200, "\n")


class TestErrors:
    @pytest.mark.parametrize("body", [b"", b"{", b"\xff" * 9, {}, {**SPLIT, "inputs": ROWS}, {"instances": [[1]]}])
    def test_bad_input(self, shed: RunningGateway, body: object) -> None:
        status, answer = invoke(shed, "scores", body)
        assert (status, answer.keys()) == (400, {"error_code", "message"})
        assert answer["error_code"] == "BAD_REQUEST"
        assert isinstance(answer["message"], str)

    def test_csv_is_not_read(self, shed: RunningGateway) -> None:
        assert invoke(shed, "scores", SPLIT)[0] == 200  # the fast path knows the URL
        for media_type in ("text/csv", "Text/CSV; charset=utf-8"):
            status, answer = invoke(shed, "scores", b"a,b,c\n1,2,3\n", **{"content-type": media_type})
            assert (status, answer["error_code"]) == (400, "BAD_REQUEST")
            assert "reads no CSV" in answer["message"]

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("POST", "absent/invocations"),
            ("POST", "scores/versions/v7/invocations"),
            ("GET", "absent/ping"),
            ("GET", "scores/versions/v7/health"),
            ("GET", "absent/version"),
        ],
    )
    def test_what_is_not_there(self, shed: RunningGateway, method: str, path: str) -> None:
        status, body = ask(shed, method, path, {"instances": ROWS} if method == "POST" else None)
        assert (status, json.loads(body)["error_code"]) == (404, "RESOURCE_DOES_NOT_EXIST")

    def test_a_body_beyond_the_limit(self, shed: RunningGateway) -> None:
        assert invoke(shed, "scores", SPLIT)[0] == 200
        with closing(http.client.HTTPConnection(urlsplit(shed.url).netloc, timeout=60)) as connection:
            connection.putrequest("POST", f"/mlflow/projects/{PROJECT}/models/scores/invocations")
            connection.putheader("authorization", f"Bearer {shed.token}")
            connection.putheader("content-length", str(100 << 20))
            connection.endheaders()
            answer = connection.getresponse()
            assert (answer.status, json.loads(answer.read())["error_code"]) == (413, "BAD_REQUEST")

    def test_a_token_is_needed(self, shed: RunningGateway) -> None:
        assert invoke(shed, "scores", SPLIT)[0] == 200
        status, answer = invoke(shed, "scores", SPLIT, authorization="Bearer ts_none")
        assert (status, answer["error_code"]) == (401, "UNAUTHENTICATED")
