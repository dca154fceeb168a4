"""Which replicas of a gang start first, and how long the others are held back."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from trainshed.node.supervisor.start_order import (
    CHECK_INTERVAL_S,
    MAX_DELAY_S,
    StartOrder,
    connected,
    workers_would_sleep,
)

NOW = 1000.0
SLEEPY = "import tensorflow.compat.v1 as tf\nwith tf.train.MonitoredTrainingSession(master) as session: ...\n"
CLUSTER = {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"], "ps": ["127.0.0.1:3", "127.0.0.1:4"]}


def _gang(*types: str) -> list[dict[str, Any]]:
    env = {"TF_CONFIG": json.dumps({"cluster": {key: CLUSTER[key] for key in CLUSTER if key in ("chief", *types)}})}
    return [{"name": f"{kind}-replica-{number}", "type": kind, "env": env} for number, kind in enumerate(types)]


SERVERS = _gang("master", "worker", "worker", "ps", "ps", "evaluator")


class Network:
    """Says that nobody is connected until told otherwise, and keeps what it was asked."""

    def __init__(self) -> None:
        self.connected = False
        self.asked: list[set[int]] = []

    def __call__(self, ports: set[int]) -> bool:
        self.asked.append(ports)
        return self.connected


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "task.py").write_text(SLEEPY)
    return tmp_path


def _types(replicas: list[dict[str, Any]]) -> list[str]:
    return [each["type"] for each in replicas]


def test_workers_wait_for_the_master_to_come_to_a_parameter_server(network: Network, site: Path) -> None:
    order = StartOrder(network)
    assert _types(order.begin(SERVERS, str(site), NOW)) == ["master", "ps", "ps", "evaluator"]
    assert order.check_at == NOW + CHECK_INTERVAL_S
    assert order.due(NOW + CHECK_INTERVAL_S) == []
    network.connected = True
    assert _types(order.due(NOW + 2 * CHECK_INTERVAL_S)) == ["worker", "worker"]
    assert network.asked == [{3, 4}, {3, 4}]
    assert order.check_at == float("inf")
    assert order.due(NOW + 100.0) == []


def test_workers_never_wait_long(network: Network, site: Path) -> None:
    order = StartOrder(network)
    order.begin(SERVERS, str(site), NOW)
    assert order.due(NOW + MAX_DELAY_S - 0.001) == []
    assert _types(order.due(NOW + MAX_DELAY_S)) == ["worker", "worker"]


@pytest.mark.parametrize(
    "types", [("master",), ("master", "worker", "worker"), ("master", "ps"), ("master", "evaluator")], ids="+".join
)
def test_a_gang_without_workers_or_servers_starts_whole(types: tuple[str, ...], network: Network, site: Path) -> None:
    order = StartOrder(network)
    assert _types(order.begin(_gang(*types), str(site), NOW)) == [*types]
    assert order.check_at == float("inf")
    assert network.asked == []


def test_a_job_that_ends_starts_nobody(network: Network, site: Path) -> None:
    order = StartOrder(network)
    order.begin(SERVERS, str(site), NOW)
    order.clear()
    assert order.due(NOW + MAX_DELAY_S) == []


def test_a_gang_that_is_started_again_begins_in_the_same_order(network: Network, site: Path) -> None:
    order = StartOrder(network)
    order.begin(SERVERS, str(site), NOW)
    order.due(NOW + MAX_DELAY_S)
    assert _types(order.begin(SERVERS, str(site), NOW + 50.0)) == ["master", "ps", "ps", "evaluator"]
    assert order.due(NOW + 50.0 + CHECK_INTERVAL_S) == []
    assert len(order.due(NOW + 50.0 + MAX_DELAY_S)) == 2


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (SLEEPY, True),
        ("tf.estimator.train_and_evaluate(model, train, evaluate)", True),
        ("supervisor = tf.train.Supervisor(is_chief=chief)", True),
        (SLEEPY + "SessionManager(recovery_wait_secs=0.1)", False),
        ("print('hello')", False),
        ("dist.init_process_group('gloo')", False),
    ],
)
def test_only_trainers_whose_workers_would_sleep_are_held_back(source: str, expected: bool, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(source)
    (tmp_path / "notes.txt").write_text(SLEEPY)
    assert workers_would_sleep(str(tmp_path)) is expected


def test_a_trainer_that_is_tuned_in_one_file_is_tuned(site: Path) -> None:
    (site / "trainer" / "waits.py").write_text("recovery_wait_secs = 0.1")
    assert not workers_would_sleep(str(site))


def test_a_job_without_packages_has_nothing_to_look_into(tmp_path: Path) -> None:
    assert not workers_would_sleep(str(tmp_path / "absent"))


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_connection_is_seen_while_it_lasts(family: socket.AddressFamily, host: str) -> None:
    if family == socket.AF_INET6 and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    with socket.socket(family) as listener:
        listener.bind((host, 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert not connected({port})
        with socket.create_connection((host, port)):
            assert connected({port, 1})
            assert not connected({1})
