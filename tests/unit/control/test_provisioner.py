"""Versions on their way to READY, on a real database, with hosts that follow a script."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.control.deployments.controller import MAX_CREATING, MAX_CREATING_PER_PROJECT
from trainshed.domain.models.hosting import ServingState
from trainshed.domain.models.version import VersionState
from trainshed.testing.eventually import eventually
from trainshed.testing.fakes.scripted_deployments import PYTHON, Shed


@pytest.fixture
def shed(tmp_path: Path) -> Iterator[Shed]:
    shed = Shed(tmp_path)
    shed.open()
    yield shed
    shed.close()


def test_a_version_is_created_checked_and_routed(shed: Shed) -> None:
    states: list[tuple[VersionState, bool]] = []
    shed.routes.listen(lambda: states.append((shed.models.version("p", "m", "v1").state, _is_ready(shed, "v1"))))
    version = shed.create("v1")
    ready = shed.until("v1")
    assert (VersionState.CREATING, True) in states  # in the routes before it is READY
    assert ready.served.loader == "openvino"
    assert ready.served.parity and ready.served.parity.within
    assert ready.served.size == len(b"model")
    assert shed.routes.models["p", "m"].default == "v1"
    operation = shed.operations.get("p", version.operation)
    assert operation.response is not None
    assert operation.response["state"] == "READY"
    [host] = eventually(lambda: shed.deployments.hosts("p", "m", "v1"), lambda hosts: bool(hosts[0]["stats"]))
    assert host["state"] == "READY"
    assert host["memoryBytes"] > 0
    assert host["stats"]["requests"] == 7
    eventually(lambda: shed.deployments.progress("p", "m", "v1"), lambda text: text == "")


def _is_ready(shed: Shed, name: str) -> bool:
    model = shed.routes.models.get(("p", "m"))
    route = model.versions.get(name) if model else None
    return route is not None and route.state is ServingState.READY and bool(route.hosts)


def test_a_new_model_gets_things_ready_for_its_first_version(shed: Shed) -> None:
    shed.deployments.publish("p", "m")
    eventually(lambda: shed.expected)
    shed.create("v1")
    shed.until("v1")
    shed.deployments.publish("p", "m")
    assert shed.expected == [PYTHON]


def test_a_version_that_arrives_stays_routed_whoever_else_publishes(shed: Shed) -> None:
    published = threading.Event()

    def again() -> None:
        if _is_ready(shed, "v1") and not published.is_set():
            published.set()
            threading.Thread(target=lambda: shed.deployments.publish("p", "m")).start()

    gone: list[bool] = []
    shed.routes.listen(again)
    shed.routes.listen(lambda: gone.append(published.is_set() and not _is_ready(shed, "v1")))
    shed.create("v1")
    shed.until("v1")
    assert published.is_set()
    assert not any(gone)


def test_one_project_does_not_keep_all_the_threads_that_create(shed: Shed) -> None:
    begun: list[str] = []
    go_on = threading.Event()

    def wait() -> None:
        begun.append("")
        assert go_on.wait(90)

    shed.runtime.built = wait
    for name in ("v1", "v2", "v3", "v4"):
        shed.create(name)
    eventually(lambda: len(begun), lambda count: count == MAX_CREATING_PER_PROJECT)
    free = [name for name in ("v1", "v2", "v3", "v4") if not shed.deployments.progress("p", "m", name)]
    assert len(free) == 4 - MAX_CREATING_PER_PROJECT < 4
    assert MAX_CREATING_PER_PROJECT < MAX_CREATING
    go_on.set()
    for name in ("v1", "v2", "v3", "v4"):
        shed.until(name)


@pytest.mark.parametrize("behaviour", ["differs", "no-reference", "fail-openvino"])
def test_tensorflow_serves_what_openvino_can_not_or_says_otherwise(shed: Shed, behaviour: str) -> None:
    shed.create("v1", behaviour)
    ready = shed.until("v1")
    assert ready.served.loader == "tensorflow"
    assert ready.served.parity and not ready.served.parity.within
    assert ready.served.parity.message


def test_the_same_files_are_compared_once(shed: Shed) -> None:
    shed.create("v1")
    first = shed.until("v1")
    shed.create_from("v2", "gs://bucket/v1")
    second = shed.until("v2")
    assert shed.references == 1
    assert second.files == first.files
    assert second.served.parity == first.served.parity
    assert shed.routes.models["p", "m"].default == "v1"


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("fail", 'Bad model detected with error:  "Failed to load model: it is broken (Error code: 0)"'),
        ("segfault", "was killed by SIGSEGV"),
    ],
)
def test_a_model_that_can_not_be_loaded_fails_in_its_own_words(shed: Shed, behaviour: str, words: str) -> None:
    version = shed.create("v1", behaviour, saved_model=False)
    failed = shed.until("v1", VersionState.FAILED)
    assert failed.error.startswith("Create Version failed. ")
    assert words in failed.error
    operation = shed.operations.get("p", version.operation)
    assert operation.error == {"code": 3, "message": failed.error}
    assert shed.until_route("v1", ServingState.UNHEALTHY).reason == failed.error
    assert not any(shed.home.models.glob("p/*"))
    assert shed.routes.models["p", "m"].default == ""


def test_a_model_that_hangs_is_cut_off(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    shed.load_timeout_s = 1.0
    shed.open()
    shed.create("v1", "hang", saved_model=False)
    assert "It was not loaded within 1 s." in shed.until("v1", VersionState.FAILED).error
    shed.close()


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("gs://bucket/nothing", "There are no files in gs://bucket/nothing"),
        ("gs://others/model", "There is no bucket others in project p."),
    ],
)
def test_files_that_are_not_there(shed: Shed, uri: str, words: str) -> None:
    shed.create_from("v1", uri)
    assert words in shed.until("v1", VersionState.FAILED).error


def test_a_cancelled_creation_ends_and_leaves_nothing(shed: Shed) -> None:
    version = shed.create("v1", "hang", saved_model=False)
    eventually(lambda: shed.deployments.progress("p", "m", "v1"), lambda text: text.startswith("Loading"))
    shed.operations.record(shed.operations.get("p", version.operation).cancelling())
    failed = shed.until("v1", VersionState.FAILED)
    assert failed.error == "Create Version was cancelled."
    error = shed.operations.get("p", version.operation).error
    assert error is not None
    assert error["code"] == 1
    assert not any(shed.home.models.glob("p/*"))


def test_what_is_served_does_not_change_with_its_source(shed: Shed) -> None:
    shed.create("v1")
    before = shed.until("v1")
    shed.put("v1/saved_model.pb", b"other")
    shed.put("v1/behaviour", b"fail")
    [host] = shed.route("v1").hosts
    os.kill(shed.deployments.hosts("p", "m", "v1")[0]["pid"], 9)
    eventually(lambda: shed.route("v1"), lambda route: route.hosts not in ((), (host,)))
    assert (shed.pins.folder("p", before.files) / "saved_model.pb").read_bytes() == b"model"
