"""ONNX files: what OpenVINO and ONNX Runtime make of them, and versions of them on a server."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from trainshed.testing.cache import runtime_python
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.deployer import Deployer
from trainshed.testing.workloads.onnx_files import MODELS, WEIGHTS, write_onnx

ROOT = Path(__file__).resolve().parents[2]
ROW = [0.5, -1.0, 2.0]
SCORES = [sum(value * weights[at] for value, weights in zip(ROW, WEIGHTS, strict=True)) for at in (0, 1)]

LOADER = """
import json, sys
from pathlib import Path
from trainshed.serving.codec.predictors import predict, predictor
from trainshed.serving.errors import LoaderError
from trainshed.serving.host import parity
from trainshed.serving.loaders import load
from trainshed.serving.spec import ServingSpec

root, kept = Path(sys.argv[1]), Path(sys.argv[1]) / "kept.npz"

def answers(name, loader, body):
    try:
        model = load(ServingSpec(model_dir=root / name, loader=loader, threads=1))
    except LoaderError as exc:
        return str(exc)
    if loader == "onnxruntime":
        parity.write(model, parity.sample_inputs(model, root / name), kept)
        compared = None
    else:
        compared = parity.compare(model, parity.read(kept)).as_json()
    status, answer = predict(predictor(model), json.dumps(body).encode())
    return {"status": status, "answer": json.loads(answer), "parity": compared, "detail": model.detail}

asked = json.loads(sys.argv[2])
loaders = ("onnxruntime", "openvino_onnx")
print(json.dumps({name: {each: answers(name, each, body) for each in loaders} for name, body in asked.items()}))
print(sorted(name for name in ("torch", "tensorflow", "onnx") if name in sys.modules))
"""

DAMAGED = {"empty": b"", "cut": MODELS["dense"][:100], "other": b"\x89PNG\r\n\x1a\n" * 20}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("onnx")
    for name in MODELS:
        write_onnx(root, name)
    for name, content in DAMAGED.items():
        write_onnx(root, name, content)
    asked: dict[str, Any] = {name: {"instances": [ROW]} for name in (*MODELS, *DAMAGED)}
    asked |= {"fixed": {"instances": [ROW, ROW]}, "words": {"instances": ["ab"]}}
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command: list[str | Path] = [runtime_python("2.21"), "-c", LOADER, root, json.dumps(asked)]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    answers, imported = done.stdout.splitlines()
    assert imported == "[]"
    result: dict[str, Any] = json.loads(answers)
    return result


def test_openvino_answers_as_onnx_runtime(found: dict[str, Any]) -> None:
    ours, theirs = found["dense"]["openvino_onnx"], found["dense"]["onnxruntime"]
    assert (ours["status"], ours["answer"]) == (200, theirs["answer"])
    assert ours["answer"] == {"predictions": [{"classes": int(SCORES[1] > SCORES[0]), "scores": SCORES}]}
    assert ours["parity"]["within"]
    assert "answered as by ONNX Runtime" in ours["parity"]["message"]
    assert (ours["detail"].split()[0], theirs["detail"][:12]) == ("OpenVINO", "ONNX Runtime")


def test_a_model_of_so_many_rows(found: dict[str, Any]) -> None:
    for loader in ("openvino_onnx", "onnxruntime"):
        assert found["fixed"][loader]["answer"] == {"predictions": [{"scores": SCORES}, {"scores": SCORES}]}
    assert found["fixed"]["openvino_onnx"]["parity"]["within"]


def test_onnx_runtime_serves_what_openvino_lacks(found: dict[str, Any]) -> None:
    assert "OpenVINO does not do strings" in found["words"]["openvino_onnx"]
    assert found["words"]["onnxruntime"]["answer"] == {"predictions": [{"twice": "abab"}]}
    assert "OpenVINO can't run this ONNX model: " in found["steps"]["openvino_onnx"]
    assert "Binarizer" in found["steps"]["openvino_onnx"]
    assert found["steps"]["onnxruntime"]["answer"] == {"predictions": [{"y": [1.0, 0.0, 1.0]}]}


@pytest.mark.parametrize("loader", ["openvino_onnx", "onnxruntime"])
def test_what_nobody_can_run_says_why(found: dict[str, Any], loader: str) -> None:
    assert "Nothing" in found["strange"][loader]  # the operator
    assert 'Output "all" is a sequence.' in found["parts"][loader]
    for name in DAMAGED:
        assert found[name][loader].startswith("Failed to load model: model.onnx is damaged, or no ONNX file: ")


@pytest.fixture(scope="module")
def deployer(framework_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Deployer:
    return Deployer(framework_server, "e2e-onnx", tmp_path_factory.mktemp("scratch"))


def test_versions_are_checked_against_onnx_runtime(deployer: Deployer, tmp_path: Path) -> None:
    details = deployer.deploy("dense", deployer.upload_folder(write_onnx(tmp_path, "dense"), "dense"), framework="ONNX")
    assert (details["loader"], details["version"]["framework"]) == ("openvino_onnx", "ONNX")
    assert details["detail"].startswith("OpenVINO ")
    assert (details["parity"]["reference"], details["parity"]["within"]) == ("ONNX Runtime", True)
    assert details["signatures"]["serving_default"]["inputs"] == {"x": {"dtype": "float32", "shape": [-1, 3]}}
    assert details["sample"]["instances"]
    assert deployer.predict("dense", ROW) == [{"classes": int(SCORES[1] > SCORES[0]), "scores": SCORES}]

    details = deployer.deploy("steps", deployer.upload_folder(write_onnx(tmp_path, "steps"), "steps"))
    assert (details["loader"], details["parity"]["within"]) == ("onnxruntime", False)
    assert "Binarizer" in details["parity"]["message"]
    assert deployer.predict("steps", ROW) == [{"y": [1.0, 0.0, 1.0]}]

    uri = deployer.upload_folder(write_onnx(tmp_path, "cut", DAMAGED["cut"]), "cut")
    message = deployer.refused(deployer.create("cut", uri))
    assert "model.onnx is damaged, or no ONNX file: A protocol buffer's field is cut short." in message
