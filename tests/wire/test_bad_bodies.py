"""Generated bad bodies for each protocol: refused in its own form, never with a 500, and nothing hangs."""

from __future__ import annotations

import gzip
import http.client
import json
import random
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainshed.testing.processes.gateway import RunningGateway
from trainshed.testing.processes.model_hosts import gateway_with_models

PROJECT = "generated"
MODELS = {"scores": "Scorer", "shouts": "Shouter"}
LENGTH = "inference-header-content-length"
HUGE_BYTES = 100 << 20
BAD = {400, 413}


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """A way to ask a model, a good body of it, and the form of its errors."""

    path: str  #: with the model's name
    body: bytes
    is_error: Callable[[Any], bool]
    headers: Mapping[str, str]


def _google(answer: Any) -> bool:
    error = answer.get("error")
    return isinstance(error, dict) and isinstance(error["message"], str) and error["status"] == "INVALID_ARGUMENT"


def _plain(answer: Any) -> bool:
    return answer.keys() == {"error"} and isinstance(answer["error"], str)


def _mlflow(answer: Any) -> bool:
    return answer.keys() == {"error_code", "message"} and isinstance(answer["message"], str)


ROW = [1.0, 2.0, 0.5]
_JSON = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": ROW}]}).encode()
_HEAD = json.dumps(
    {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "parameters": {"binary_data_size": 12}}]}
).encode()
_FRAME = {"dataframe_split": {"columns": ["a", "b", "c"], "data": [ROW]}}
PROTOCOLS = {
    "ml v1": Protocol(
        path=f"/v1/projects/{PROJECT}/models/%s:predict",
        body=json.dumps({"instances": [ROW]}).encode(),
        is_error=_google,
        headers={},
    ),
    "TensorFlow Serving": Protocol(
        path=f"/tfserving/projects/{PROJECT}/v1/models/%s:predict",
        body=json.dumps({"inputs": [ROW], "signature_name": "serving_default"}).encode(),
        is_error=_plain,
        headers={},
    ),
    "V2": Protocol(path=f"/v1/projects/{PROJECT}/v2/models/%s/infer", body=_JSON, is_error=_plain, headers={}),
    "V2 binary": Protocol(
        path=f"/v1/projects/{PROJECT}/v2/models/%s/infer",
        body=_HEAD + struct.pack("<3f", *ROW),
        is_error=_plain,
        headers={LENGTH: str(len(_HEAD))},
    ),
    "MLflow": Protocol(
        path=f"/mlflow/projects/{PROJECT}/models/%s/invocations",
        body=json.dumps(_FRAME).encode(),
        is_error=_mlflow,
        headers={"content-type": "application/json"},
    ),
}

_leaves = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5)
_values = st.recursive(
    _leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


@pytest.fixture(scope="module")
def shed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with gateway_with_models(tmp_path_factory.mktemp("generated"), MODELS, project=PROJECT) as running:
        yield running


@pytest.fixture(scope="module")
def connection(shed: RunningGateway) -> Iterator[http.client.HTTPConnection]:
    with closing(http.client.HTTPConnection(urlsplit(shed.url).netloc, timeout=60)) as made:
        yield made


@pytest.fixture(params=PROTOCOLS.values(), ids=list(PROTOCOLS), scope="module")
def protocol(request: pytest.FixtureRequest) -> Protocol:
    chosen: Protocol = request.param
    return chosen


Send = Callable[..., int]


@pytest.fixture(scope="module")
def send(shed: RunningGateway, connection: http.client.HTTPConnection, protocol: Protocol) -> Send:
    """Send a body to a model. Returns the status; a refusal must have the protocol's form."""

    def sent(body: bytes, model: str = "scores", headers: Mapping[str, str] = protocol.headers) -> int:
        own = {"authorization": f"Bearer {shed.token}", "content-type": "application/json", **headers}
        connection.request("POST", protocol.path % model, body, own)
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == 200 or answer.status in BAD, (answer.status, content[:500])
        if answer.status != 200:
            assert protocol.is_error(json.loads(content)), content[:500]
        return answer.status

    return sent


def _generated(examples: int) -> Callable[[Any], Any]:
    health = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=health)


def test_the_good_body_is_answered(send: Send, protocol: Protocol) -> None:
    assert send(protocol.body) == 200


def test_a_body_that_is_cut_anywhere(send: Send, protocol: Protocol) -> None:
    for length in range(len(protocol.body)):
        assert send(protocol.body[:length]) == 400, length
    assert send(protocol.body) == 200


def test_any_byte_may_be_another(send: Send, protocol: Protocol) -> None:
    chance = random.Random(5)
    for at in range(len(protocol.body)):
        for model in MODELS:
            send(protocol.body[:at] + bytes([chance.randrange(256)]) + protocol.body[at + 1 :], model)
    assert send(protocol.body) == 200


@_generated(60)
@given(data=st.data())
def test_any_value_in_place_of_any_part(send: Send, protocol: Protocol, data: st.DataObject) -> None:
    """Wrong types, wrong shapes, and lengths that do not fit."""
    length = int(protocol.headers.get(LENGTH, len(protocol.body)))
    document, rest = json.loads(protocol.body[:length]), protocol.body[length:]
    path = data.draw(st.sampled_from(_paths(document)))
    head = json.dumps(_replaced(document, path, data.draw(_values))).encode()
    own = {**protocol.headers, LENGTH: str(len(head))} if rest else protocol.headers
    for model in MODELS:
        send(head + rest, model, own)


def _paths(value: Any) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(), *((key, *path) for key, item in inner for path in _paths(item))]


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = _replaced(value[path[0]], path[1:], new)
    return copy


@pytest.mark.parametrize("length", ["0", "1", "11", "99999", "-1", "", "1e3", "٣", "9" * 400])
def test_a_stale_header(send: Send, protocol: Protocol, length: str) -> None:
    """A length of another request means nothing where no tensor is binary."""
    headers = {**protocol.headers, LENGTH: length.encode().decode("latin-1")}
    assert send(protocol.body, headers=headers) == (400 if protocol.headers.get(LENGTH) else 200)


@pytest.mark.parametrize("packed", [False, True])
def test_a_hundred_megabytes(shed: RunningGateway, protocol: Protocol, send: Send, packed: bool) -> None:
    """They are refused while they come, or when they are unpacked."""
    body = b'{"instances": [' + b"1," * (HUGE_BYTES // 2)
    headers = {"authorization": f"Bearer {shed.token}", "content-type": "application/json", **protocol.headers}
    if packed:
        body, headers = gzip.compress(body, 1), headers | {"content-encoding": "gzip"}
    with closing(http.client.HTTPConnection(urlsplit(shed.url).netloc, timeout=60)) as own:
        try:
            own.request("POST", protocol.path % "scores", body, headers)
        except (BrokenPipeError, ConnectionResetError):  # the server stopped reading
            pass
        else:
            answer = own.getresponse()
            assert answer.status == 413
            assert isinstance(json.loads(answer.read()), dict)
    assert send(protocol.body) == 200
