"""Explanations through the whole server: versions that are created with a method, and asked why."""

from __future__ import annotations

from typing import Any

import pytest

from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.workloads.deployer import Deployer
from trainshed.testing.workloads.saved_models import saved_models

GRADIENTS = {"integratedGradientsAttribution": {"numIntegralSteps": 20}}
SHAPLEY = {"sampledShapleyAttribution": {"numPaths": 5}}


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


def test_gradients_come_from_tensorflow_and_shapley_values_from_any_loader(deployer: Deployer) -> None:
    uri = deployer.upload_folder(saved_models() / "plain", "dense")
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


def test_a_table_is_explained(deployer: Deployer) -> None:
    uri = deployer.upload_folder(saved_models() / "linear", "linear")
    deployer.deploy("linear", uri, framework="SCIKIT_LEARN", explanationConfig=SHAPLEY)
    assert why(deployer, "linear", [1, 1, 1])["attributions"]["inputs"] == pytest.approx([1, 2, -3])
