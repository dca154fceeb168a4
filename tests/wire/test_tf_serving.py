"""TensorFlow Serving's REST API, as people and KServe's client send it: real hosts, models of a few lines."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from trainshed.domain.models.hosting import ServingState
from trainshed.gateway.routes import ModelRoute, VersionRoute
from trainshed.testing.processes.gateway import RunningGateway
from trainshed.testing.processes.model_hosts import gateway_with_models

PROJECT = "served"
BASE = f"/tfserving/projects/{PROJECT}"
ROWS = [[1.0, 2.0, 0.5], [0.0, 0.0, 1.0]]
SCORES = [[3.5, 2.0], [-3.0, 4.0]]


@pytest.fixture(scope="module")
def shed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    classes = {"scores": "Scorer", "shouts": "Shouter", "sums": "Weighing"}
    with gateway_with_models(tmp_path_factory.mktemp("tfserving"), classes, project=PROJECT) as running:
        yield running


def ask(shed: RunningGateway, method: str, path: str, body: object = None, token: str = "") -> tuple[int, Any]:
    """Status and JSON body. Bytes are sent unchanged."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    connection = http.client.HTTPConnection(urlsplit(shed.url).netloc, timeout=60)
    with closing(connection):
        connection.request(method, path, data, {"authorization": f"Bearer {token or shed.token}"})
        answer = connection.getresponse()
        assert answer.headers["content-type"].startswith("application/json")
        return answer.status, json.loads(answer.read())


def predict(shed: RunningGateway, model: str, body: object, version: str = "") -> tuple[int, Any]:
    """By the route and by the fast path, which answer alike."""
    path = f"{BASE}/v1/models/{model}{version}:predict"
    first, second = ask(shed, "POST", path, body), ask(shed, "POST", path, body)
    assert first == second
    return first


class TestPredict:
    @pytest.mark.parametrize("version", ["", "/versions/v1", "/versions/1"])
    def test_rows_and_columns(self, shed: RunningGateway, version: str) -> None:
        rows = [{"label": 0, "scores": SCORES[0]}, {"label": 1, "scores": SCORES[1]}]
        columns = {"label": [0, 1], "scores": SCORES}
        assert predict(shed, "scores", {"instances": ROWS}, version) == (200, {"predictions": rows})
        assert predict(shed, "scores", {"inputs": ROWS}, version) == (200, {"outputs": columns})
        assert predict(shed, "scores", {"inputs": {"x": ROWS}}, version) == (200, {"outputs": columns})
        named = {"signature_name": "serving_default", "instances": [{"x": row} for row in ROWS]}
        assert predict(shed, "scores", named, version) == (200, {"predictions": rows})

    def test_the_only_output_has_no_name(self, shed: RunningGateway) -> None:
        instances = ["a", {"b64": "Yg=="}]
        assert predict(shed, "shouts", {"instances": instances}) == (200, {"predictions": ["A", "B"]})
        assert predict(shed, "shouts", {"inputs": {"text": instances}}) == (200, {"outputs": ["A", "B"]})

    def test_no_rows(self, shed: RunningGateway) -> None:
        assert predict(shed, "scores", {"instances": []}) == (200, {"predictions": []})
        assert predict(shed, "scores", {"inputs": []}) == (200, {"outputs": {"label": [], "scores": []}})

    def test_a_model_without_signatures(self, shed: RunningGateway) -> None:
        table = [[1, 2, 3], [3, 4, 5]]
        assert predict(shed, "sums", {"instances": table}) == (200, {"predictions": [1.5, 4.5]})
        assert predict(shed, "sums", {"inputs": table}) == (200, {"outputs": [1.5, 4.5]})


class TestBadInput:
    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"{",
            b"\xff" * 9,
            b"[" * 1000,
            b'{"inputs": ',
            {},
            {"instances": 1},
            {"instances": [[1, 2]]},
            {"instances": [[1, 2, 3], [1]]},
            {"instances": [["a", "b", "c"]]},
            {"instances": [], "inputs": []},
            {"inputs": 3},
            {"inputs": None},
            {"inputs": {"y": ROWS}},
            {"inputs": {"x": ROWS, "y": ROWS}},
            {"inputs": {"x": {"x": 1}}},
            {"inputs": [[1, 2]]},
            {"inputs": ROWS, "signature_name": "none"},
            {"inputs": ROWS, "signature_name": 3},
        ],
        ids=range(19),
    )
    def test_it_is_refused_in_its_own_form(self, shed: RunningGateway, body: object) -> None:
        status, answer = predict(shed, "scores", body)
        assert status == 400
        assert answer.keys() == {"error"}
        assert isinstance(answer["error"], str)

    def test_columns_of_a_table(self, shed: RunningGateway) -> None:
        for inputs in (3, {}, {"a": 1}, {"a": [1], "b": [1, 2]}):
            status, answer = predict(shed, "sums", {"inputs": inputs})
            assert (status, answer.keys()) == (400, {"error"})

    def test_a_body_beyond_the_limit(self, shed: RunningGateway) -> None:
        path = f"{BASE}/v1/models/scores:predict"
        with closing(http.client.HTTPConnection(urlsplit(shed.url).netloc, timeout=60)) as connection:
            connection.putrequest("POST", path)
            connection.putheader("authorization", f"Bearer {shed.token}")
            connection.putheader("content-length", str(100 << 20))
            connection.endheaders()
            answer = connection.getresponse()
            assert answer.status == 413
            assert isinstance(json.loads(answer.read())["error"], str)

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("POST", "absent:predict", 404),
            ("POST", "scores/versions/7:predict", 404),
            ("POST", "scores:classify", 501),
            ("POST", "scores/versions/1:regress", 501),
            ("GET", "absent", 404),
            ("GET", "scores/versions/7", 404),
            ("GET", "absent/metadata", 404),
        ],
    )
    def test_what_is_not_there(self, shed: RunningGateway, method: str, path: str, status: int) -> None:
        met, answer = ask(shed, method, f"{BASE}/v1/models/{path}", {"instances": ROWS})
        assert (met, answer.keys()) == (status, {"error"})

    def test_a_token_is_needed(self, shed: RunningGateway) -> None:
        assert predict(shed, "scores", {"instances": ROWS})[0] == 200
        status, answer = ask(shed, "POST", f"{BASE}/v1/models/scores:predict", {"instances": ROWS}, token="ts_none")
        assert (status, answer.keys()) == (401, {"error"})


class TestStatus:
    def test_a_client_of_kserve_sees_that_all_is_well(self, shed: RunningGateway) -> None:
        assert ask(shed, "GET", BASE) == (200, {"status": "alive"})
        assert ask(shed, "GET", f"{BASE}/") == (200, {"status": "alive"})
        status, answer = ask(shed, "GET", f"{BASE}/v1/models/scores")
        assert (status, answer["name"], answer["ready"]) == (200, "scores", True)

    def test_the_state_of_each_version(self, shed: RunningGateway) -> None:
        reasons = {ServingState.UNHEALTHY: "It keeps crashing."}
        versions = {
            state.lower(): VersionRoute(
                project=PROJECT, model="states", version=state.lower(), state=state, reason=reasons.get(state, "")
            )
            for state in ServingState
        }
        shed.routes.publish(ModelRoute(project=PROJECT, model="states", default="ready", versions=versions))
        _, answer = ask(shed, "GET", f"{BASE}/v1/models/states")
        assert {each["version"]: each["state"] for each in answer["model_version_status"]} == {
            "ready": "AVAILABLE",
            "sleeping": "AVAILABLE",
            "waking": "AVAILABLE",
            "starting": "LOADING",
            "unhealthy": "END",
        }
        status, answer = ask(shed, "GET", f"{BASE}/v1/models/states/versions/unhealthy")
        error = {"error_code": "UNAVAILABLE", "error_message": "It keeps crashing."}
        assert (status, answer["ready"]) == (200, False)
        assert answer["model_version_status"] == [{"version": "unhealthy", "state": "END", "status": error}]
