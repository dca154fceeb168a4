"""The hosts of one version over hours, by a clock that the test turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainshed.control.creations import Room
from trainshed.control.fleets import Fleet
from trainshed.domain.deployments import MANY_DEATHS, RETRY_S, STEADY_S, Standing
from trainshed.domain.versions import Version, VersionState
from trainshed.engines.hosts import HostSpec
from trainshed.engines.watching import HostPhase, HostSighting

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
        self.running: dict[str, HostSighting] = {}
        self._count = 0

    def clock(self) -> float:
        return self.now_s

    def start(self, spec: HostSpec) -> str:
        self._count += 1
        key = str(self._count)
        self.running[key] = HostSighting(phase=HostPhase.READY, socket=Path(key), pid=1, started_s=self.now_s)
        return key

    def look(self, key: str) -> HostSighting | None:
        return self.running.get(key)

    def kill(self, key: str, *, reason: str = "") -> None:
        self.running[key] = replace(self.running[key], phase=HostPhase.ENDED, message=reason)

    drain = kill

    def forget(self, key: str) -> None:
        self.running.pop(key, None)

    discard = forget

    def processes(self, key: str) -> tuple[int, int]:
        return 1, 0

    def compare(self, key: str, reference: Path, *, timeout_s: float) -> Mapping[str, Any]:
        return {}

    def folder(self, project: str, model: str, version: str) -> Path:
        return Path(version)


@pytest.fixture
def hosts() -> Hosts:
    return Hosts()


@pytest.fixture
def fleet(hosts: Hosts) -> Fleet:
    room = Room(cpus=2, memory_bytes=8 << 30, load_timeout_s=60, body_limit=1)
    return Fleet(hosts, room, sleep_after_s=900, awake=True, spec=SPEC, clock=hosts.clock)


def version(nodes: int) -> Version:
    return Version(
        project="p",
        model="m",
        id="v1",
        body={"autoScaling": {"minNodes": nodes}},
        state=VersionState.READY,
        created_us=1,
    )


def test_a_version_that_recovered_is_as_healthy_as_any(fleet: Fleet, hosts: Hosts) -> None:
    served = version(1)
    for _ in range(MANY_DEATHS):
        while not fleet.keys:
            hosts.now_s += 1
            fleet.keep(served, last_used_us=0)
        hosts.kill(fleet.keys[0], reason="It fell.")
        fleet.keep(served, last_used_us=0)
    assert (fleet.standing(served), fleet.reason) == (Standing.UNHEALTHY, "It fell.")

    hosts.now_s += RETRY_S
    fleet.keep(served, last_used_us=0)
    assert fleet.standing(served) is Standing.READY
    more = version(2)
    assert fleet.settled(more)  # as long as it is doubtful, nobody waits for it

    hosts.now_s += STEADY_S
    fleet.keep(served, last_used_us=0)
    assert (fleet.reason, fleet.settled(more)) == ("", False)
    hosts.kill(fleet.keys[0])
    fleet.keep(served, last_used_us=0)
    assert fleet.standing(served) is Standing.READY  # replaced at once, as after a first death
