"""Explanations through the whole server: versions that are created with a method, and asked why."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.workloads.deployer import Deployer

MAKER = """
import pathlib, sys
import joblib, numpy as np, tensorflow as tf
from sklearn.linear_model import LinearRegression

class Dense(tf.Module):
    def __init__(self):
        self.weights = tf.Variable([[1.0, -1.0], [2.0, 0.5], [-3.0, 4.0]])

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def score(self, x):
        return {"scores": x @ self.weights}

folder = pathlib.Path(sys.argv[1])
dense = Dense()
tf.saved_model.save(dense, str(folder / "dense"), signatures=dense.score)
rows = np.random.RandomState(0).rand(60, 3)
(folder / "linear").mkdir()
joblib.dump(LinearRegression().fit(rows, rows @ [1.0, 2.0, -3.0]), folder / "linear" / "model.joblib")
"""

GRADIENTS = {"integratedGradientsAttribution": {"numIntegralSteps": 20}}
SHAPLEY = {"sampledShapleyAttribution": {"numPaths": 5}}


@pytest.fixture(scope="module")
def exported(runtime_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    subprocess.run([runtime_python, "-c", MAKER, folder], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def deployer(framework_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Deployer:
    return Deployer(framework_server, "e2e-explanations", tmp_path_factory.mktemp("scratch"))


def why(deployer: Deployer, version: str, instance: Any) -> dict[str, Any]:
    """The explanation of one instance."""
    target = f"{deployer.path}/versions/{version}:explain"
    answer: dict[str, Any] = deployer.server.call("POST", target, {"instances": [instance]})
    [explanation] = answer["explanations"]
    [told] = explanation["attributions_by_label"]
    assert abs(told["example_score"] - told["baseline_score"] - sum(sum(v) for v in told["attributions"].values())) <= (
        told["approx_error"] + 1e-12
    )
    return dict(told)


def test_gradients_come_from_tensorflow_and_shapley_values_from_any_loader(deployer: Deployer, exported: Path) -> None:
    uri = deployer.upload_folder(exported / "dense", "dense")
    assert deployer.deploy("plain", uri)["loader"] == "openvino"
    assert deployer.deploy("gradients", uri, explanationConfig=GRADIENTS)["loader"] == "tensorflow"
    assert deployer.deploy("shapley", uri, explanationConfig=SHAPLEY)["loader"] == "openvino"
    for version in ("gradients", "shapley"):
        told = why(deployer, version, [1, 2, 0])
        assert told["label_index"] == 0
        assert told["attributions"]["x"] == pytest.approx([1, 4, 0], abs=1e-5)
    ask = Caller(deployer.server.url)
    target = f"{deployer.path}/versions/plain:explain"
    status, body = ask("POST", target, token=deployer.server.token, body={"instances": [[1, 2, 0]]})
    assert status == 400
    assert "without an explanationConfig" in body["error"]["message"]


def test_a_table_is_explained(deployer: Deployer, exported: Path) -> None:
    uri = deployer.upload_folder(exported / "linear", "linear")
    deployer.deploy("linear", uri, framework="SCIKIT_LEARN", explanationConfig=SHAPLEY)
    assert why(deployer, "linear", [1, 1, 1])["attributions"]["inputs"] == pytest.approx([1, 2, -3])
