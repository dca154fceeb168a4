"""Clients of other model servers, each with all that it can ask, against a version of a real model."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from trainshed.runtimes.uv import find_uv
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.deployer import Deployer
from trainshed.testing.workloads.onnx_files import WEIGHTS, write_onnx

ROWS = [[0.5, -1.0, 2.0], [3.0, 0.25, -4.0]]
SCORES = [
    [sum(value * weights[at] for value, weights in zip(row, WEIGHTS, strict=True)) for at in (0, 1)] for row in ROWS
]
CLASSES = [int(right > left) for left, right in SCORES]
PROJECT = "clients"

#: Calls KServe's client with all of its methods.
KSERVE = """
import asyncio, json, sys
import httpx
from kserve import InferenceRESTClient, InferInput, InferRequest
from kserve.inference_client import RESTConfig
import numpy as np

root, token, rows = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
headers, found = {"Authorization": f"Bearer {token}"}, {}
bases = {"v1": f"{root}/tfserving/projects/clients", "v2": f"{root}/v1/projects/clients"}

async def main():
    for protocol, base in bases.items():
        client = InferenceRESTClient(RESTConfig(protocol=protocol))
        found[f"{protocol} live"] = await client.is_server_live(base, headers=dict(headers))
        if protocol == "v2":
            found["v2 server ready"] = await client.is_server_ready(base, headers=dict(headers))
        found[f"{protocol} ready"] = await client.is_model_ready(base, "m", headers=dict(headers))
    client = InferenceRESTClient(RESTConfig(protocol="v1"))
    found["v1"] = await client.infer(bases["v1"], {"instances": rows}, model_name="m", headers=dict(headers))
    try:
        await client.explain(bases["v1"], "m", {"instances": rows}, headers=dict(headers))
    except httpx.HTTPStatusError as exc:
        found["explain"] = exc.response.status_code
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    for binary in (False, True):
        x = InferInput("x", [len(rows), 3], "FP32")
        x.set_data_from_numpy(np.array(rows, np.float32), binary_data=binary)
        request = InferRequest("m", [x])
        answer = await client.infer(bases["v2"], request, model_name="m", headers=dict(headers))
        found[f"v2 {binary}"] = {output.name: output.as_numpy().tolist() for output in answer.outputs}

asyncio.run(main())
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def deployer(framework_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Deployer:
    scratch = tmp_path_factory.mktemp("clients")
    made = Deployer(framework_server, PROJECT, scratch)
    made.deploy("v1", made.upload_folder(write_onnx(scratch, "dense"), "dense"))
    return made


@pytest.fixture
def headers(deployer: Deployer) -> dict[str, str]:
    return {"Authorization": f"Bearer {deployer.server.token}"}


@pytest.fixture
def client(deployer: Deployer) -> Iterator[Any]:
    with triton.InferenceServerClient(f"{_host(deployer)}/v1/projects/{PROJECT}") as made:
        yield made


def _host(deployer: Deployer) -> str:
    return deployer.server.url.removeprefix("http://")


def test_tritonclient_is_told_what_there_is(client: Any, headers: dict[str, str]) -> None:
    assert client.is_server_live(headers=headers)
    assert client.is_server_ready(headers=headers)
    assert client.is_model_ready("m", headers=headers)
    assert client.get_server_metadata(headers=headers)["name"] == "trainshed"
    metadata = client.get_model_metadata("m", headers=headers)
    assert metadata == client.get_model_metadata("m", "v1", headers=headers)
    assert (metadata["name"], metadata["versions"]) == ("m", ["v1"])
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
    assert metadata["outputs"] == [
        {"name": "classes", "datatype": "INT64", "shape": [-1]},
        {"name": "scores", "datatype": "FP32", "shape": [-1, 2]},
    ]
    config = client.get_model_config("m", headers=headers)
    assert config["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 3]}]
    assert [output["data_type"] for output in config["output"]] == ["TYPE_INT64", "TYPE_FP32"]


@pytest.mark.parametrize("binary", [True, False])
def test_tritonclient_infers(client: Any, headers: dict[str, str], binary: bool) -> None:
    x = triton.InferInput("x", [2, 3], "FP32")
    x.set_data_from_numpy(np.array(ROWS, np.float32), binary_data=binary)
    outputs = [triton.InferRequestedOutput(name, binary_data=binary) for name in ("scores", "classes")]
    for done in (
        client.infer("m", [x], outputs=outputs, headers=dict(headers)),
        client.async_infer("m", [x], outputs=outputs, headers=dict(headers)).get_result(),
    ):
        assert done.as_numpy("scores").tolist() == SCORES
        assert done.as_numpy("classes").tolist() == CLASSES


def test_what_triton_has_besides_is_refused_with_a_sentence(client: Any, headers: dict[str, str]) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: client.get_inference_statistics("m", headers=headers),
        lambda: client.get_inference_statistics("m", "v1", headers=headers),
        lambda: client.get_model_repository_index(headers=headers),
        lambda: client.load_model("m", headers=headers),
        lambda: client.unload_model("m", headers=headers),
        lambda: client.get_system_shared_memory_status(headers=headers),
        lambda: client.get_cuda_shared_memory_status(headers=headers),
        lambda: client.get_trace_settings(headers=headers),
        lambda: client.get_log_settings(headers=headers),
    ]
    for call in calls:
        with pytest.raises(InferenceServerException, match="Its metrics are at /metrics") as caught:
            call()
        assert caught.value.status() == "501"


@pytest.mark.parametrize("version", ["", "/versions/v1", "/versions/1"])
def test_requests_in_the_words_of_tensorflow_serving(deployer: Deployer, headers: dict[str, str], version: str) -> None:
    url = f"{deployer.server.url}/tfserving/projects/{PROJECT}/v1/models/m{version}"
    status = requests.get(url, headers=headers, timeout=60).json()
    assert [each["state"] for each in status["model_version_status"]] == ["AVAILABLE"]
    metadata = requests.get(f"{url}/metadata", headers=headers, timeout=60).json()
    assert (metadata["model_spec"]["name"], metadata["model_spec"]["version"]) == ("m", "v1")
    signature = metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["inputs"]["x"]["dtype"] == "DT_FLOAT"
    assert [int(size["size"]) for size in signature["inputs"]["x"]["tensor_shape"]["dim"]] == [-1, 3]
    rows = requests.post(f"{url}:predict", json={"instances": ROWS}, headers=headers, timeout=60).json()
    assert rows == {"predictions": [{"classes": c, "scores": s} for c, s in zip(CLASSES, SCORES, strict=True)]}
    columns = requests.post(f"{url}:predict", json={"inputs": {"x": ROWS}}, headers=headers, timeout=60).json()
    assert columns == {"outputs": {"classes": CLASSES, "scores": SCORES}}


def _environment(folder: Path, *packages: str) -> Path:
    """The interpreter of an environment with these packages."""
    uv = str(find_uv())
    subprocess.run([uv, "venv", "--quiet", "--python", "3.11", str(folder)], check=True, timeout=120)
    python = folder / "bin" / "python"
    subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *packages], check=True, timeout=600)
    return python


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_client_of_kserve(deployer: Deployer, tmp_path: Path) -> None:
    python = _environment(tmp_path / "kserve", "kserve==0.21.0")
    command: list[str | Path] = [python, "-W", "ignore", "-c", KSERVE, deployer.server.url, deployer.server.token]
    done = subprocess.run([*command, json.dumps(ROWS)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [{"classes": c, "scores": s} for c, s in zip(CLASSES, SCORES, strict=True)]
    outputs = {"classes": CLASSES, "scores": SCORES}
    yes = dict.fromkeys(("v1 live", "v1 ready", "v2 live", "v2 server ready", "v2 ready"), True)
    answers = {"v1": {"predictions": rows}, "v2 False": outputs, "v2 True": outputs}
    assert json.loads(done.stdout.splitlines()[-1]) == {**yes, **answers, "explain": 405}


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("binary", [False, True])
def test_the_client_of_mlserver(deployer: Deployer, tmp_path: Path, binary: bool) -> None:
    python = _environment(tmp_path / "mlserver", "mlserver==1.7.1")
    lines, answers = tmp_path / "requests", tmp_path / "answers"
    tensor = {"name": "x", "shape": [2, 3], "datatype": "FP32", "data": ROWS}
    lines.write_text("".join(f"{json.dumps({'inputs': [tensor], 'id': str(number)})}\n" for number in range(5)))
    options = ["--url", f"{_host(deployer)}/v1/projects/{PROJECT}", "--model-name", "m", "--workers", "2"]
    options += ["-H", f"Authorization:Bearer {deployer.server.token}", *(["--binary-data"] if binary else [])]
    command: list[str | Path] = [python.with_name("mlserver"), "infer", "-i", lines, "-o", answers]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=300, env={**os.environ})
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line) for line in answers.read_text().splitlines()]
    assert sorted(each["id"] for each in found) == [str(number) for number in range(5)]
    for each in found:
        outputs = {output["name"]: output["data"] for output in each["outputs"]}
        assert outputs["classes"] == CLASSES
        assert outputs["scores"] == [value for row in SCORES for value in row]
