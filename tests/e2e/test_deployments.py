"""Versions of real SavedModels: created, checked against TensorFlow, asked, put to sleep and deleted."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from trainshed.testing.cache import link_runtimes
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.deployer import Deployer
from trainshed.testing.workloads.saved_models import saved_models


@pytest.fixture(scope="module")
def exported() -> Path:
    """`dense`, which OpenVINO can serve, and `words`, which it can not."""
    return saved_models()


@pytest.fixture(scope="module")
def deployer(framework_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Deployer:
    return Deployer(framework_server, "e2e-deployments", tmp_path_factory.mktemp("scratch"))


@pytest.fixture
def sleepy_server(tmp_path: Path) -> Iterator[RunningServer]:
    """One whose versions sleep soon."""
    running = RunningServer(link_runtimes(tmp_path / "home"), {"sleep_after_s": 1}).start()
    yield running
    assert running.stop() == 0


def test_a_saved_model_is_served_by_openvino_as_by_tensorflow(deployer: Deployer, exported: Path) -> None:
    uri = deployer.upload_folder(exported / "dense", "dense")
    details = deployer.deploy("dense", uri, framework="TENSORFLOW", runtimeVersion="2.21")
    assert details["loader"] == "openvino"
    assert details["parity"]["within"]
    assert details["version"]["isDefault"]
    [answer] = deployer.predict("", [1.0, 0.0, 0.0])
    assert answer == {"classes": 0, "scores": [1.0, -1.0]}
    again = deployer.deploy("again", uri)
    assert again["parity"] == details["parity"]
    assert again["files"] == details["files"]
    assert deployer.predict("again", [1.0, 0.0, 0.0]) == [answer]


def test_an_ordinary_network_with_convolutions_is_batched_unless_it_is_to_be_exact(
    deployer: Deployer, exported: Path
) -> None:
    uri = deployer.upload_folder(exported / "cnn", "cnn")
    details = deployer.deploy("cnn", uri)
    assert details["loader"] == "openvino"
    assert details["batching"], details["invariance"]
    invariance = details["invariance"]
    assert invariance["rows"] == 65
    assert 0 <= invariance["difference"] < 1e-5
    assert invariance["message"].startswith("Requests are batched: 65 rows")
    exact = deployer.deploy("cnn_exact", uri, servingOptions={"batching": "EXACT"})
    assert exact["version"]["servingOptions"] == {"batching": "EXACT"}
    assert exact["batching"] == (exact["invariance"]["difference"] == 0)
    single = deployer.deploy("cnn_single", uri, servingOptions={"batching": "OFF"})
    assert not single["batching"]
    assert single["invariance"]["message"] == "Requests are not batched: the version asks for that."


def test_bfloat16_is_measured_or_refused_and_is_nothing_for_other_loaders(deployer: Deployer, exported: Path) -> None:
    bf16 = {"precision": "BF16"}
    uri = deployer.upload_folder(exported / "cnn", "cnn")
    operation = deployer.create("cnn_bf16", uri, servingOptions=bf16)
    if {"avx512_bf16", "amx_bf16"} & set(Path("/proc/cpuinfo").read_text().split()):
        assert "response" in deployer.finish(operation)
        details = deployer.details("cnn_bf16")
        assert details["parity"]["within"]
        precision = details["precision"]
        assert (precision["name"], precision["rows"]) == ("bf16", 65)
        assert 1e-5 < precision["difference"] < 0.1  # neither f32 nor nonsense
        assert precision["agreement"] > 0.9
        assert details["detail"].endswith(" in bf16")
    else:
        assert "has no bfloat16" in deployer.refused(operation)
    words = deployer.upload_folder(exported / "words", "words")
    message = deployer.refused(deployer.create("words_bf16", words, servingOptions=bf16))
    assert "Precision bf16 is for models that OpenVINO serves, and TensorFlow serves this one." in message
    assert "Create the version with precision f32." in message


def test_what_openvino_can_not_serve_tensorflow_serves(deployer: Deployer, exported: Path) -> None:
    uri = deployer.upload_folder(exported / "words", "words")
    details = deployer.deploy("words", uri)
    assert details["loader"] == "tensorflow"
    assert not details["parity"]["within"]
    assert details["parity"]["message"]
    assert deployer.predict("words", "baaa") == [{"loud": "BA"}]


def test_the_folder_above_is_no_model_and_the_error_names_the_right_one(deployer: Deployer, exported: Path) -> None:
    uri = deployer.upload_folder(exported / "dense", "export/1794781101")
    message = deployer.refused(deployer.create("above", uri.rpartition("/")[0]))
    assert f"but there is one in {uri}." in message


def test_a_version_sleeps_and_the_next_request_wakes_it(sleepy_server: RunningServer, tmp_path: Path) -> None:
    deployer = Deployer(sleepy_server, "e2e-sleepers", tmp_path)
    deployer.deploy_routine("sleeper", answer="return [2 * each for each in instances]", autoScaling={"minNodes": 0})
    eventually(lambda: deployer.details("sleeper")["hosts"], lambda hosts: hosts == [])
    assert deployer.get("sleeper")["state"] == "READY"
    assert deployer.predict("sleeper", 21) == [42]
    eventually(lambda: deployer.details("sleeper")["hosts"], lambda hosts: hosts == [])


def test_a_version_under_load_gets_another_host(deployer: Deployer) -> None:
    answer = "__import__('time').sleep(0.05) or instances"
    deployer.deploy_routine("wide", answer=f"return {answer}", autoScaling={"minNodes": 1, "maxNodes": 2})
    over = threading.Event()
    answers: list[tuple[int, Any]] = []

    def ask() -> None:
        while not over.is_set():
            answers.append(deployer.ask("wide", 21))

    with ThreadPoolExecutor(24) as pool:
        try:
            asking = [pool.submit(ask) for _ in range(24)]  # three times what makes another host wanted
            states = eventually(
                lambda: [host["state"] for host in deployer.details("wide")["hosts"]],
                lambda states: states == ["READY", "READY"],
            )
            scaling = deployer.details("wide")["scaling"]
        finally:
            over.set()
    for done in asking:
        done.result()
    assert len(states) == scaling["hosts"] == 2
    assert scaling["inFlight"] > 0
    assert [answer for answer in answers if answer != (200, {"predictions": [21]})] == []
    deployer.finish(deployer.delete("wide"))


@pytest.mark.fault("F51", "F52")
def test_creating_and_deleting_under_load_fails_no_request(deployer: Deployer, exported: Path) -> None:
    uri = deployer.upload_folder(exported / "dense", "busy")
    deployer.deploy("kept", uri)
    deployer.server.call("POST", f"{deployer.path}/versions/kept:setDefault", {})
    good = (200, {"predictions": [{"classes": 0, "scores": [1.0, -1.0]}]})
    seen: dict[str, list[tuple[int, Any]]] = {"": [], "brief": []}
    over = threading.Event()

    def ask(version: str) -> None:
        while not over.is_set():
            seen[version].append(deployer.ask(version, [1.0, 0.0, 0.0]))

    with ThreadPoolExecutor(4) as pool:
        try:
            deployer.deploy("brief", uri)
            asking = [pool.submit(ask, version) for version in ("", "", "brief", "brief")]
            eventually(lambda: len(seen["brief"]), lambda count: count > 50)
            deployer.finish(deployer.delete("brief"))
            deployer.deploy("later", uri)
        finally:
            over.set()
    for done in asking:
        done.result()
    assert [answer for answer in seen[""] if answer != good] == []
    assert {status for status, _ in seen["brief"]} == {200, 404}  # answered, or gone: nothing in between
    assert [answer for answer in seen["brief"] if answer[0] == 200 and answer != good] == []


def test_a_deleted_version_leaves_nothing(deployer: Deployer, exported: Path, tmp_path: Path) -> None:
    own = shutil.copytree(exported / "dense", tmp_path / "own")
    (own / "only-here").write_text("so that no other version has these files")
    uri = deployer.upload_folder(own, "deleted")
    details = deployer.deploy("deleted", uri)
    home = deployer.server.home
    assert (home / "models" / deployer.project / details["files"] / "saved_model.pb").is_file()
    finished = deployer.finish(deployer.delete("deleted"))
    assert finished["response"] == {"@type": "type.googleapis.com/google.protobuf.Empty"}
    assert deployer.ask("deleted", [1.0, 0.0, 0.0])[0] == 404
    eventually(lambda: (home / "models" / deployer.project / details["files"]).exists(), lambda there: not there)
    eventually(lambda: (home / "hosts" / deployer.project / "m" / "deleted").exists(), lambda there: not there)
