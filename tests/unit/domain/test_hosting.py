"""The rules on hosts, as tables."""

from __future__ import annotations

import pytest

from trainshed.domain.models.hosting import (
    MAX_BACKOFF_S,
    STABLE_AFTER_S,
    CrashHistory,
    ServingState,
    candidate_loaders,
    desired_hosts,
    explainable_loaders,
    memory_per_host,
    serving_state,
    should_sleep,
    threads_per_host,
)
from trainshed.errors import FailedPreconditionError


def died(*lives_s: float, pause_s: float = 0.0) -> CrashHistory:
    """Hosts that lived so long one after the other, each started when it might be."""
    deaths, now_s = CrashHistory(), 1000.0
    for life_s in lives_s:
        now_s = max(now_s, deaths.next_s) + life_s + pause_s
        deaths = deaths.after(now_s=now_s, lived_s=life_s)
    return deaths


@pytest.mark.parametrize(
    ("lives_s", "pause_s", "unhealthy"),
    [
        ((), None, False),
        ((1,), 0, False),
        ((1, 1), 1, False),
        ((1, 1, 1), 2, False),
        ((1, 1, 1, 1), 4, False),
        ((1, 1, 1, 1, 1), MAX_BACKOFF_S, True),
        ((1, 1, 1, 1, 1, 1), MAX_BACKOFF_S, True),  # 30 s later: still unhealthy, though only few died in that minute
        ((1, 1, 1, 1, 1, 1, 1, 1), MAX_BACKOFF_S, True),
        ((1, 1, 1, 1, 1, STABLE_AFTER_S), 0, False),  # one that lived long clears it
        ((1, 1, 1, 1, STABLE_AFTER_S, 1), 1, False),
        ((STABLE_AFTER_S, STABLE_AFTER_S, STABLE_AFTER_S, STABLE_AFTER_S, STABLE_AFTER_S, STABLE_AFTER_S), 0, False),
        ((20, 20, 20, 20, 20), 2, False),  # slow to load: tried again and again, but never many in one minute
    ],
)
def test_when_the_next_host_is_started(lives_s: tuple[float, ...], pause_s: float | None, unhealthy: bool) -> None:
    deaths = died(*lives_s)
    assert deaths.unhealthy is unhealthy
    if pause_s is None:
        assert deaths.next_s == 0
    else:
        assert deaths.next_s - deaths.crashes_s[-1] == pause_s


def test_what_died_long_ago_says_nothing_of_a_host_that_is_ready() -> None:
    deaths = died(1, 1, 1, 1, 1)
    last_s = deaths.crashes_s[-1]
    assert deaths.after_ready(now_s=last_s + STABLE_AFTER_S - 1) == deaths
    assert deaths.after_ready(now_s=last_s + STABLE_AFTER_S) == CrashHistory()
    assert CrashHistory().after_ready(now_s=last_s) == CrashHistory()


def test_pauses_grow_and_have_an_end() -> None:
    deaths, pauses = CrashHistory(), []
    for number in range(12):
        deaths = CrashHistory(crashes_s=(*deaths.crashes_s, float(number)))
        pauses.append(deaths.next_s - number)
    assert pauses == sorted(pauses)
    assert pauses[0] == 0
    assert pauses[-1] == MAX_BACKOFF_S


@pytest.mark.parametrize(("nodes", "awake", "wanted"), [(0, False, 0), (0, True, 1), (1, True, 1), (3, False, 3)])
def test_how_many_hosts(nodes: int, awake: bool, wanted: int) -> None:
    assert desired_hosts(nodes, awake=awake) == wanted


@pytest.mark.parametrize(
    ("nodes", "used_us", "since_us", "asleep"),
    [
        (0, 0, 0, True),
        (0, 950_000_000, 0, False),  # used
        (0, 0, 950_000_000, False),  # awake for a short time only
        (1, 0, 0, False),  # never sleeps
    ],
)
def test_when_it_sleeps(nodes: int, used_us: int, since_us: int, asleep: bool) -> None:
    now_us = 1_000_000_000
    assert asleep == should_sleep(
        nodes, last_used_us=used_us, awake_since_us=since_us, now_us=now_us, sleep_after_s=900
    )


@pytest.mark.parametrize(
    ("ready", "wanted", "activated", "unhealthy", "expected"),
    [
        (1, 1, False, False, ServingState.READY),
        (1, 2, False, True, ServingState.READY),  # whoever answers, answers
        (1, 0, False, False, ServingState.READY),  # until it is out of the routes
        (0, 0, False, False, ServingState.SLEEPING),
        (0, 0, False, True, ServingState.SLEEPING),
        (0, 1, False, False, ServingState.STARTING),
        (0, 1, True, False, ServingState.WAKING),
        (0, 1, True, True, ServingState.UNHEALTHY),
        (0, 1, False, True, ServingState.UNHEALTHY),
    ],
)
def test_how_a_version_stands(
    ready: int, wanted: int, activated: bool, unhealthy: bool, expected: ServingState
) -> None:
    assert serving_state(ready=ready, desired=wanted, activated=activated, unhealthy=unhealthy) is expected


def test_shares_of_the_machine() -> None:
    assert [threads_per_host(8, hosts) for hosts in (0, 1, 3, 20)] == [8, 8, 2, 1]
    assert memory_per_host(16 << 30, 2) == 6 << 30
    assert memory_per_host(1 << 30, 4) == 1 << 30


def test_gradients_are_tensorflow_s() -> None:
    both = ("openvino", "tensorflow")
    assert explainable_loaders(both, {}) == both
    assert explainable_loaders(both, {"sampledShapleyAttribution": {"numPaths": 5}}) == both
    assert explainable_loaders(both, {"integratedGradientsAttribution": {}}) == ("tensorflow",)
    onnx = ("openvino_onnx", "onnxruntime")
    assert explainable_loaders(onnx, {"integratedGradientsAttribution": {}}) == ("onnxruntime",)
    assert explainable_loaders(("keras",), {"integratedGradientsAttribution": {}}) == ("keras",)


@pytest.mark.parametrize(
    ("names", "framework", "expected"),
    [
        (("saved_model.pb", "variables/variables.index"), "", ("openvino", "tensorflow")),
        (("saved_model.pbtxt",), "TENSORFLOW", ("openvino", "tensorflow")),
        (("model.keras",), "", ("keras",)),
        (("any.keras",), "TENSORFLOW", ("keras",)),
        (("old.h5",), "", ("keras",)),
        (("config.json", "metadata.json", "model.weights.h5"), "TENSORFLOW", ("keras",)),
        (("model.bst",), "", ("xgboost",)),
        (("net.onnx", "net.onnx.data"), "", ("openvino_onnx", "onnxruntime")),
        (("saved_model.pb", "model.onnx"), "ONNX", ("openvino_onnx", "onnxruntime")),
        (("saved_model.pb", "model.onnx"), "TENSORFLOW", ("openvino", "tensorflow")),
        (("model.lgb",), "", ("lightgbm",)),
        (("model.txt",), "LIGHTGBM", ("lightgbm",)),
        (("model.cbm",), "", ("catboost",)),
        (("digits.pt2",), "", ("pytorch",)),
        (("model.pt", "torch_model.json"), "PYTORCH", ("pytorch",)),
        (("model.pkl",), "CATBOOST", ("catboost",)),
        (("model.joblib",), "", ("",)),  # only loading it tells
        (("model.pkl",), "SCIKIT_LEARN", ("sklearn",)),
        (("model.pkl",), "XGBOOST", ("xgboost",)),
        (("nothing",), "SCIKIT_LEARN", ("sklearn",)),  # which says itself what it misses
        (("saved_model.pb", "model.bst"), "TENSORFLOW", ("openvino", "tensorflow")),
    ],
)
def test_what_may_serve_a_model(names: tuple[str, ...], framework: str, expected: tuple[str, ...]) -> None:
    assert candidate_loaders(names, framework=framework, prediction_class="", where="gs://b/m") == expected
    assert candidate_loaders(names, framework=framework, prediction_class="a.B", where="gs://b/m") == ("custom",)


@pytest.mark.parametrize(
    ("names", "framework", "message"),
    [
        (("saved_model.pb", "model.bst"), "", "Multiple model files are found in gs://b/m: model.bst, saved_model.pb"),
        (("1794/saved_model.pb",), "", "but there is one in gs://b/m/1794."),
        (("1794/saved_model.pb",), "TENSORFLOW", "but there is one in gs://b/m/1794."),
        (("readme.txt",), "", "There is no model in gs://b/m"),
        (("model.txt",), "", "There is no model in gs://b/m"),
        (("checkpoint.pt",), "", "There is no model in gs://b/m"),
        (("net.onnx", "model.cbm"), "", "Multiple model files are found in gs://b/m: model.cbm, net.onnx"),
        (("model.bst",), "ONNX", "There is no model in gs://b/m"),
    ],
)
def test_what_is_no_model(names: tuple[str, ...], framework: str, message: str) -> None:
    with pytest.raises(FailedPreconditionError, match=message):
        candidate_loaders(names, framework=framework, prediction_class="", where="gs://b/m")
