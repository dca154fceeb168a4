"""The Open Inference Protocol V2 as tritonclient and KServe's client send it: real hosts, models of a few lines."""

from __future__ import annotations

import gzip
import http.client
import json
import struct
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from trainshed.domain.models.hosting import ServingState
from trainshed.gateway.routes import ModelRoute, VersionRoute
from trainshed.testing.processes.gateway import RunningGateway
from trainshed.testing.processes.model_hosts import gateway_with_models

PROJECT = "inferred"
BASE = f"/v1/projects/{PROJECT}/v2"
ROWS = [[1.0, 2.0, 0.5], [0.0, 0.0, 1.0]]
SCORES = [[3.5, 2.0], [-3.0, 4.0]]
LENGTH = "inference-header-content-length"
DATATYPES = (
    *(("BOOL", "bool"), ("UINT8", "uint8"), ("UINT16", "uint16"), ("UINT32", "uint32"), ("UINT64", "uint64")),
    *(("INT8", "int8"), ("INT16", "int16"), ("INT32", "int32"), ("INT64", "int64")),
    *(("FP32", "float32"), ("FP64", "float64")),
)


@pytest.fixture(scope="module")
def shed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    classes = {"scores": "Scorer", "shouts": "Shouter", "sums": "Weighing", "mirror": "Mirror"}
    with gateway_with_models(tmp_path_factory.mktemp("inferred"), classes, project=PROJECT) as running:
        yield running


@pytest.fixture
def client(shed: RunningGateway) -> Iterator[Any]:
    with triton.InferenceServerClient(f"{urlsplit(shed.url).netloc}/v1/projects/{PROJECT}") as made:
        yield made


@pytest.fixture
def headers(shed: RunningGateway) -> dict[str, str]:
    return {"Authorization": f"Bearer {shed.token}"}


def tensor(name: str, array: Any, datatype: str, *, binary: bool = True) -> Any:
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


class TestTritonClient:
    def test_health_and_metadata(self, client: Any, headers: dict[str, str]) -> None:
        assert client.is_server_live(headers=headers)
        assert client.is_server_ready(headers=headers)
        assert client.is_model_ready("scores", headers=headers)
        assert client.is_model_ready("scores", "v1", headers=headers)
        assert not client.is_model_ready("absent", headers=headers)
        assert client.get_server_metadata(headers=headers)["extensions"] == ["binary_tensor_data"]

    @pytest.mark.parametrize("version", ["", "v1"])
    @pytest.mark.parametrize("binary", [True, False])
    def test_infer(self, client: Any, headers: dict[str, str], version: str, binary: bool) -> None:
        """The first request goes by the route, the others by the fast path."""
        x = tensor("x", np.array(ROWS, np.float32), "FP32", binary=binary)
        for number in range(3):
            outputs = [triton.InferRequestedOutput("scores", binary_data=binary)]
            done = client.infer("scores", [x], version, outputs=outputs, request_id=f"r{number}", headers=dict(headers))
            assert done.as_numpy("scores").tolist() == SCORES
            assert done.as_numpy("label") is None
            response = done.get_response()
            assert (response["id"], response["model_name"], response["model_version"]) == (f"r{number}", "scores", "v1")
        everything = client.infer("scores", [x], version, headers=dict(headers))
        assert everything.as_numpy("label").tolist() == [0, 1]
        assert everything.as_numpy("scores").dtype == np.float32

    def test_a_length_of_another_request_is_ignored(self, client: Any, headers: dict[str, str]) -> None:
        """The client writes it into the caller's own headers, and does not take it out for a request in JSON."""
        array = np.array(ROWS, np.float32)
        for binary in (True, False, True, False):
            x = tensor("x", array, "FP32", binary=binary)
            outputs = [triton.InferRequestedOutput("scores", binary_data=binary)]
            done = client.infer("scores", [x], outputs=outputs, headers=headers)
            assert done.as_numpy("scores").tolist() == SCORES
        assert any(name.lower() == LENGTH for name in headers)

    @pytest.mark.parametrize("algorithm", ["gzip", None])
    def test_compression(self, client: Any, headers: dict[str, str], algorithm: str | None) -> None:
        x = tensor("x", np.array(ROWS * 100, np.float32), "FP32")
        done = client.infer("scores", [x], headers=headers, request_compression_algorithm=algorithm)
        assert done.as_numpy("scores").tolist() == SCORES * 100

    @pytest.mark.parametrize("binary", [True, False])
    def test_strings(self, client: Any, headers: dict[str, str], binary: bool) -> None:
        text = tensor("text", np.array([b"one", b"", b"zwei"], object), "BYTES", binary=binary)
        outputs = [triton.InferRequestedOutput("loud", binary_data=binary)]
        done = client.infer("shouts", [text], outputs=outputs, headers=headers)
        loud = done.as_numpy("loud").tolist()  # of JSON the client makes no bytes
        assert loud == ([b"ONE", b"", b"ZWEI"] if binary else ["ONE", "", "ZWEI"])

    @pytest.mark.parametrize(
        ("datatype", "dtype", "binary"),
        [
            *((datatype, dtype, binary) for datatype, dtype in DATATYPES for binary in (True, False)),
            ("FP16", "float16", True),  # the client has no JSON for it
        ],
    )
    def test_every_datatype(
        self, client: Any, headers: dict[str, str], datatype: str, dtype: str, binary: bool
    ) -> None:
        info = np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else None
        values = [[info.min, info.max, 1]] if info else [[0, 1, 1]] if dtype == "bool" else [[-1.5, 0.25, 3]]
        x = tensor(dtype, np.array(values, dtype), datatype, binary=binary)
        outputs = [triton.InferRequestedOutput(dtype, binary_data=binary)]
        parameters = {"signature_name": dtype}
        done = client.infer("mirror", [x], outputs=outputs, headers=headers, parameters=parameters)
        assert (done.as_numpy(dtype).dtype, done.as_numpy(dtype).tolist()) == (np.dtype(dtype), values)
        assert done.get_output(dtype)["datatype"] == datatype

    def test_a_table_by_any_name(self, client: Any, headers: dict[str, str]) -> None:
        for name in ("input-0", "predict", "x"):
            x = tensor(name, np.array([[1, 2, 3], [3, 4, 5]], np.float64), "FP64")
            assert client.infer("sums", [x], headers=headers).as_numpy("predict").tolist() == [1.5, 4.5]
            outputs = [triton.InferRequestedOutput("output-0")]
            named = client.infer("sums", [x], outputs=outputs, headers=headers)
            assert named.as_numpy("output-0").tolist() == [1.5, 4.5]

    def test_the_only_input_may_have_another_name_and_another_number_type(
        self, client: Any, headers: dict[str, str]
    ) -> None:
        x = tensor("input-0", np.array([[1, 2, 0]], np.int64), "INT64")
        assert client.infer("scores", [x], headers=headers).as_numpy("scores").tolist() == [[5.0, 0.0]]

    def test_errors(self, client: Any, headers: dict[str, str]) -> None:
        x = tensor("x", np.zeros((1, 4), np.float32), "FP32")
        with pytest.raises(InferenceServerException, match=r"takes shape \[any, 3\], but \[1, 4\] came") as caught:
            client.infer("scores", [x], headers=headers)
        assert caught.value.status() == "400"
        with pytest.raises(InferenceServerException, match="no model absent"):
            client.infer("absent", [x], headers=headers)
        with pytest.raises(InferenceServerException, match="token") as caught:
            client.infer("scores", [x])
        assert caught.value.status() == "401"


def send(
    shed: RunningGateway, body: bytes, headers: Mapping[str, str] | None = None, model: str = "scores"
) -> tuple[int, Mapping[str, str], bytes]:
    connection = http.client.HTTPConnection(urlsplit(shed.url).netloc, timeout=60)
    with closing(connection):
        own = {"authorization": f"Bearer {shed.token}", **(headers or {})}
        connection.request("POST", f"{BASE}/models/{model}/infer", body, own)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


def head(**fields: Any) -> dict[str, Any]:
    return {"name": "x", "datatype": "FP32", "shape": [1, 3], **fields}


def binary(fields: Mapping[str, Any], data: bytes, **more: Any) -> tuple[bytes, dict[str, str]]:
    """A body with one binary input, and its headers."""
    document = json.dumps({"inputs": [{**fields, "parameters": {"binary_data_size": len(data)}}], **more}).encode()
    return document + data, {LENGTH: str(len(document))}


ROW = struct.pack("<3f", 1, 2, 0)
GOOD, GOOD_HEADERS = binary(head(), ROW)
CUT, _ = binary(head(), ROW[:-1])


def inputs(*items: Any, **more: Any) -> bytes:
    return json.dumps({"inputs": list(items), **more}).encode()


BAD: list[tuple[str, bytes, dict[str, str]]] = [
    ("empty", b"", {}),
    ("no JSON", b"{", {}),
    ("no UTF-8", b"\xff" * 40, {}),
    ("deep", b"[" * 5000, {}),
    ("a list", b"[]", {}),
    ("no inputs", b"{}", {}),
    ("inputs of no kind", b'{"inputs": 3}', {}),
    ("an input of no kind", inputs(3), {}),
    ("no name", inputs({"datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}), {}),
    ("no data", inputs(head()), {}),
    ("data of no kind", inputs(head(data={"a": 1})), {}),
    ("words", inputs(head(data=["a", "b", "c"])), {}),
    ("too few", inputs(head(data=[1, 2])), {}),
    ("uneven", inputs(head(data=[[1, 2], [3]])), {}),
    ("too large a number", inputs(head(data=[1e300, 0, 0])), {}),
    ("unknown datatype", inputs(head(datatype="FP31", data=[1, 2, 3])), {}),
    ("datatype of no kind", inputs(head(datatype=[], data=[1, 2, 3])), {}),
    ("strings for numbers", inputs(head(datatype="BYTES", data=["a", "b", "c"])), {}),
    ("negative shape", inputs(head(shape=[-1, 3], data=[1, 2, 3])), {}),
    ("shape of no kind", inputs(head(shape="13", data=[1, 2, 3])), {}),
    ("huge shape", inputs(head(shape=[0, 1 << 62], data=[])), {}),
    ("many dimensions", inputs(head(shape=[1] * 100, data=[1])), {}),
    ("wrong shape", inputs(head(shape=[3, 1], data=[1, 2, 3])), {}),
    ("two of a name", inputs(head(data=[1, 2, 3]), head(data=[1, 2, 3])), {}),
    ("one too many", inputs(head(data=[1, 2, 3]), head(name="y", data=[1, 2, 3])), {}),
    ("unknown output", inputs(head(data=[1, 2, 3]), outputs=[{"name": "y"}]), {}),
    ("output of no kind", inputs(head(data=[1, 2, 3]), outputs=[3]), {}),
    ("output without name", inputs(head(data=[1, 2, 3]), outputs=[{}]), {}),
    ("id of no kind", inputs(head(data=[1, 2, 3]), id=3), {}),
    ("unknown signature", inputs(head(data=[1, 2, 3]), parameters={"signature_name": "y"}), {}),
    ("binary without its header", GOOD, {}),
    ("header too short", GOOD, {LENGTH: "5"}),
    ("header too long", GOOD, {LENGTH: "100000"}),
    ("header is the whole", GOOD, {LENGTH: str(len(GOOD))}),
    ("header of no kind", GOOD, {LENGTH: "many"}),
    ("header without end", GOOD, {LENGTH: "9" * 400}),
    ("cut", GOOD[:-1], GOOD_HEADERS),
    ("cut before the data", GOOD[:-12], GOOD_HEADERS),
    ("bytes left", GOOD + b"\0", GOOD_HEADERS),
    ("no whole number of elements", *binary(head(), ROW[:-1])),
    ("fewer elements than the shape", *binary(head(), ROW[:-4])),
    ("data twice", *binary(head(data=[1, 2, 3]), ROW)),
    ("BOOL that is none", *binary(head(datatype="BOOL"), b"\0\1\2")),
    ("BYTES cut in a length", *binary(head(datatype="BYTES"), b"\1\0")),
    ("BYTES cut in an element", *binary(head(datatype="BYTES"), b"\xff\xff\xff\xffab")),
    ("size of no kind", inputs(head(parameters={"binary_data_size": "12"})), {}),
    ("gzip that is none", GOOD, {**GOOD_HEADERS, "content-encoding": "gzip"}),
    ("gzip that is cut", gzip.compress(GOOD)[:-9], {**GOOD_HEADERS, "content-encoding": "gzip"}),
]


class TestBadInput:
    @pytest.mark.parametrize(("body", "headers"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
    def test_it_is_refused_in_its_own_form(self, shed: RunningGateway, body: bytes, headers: dict[str, str]) -> None:
        for _ in range(2):  # by the route, and by the fast path if nothing else is in the way
            status, _, answer = send(shed, body, headers)
            assert status == 400, answer
            error = json.loads(answer)
            assert error.keys() == {"error"}
            assert isinstance(error["error"], str)
        assert send(shed, GOOD, GOOD_HEADERS)[0] == 200

    def test_a_body_that_never_comes(self, shed: RunningGateway) -> None:
        with closing(http.client.HTTPConnection(urlsplit(shed.url).netloc, timeout=60)) as connection:
            connection.putrequest("POST", f"{BASE}/models/scores/infer")
            connection.putheader("authorization", f"Bearer {shed.token}")
            connection.putheader("content-length", str(100 << 20))
            connection.endheaders()
            answer = connection.getresponse()
            assert answer.status == 413
            assert isinstance(json.loads(answer.read())["error"], str)

    def test_a_client_that_hangs_up_within_its_body(self, shed: RunningGateway) -> None:
        for _ in range(3):
            with closing(http.client.HTTPConnection(urlsplit(shed.url).netloc, timeout=60)) as connection:
                connection.putrequest("POST", f"{BASE}/models/scores/infer")
                connection.putheader("authorization", f"Bearer {shed.token}")
                connection.putheader("content-length", "1000")
                connection.endheaders(GOOD)
        assert send(shed, GOOD, GOOD_HEADERS)[0] == 200


class TestAnswers:
    def test_binary_and_json_outputs_in_one_answer(self, shed: RunningGateway) -> None:
        outputs = [{"name": "label"}, {"name": "scores", "parameters": {"binary_data": True}}]
        status, headers, body = send(shed, *binary(head(), ROW, outputs=outputs))
        length = int(headers[LENGTH])
        label, scores = json.loads(body[:length])["outputs"]
        assert (status, headers["content-type"]) == (200, "application/octet-stream")
        assert label == {"name": "label", "datatype": "INT64", "shape": [1], "data": [0]}
        assert scores["parameters"] == {"binary_data_size": 8}
        assert struct.unpack("<2f", body[length:]) == (5.0, 0.0)

    def test_no_rows(self, shed: RunningGateway) -> None:
        status, _, body = send(shed, inputs(head(shape=[0, 3], data=[])))
        assert status == 200
        assert [each["shape"] for each in json.loads(body)["outputs"]] == [[0], [0, 2]]

    def test_bfloat16(self, shed: RunningGateway) -> None:
        body, headers = binary(head(datatype="BF16"), struct.pack("<3H", 0x3F80, 0x4000, 0))
        assert json.loads(send(shed, body, headers)[2])["outputs"][1]["data"] == [5.0, 0.0]

    def test_a_model_that_is_not_ready(self, shed: RunningGateway) -> None:
        versions = {
            state.lower(): VersionRoute(project=PROJECT, model="states", version=state.lower(), state=state)
            for state in ServingState
        }
        shed.routes.publish(ModelRoute(project=PROJECT, model="states", default="ready", versions=versions))
        met = {}
        for state in versions:
            with closing(http.client.HTTPConnection(urlsplit(shed.url).netloc, timeout=60)) as connection:
                path = f"{BASE}/models/states/versions/{state}/ready"
                connection.request("GET", path, headers={"authorization": f"Bearer {shed.token}"})
                met[state] = connection.getresponse().status
        assert met == {"ready": 200, "sleeping": 200, "waking": 200, "starting": 503, "unhealthy": 503}
