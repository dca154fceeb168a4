"""The hosts of one version over hours, by a clock that the test turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainshed.control.deployments.fleet import Fleet
from trainshed.control.deployments.provisioner import HostResources
from trainshed.domain.models.autoscaling import SAMPLE_INTERVAL_S, SCALE_DOWN_AFTER_S
from trainshed.domain.models.hosting import CRASH_LIMIT, MAX_BACKOFF_S, STABLE_AFTER_S, ServingState
from trainshed.domain.models.version import Version, VersionState
from trainshed.domain.models.version_details import VersionDetails
from trainshed.domain.times import now_us
from trainshed.engines.hosts.spec import HostSpec
from trainshed.engines.hosts.watcher import HostPhase, HostStatus

SPEC = HostSpec(
    project="p",
    model="m",
    version="v1",
    instance=0,
    python=Path("python"),
    model_dir=Path("model"),
    loader="sklearn",
    threads=1,
    body_limit=1,
)


class Hosts:
    """Hosts in a dict, ready as soon as they are started."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.running: dict[str, HostStatus] = {}
        self.specs: dict[str, HostSpec] = {}
        self.phase = HostPhase.READY
        self.available_bytes = 8 << 30
        self._count = 0

    def clock(self) -> float:
        return self.now_s

    def open(self, on_change: Callable[[], None]) -> None:
        pass

    def close(self) -> None:
        pass

    def prepare(self, spec: HostSpec, *, existing: bool = False) -> HostSpec:
        return spec

    def start(self, spec: HostSpec) -> str:
        self._count += 1
        key = str(self._count)
        self.specs[key] = spec
        self.running[key] = HostStatus(phase=self.phase, socket=Path(key), pid=1, started_s=self.now_s)
        return key

    def status(self, key: str) -> HostStatus | None:
        return self.running.get(key)

    def kill(self, key: str, *, reason: str = "") -> None:
        self.running[key] = replace(self.running[key], phase=HostPhase.ENDED, message=reason)

    drain = kill

    def forget(self, key: str) -> None:
        self.running.pop(key, None)

    discard = forget

    def memory_use(self, key: str) -> tuple[int, int]:
        return 1, 1 << 30

    def stats(self, key: str) -> Mapping[str, float]:
        return {}

    def compare(self, key: str, reference: Path, *, timeout_s: float) -> Mapping[str, Any]:
        return {}

    def folder(self, project: str, model: str, version: str) -> Path:
        return Path(version)

    def remove(self, project: str, model: str, version: str) -> None:
        pass


@pytest.fixture
def hosts() -> Hosts:
    return Hosts()


@pytest.fixture
def fleet(hosts: Hosts) -> Fleet:
    room = HostResources(
        cpus=2, memory_bytes=8 << 30, load_timeout_s=60, body_limit=1, available_bytes=lambda: hosts.available_bytes
    )
    return Fleet(hosts, room, sleep_after_s=900, awake=True, spec=SPEC, clock=hosts.clock)


def version(nodes: int, most: int = 1) -> Version:
    return Version(
        project="p",
        model="m",
        id="v1",
        body={"autoScaling": {"minNodes": nodes, "maxNodes": max(most, nodes)}},
        details=VersionDetails(runtime="2.21"),
        state=VersionState.READY,
        created_us=1,
    )


def test_a_version_that_recovered_is_as_healthy_as_any(fleet: Fleet, hosts: Hosts) -> None:
    served = version(1)
    for _ in range(CRASH_LIMIT):
        while not fleet.keys:
            hosts.now_s += 1
            fleet.reconcile(served, last_used_us=0)
        hosts.kill(fleet.keys[0], reason="It fell.")
        fleet.reconcile(served, last_used_us=0)
    assert (fleet.serving_state(served), fleet.reason) == (ServingState.UNHEALTHY, "It fell.")

    hosts.now_s += MAX_BACKOFF_S
    fleet.reconcile(served, last_used_us=0)
    assert fleet.serving_state(served) is ServingState.READY
    more = version(2)
    assert fleet.converged(more)  # as long as it is doubtful, nobody waits for it

    hosts.now_s += STABLE_AFTER_S
    fleet.reconcile(served, last_used_us=0)
    assert (fleet.reason, fleet.converged(more)) == ("", False)
    hosts.kill(fleet.keys[0])
    fleet.reconcile(served, last_used_us=0)
    assert fleet.serving_state(served) is ServingState.READY  # replaced at once, as after a first death


def shares(fleet: Fleet, hosts: Hosts) -> list[tuple[int, int]]:
    """Instance and threads of the hosts that requests go to."""
    return [(hosts.specs[key].instance, hosts.specs[key].threads) for _, key in sorted(fleet.keys.items())]


def test_hosts_get_the_share_of_the_machine_that_their_number_leaves_them(fleet: Fleet, hosts: Hosts) -> None:
    fleet.reconcile(version(1), last_used_us=0)
    assert shares(fleet, hosts) == [(0, 2)]
    two = version(2)
    let_go = [key for _ in range(3) for key in fleet.reconcile(two, last_used_us=0)]
    assert shares(fleet, hosts) == [(0, 1), (1, 1)]
    assert let_go == ["1"]
    assert fleet.reconcile(two, last_used_us=0) == []
    assert len(hosts.specs) == 3, "none is replaced in vain"
    one = version(1)
    let_go = [key for _ in range(4) for key in fleet.reconcile(one, last_used_us=0)]
    assert shares(fleet, hosts) == [(0, 2)]
    assert sorted(let_go) == ["2", "3"]


def test_a_host_answers_until_its_successor_does(fleet: Fleet, hosts: Hosts) -> None:
    fleet.reconcile(version(2), last_used_us=0)
    one = version(1)
    hosts.phase = HostPhase.STARTING
    assert [fleet.reconcile(one, last_used_us=0) for _ in range(3)] == [["2"], [], []]
    assert fleet.keys == {0: "1"}
    assert fleet.all_keys() == ["1", "3"]
    hosts.kill("3", reason="It fell.")
    assert fleet.reconcile(one, last_used_us=0) == []
    assert fleet.serving_state(one) is ServingState.READY
    assert fleet.all_keys() == ["1"]
    hosts.now_s += 1
    fleet.reconcile(one, last_used_us=0)
    assert fleet.all_keys() == ["1", "4"]
    assert fleet.reconcile(version(2), last_used_us=0) == [
        "4"
    ]  # it has as much as one alone, and is not alone any more
    assert fleet.keys[0] == "1"
    hosts.running["5"] = replace(hosts.running["5"], phase=HostPhase.READY)
    assert fleet.reconcile(version(2), last_used_us=0) == []
    assert len(hosts.specs) == 5, "the first one has its share again"


def test_hosts_that_share_nothing_stay_when_their_number_changes(fleet: Fleet, hosts: Hosts) -> None:
    fleet.spec = replace(SPEC, alone=True)
    fleet.reconcile(version(1), last_used_us=0)
    first = fleet.keys[0]
    for _ in range(4):
        assert fleet.reconcile(version(3), last_used_us=0) == []
    assert fleet.keys[0] == first
    assert len(hosts.running) == 3


def test_a_host_whose_machine_is_made_ready_first_has_more_time(fleet: Fleet, hosts: Hosts) -> None:
    hosts.phase = HostPhase.STARTING
    fleet.reconcile(version(1), last_used_us=0)
    key = fleet.keys[0]
    hosts.running[key] = replace(hosts.running[key], prepares_s=100.0)
    hosts.now_s += 159
    fleet.reconcile(version(1), last_used_us=0)
    assert hosts.running[key].phase is HostPhase.STARTING
    hosts.now_s += 2
    fleet.reconcile(version(1), last_used_us=0)
    assert hosts.running[key].phase is HostPhase.ENDED


def under_load(fleet: Fleet, hosts: Hosts, served: Version, in_flight: int, seconds: float) -> int:
    """Reconcile for so long under this load, as often as the fleet asks for. Returns the number of hosts."""
    end_s = hosts.now_s + seconds
    while hosts.now_s < end_s:
        for key in fleet.reconcile(served, last_used_us=now_us(), in_flight=in_flight):
            hosts.forget(key)
        pause_s = fleet.next_reconcile_s(served)
        assert pause_s <= SAMPLE_INTERVAL_S
        hosts.now_s += pause_s
    return len(hosts.running)


def test_hosts_come_and_go_with_the_load(fleet: Fleet, hosts: Hosts) -> None:
    served = version(1, 3)
    assert under_load(fleet, hosts, served, 1, 60) == 1
    assert under_load(fleet, hosts, served, 100, 60) == 3
    assert shares(fleet, hosts) == [(0, 1), (1, 1), (2, 1)], "each has its share beside the others from the start"
    assert len(hosts.specs) == 3, "none is replaced because others come"
    assert under_load(fleet, hosts, served, 0, SCALE_DOWN_AFTER_S / 2) == 3
    assert under_load(fleet, hosts, served, 0, SCALE_DOWN_AFTER_S) == 1
    assert fleet.keys == {0: "1"}


def test_no_host_is_added_that_does_not_fit(fleet: Fleet, hosts: Hosts) -> None:
    hosts.available_bytes = (1 << 30) + (1 << 29)  # an eighth of 8 GiB stays free
    served = version(1, 3)
    assert under_load(fleet, hosts, served, 100, 60) == 1
    assert fleet.scaling.waits_for_memory
    fleet.spec = replace(SPEC, alone=True)  # the nodes of a cluster have memory of their own
    assert under_load(fleet, hosts, served, 100, 60) == 3


def test_a_version_that_sleeps_wakes_with_one_host(fleet: Fleet, hosts: Hosts) -> None:
    served = version(0, 3)
    assert under_load(fleet, hosts, served, 100, 60) == 3
    fleet.sleep_after_s = 0.0
    fleet.reconcile(served, last_used_us=0)
    assert (fleet.awake, fleet.all_keys(), fleet.scaling.hosts) == (False, [], 0)
    fleet.activate()
    fleet.reconcile(served, last_used_us=0, in_flight=100)
    assert len(fleet.keys) == 1
