"""Room on a Ray cluster, by a link that is made up: what is asked, what is remembered, what people are told."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainshed.config import Home
from trainshed.domain.capacity.machine_types import MachineType, MachineTypes
from trainshed.domain.capacity.placement import GB, Resources, ResourceShares
from trainshed.domain.jobs.reconcile import AttemptPhase
from trainshed.domain.times import now_us
from trainshed.engines.base import AttemptSpec, Engine, GangRequest, Outage, Pending, RemoteSpec, Replica, Reserved
from trainshed.engines.local.engine import LocalEngine
from trainshed.engines.ray import engine as ray_engine
from trainshed.engines.ray.engine import PlacementConfig, RayEngine, gang_name
from trainshed.errors import EngineUnavailableError
from trainshed.testing.contracts.engines import CapacityContract, settle
from trainshed.testing.eventually import eventually
from trainshed.testing.fakes.scripted_bridge import ScriptedBridge

NODE = {"CPU": 4.0, "memory": 16.0 * GB}
BEGUN: list[RayEngine] = []  # to be ended after each test


@pytest.fixture(autouse=True)
def _quick_and_ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ray_engine, "STATUS_INTERVAL_S", 0.01)
    monkeypatch.setattr(ray_engine, "PENDING_POLL_INTERVAL_S", 0.01)
    yield
    while BEGUN:
        BEGUN.pop().close()


def engine_on(tmp_path: Path, link: ScriptedBridge, **changes: Any) -> RayEngine:
    """An engine that has looked at its cluster."""
    own = MachineTypes({"with_gpu": MachineType(cpu=2, memory_gb=4, gpu=1, resources={"tpu": 1})})
    given: dict[str, Any] = {
        "address": "10.0.0.1:6379",
        "strategy": "PACK",
        "machines": own,
        "shares": ResourceShares(),
    }
    supervisors = LocalEngine(Home(tmp_path / "home"), Path("uv"))
    engine = RayEngine(PlacementConfig(**given | changes), supervisors, link, gangs=tmp_path / "gangs")
    BEGUN.append(engine)
    engine.begin(lambda: None)
    probe, silent = gang(tmp_path, "probe"), bool(link.silent_since_us)
    eventually(lambda: engine.pending_reason(probe, ()), lambda said: silent or "has not answered" not in said)
    return engine


def gang(tmp_path: Path, name: str = "a", *, count: int = 1, machine: str = "n1-standard-4") -> GangRequest:
    machines = {f"worker-replica-{number}": machine for number in range(count)}
    return GangRequest(project="p-one", job=name, attempt=1, folder=tmp_path / "p-one" / name / "1", machines=machines)


def reserved(engine: RayEngine, asked: GangRequest) -> None:
    eventually(lambda: engine.reserve(asked, ()), lambda answer: answer == Reserved())


def launch(tmp_path: Path, name: str) -> AttemptSpec:
    return AttemptSpec(
        project="p-one",
        job=name,
        attempt=1,
        folder=tmp_path / "p-one" / name / "1",
        python=Path(sys.executable),
        module="m",
        args=(),
        packages=(),
        site=tmp_path / "site",
        replicas=(Replica(name="master-replica-0", type="master", index=0, primary=True, machine="n1-standard-1"),),
        env={},
        grace_s=1,
        max_running_s=1,
        log_limit_bytes=1,
        warm=False,
        remote=RemoteSpec(runtime={"name": "python"}, packages=({"uri": "gs://b/p"},), credentials={"files": {}}),
    )


class TestRoom(CapacityContract):
    def engine(self, tmp_path: Path) -> Engine:
        return engine_on(tmp_path, ScriptedBridge([NODE, NODE]))

    def max_replicas(self, engine: Engine) -> int:
        return 8

    def attempt(self, tmp_path: Path, name: str) -> AttemptSpec:
        return launch(tmp_path, name)


def test_a_gang_is_asked_for_by_a_name_that_is_its_own(tmp_path: Path) -> None:
    link = ScriptedBridge([NODE])
    reserved(engine_on(tmp_path, link), gang(tmp_path))
    assert link.groups == {"trainshed/p-one/a/1": [{"CPU": 4.0, "memory": 15 * GB}]}


class ForgetfulBridge(ScriptedBridge):
    """The first responses are lost, after the cluster has done what was asked for."""

    def __init__(self, lost: int) -> None:
        super().__init__([NODE, NODE])
        self._lost = lost
        self.requests = 0

    def reserve(self, gang: str, bundles: Mapping[str, Resources], strategy: str) -> bool:
        created = super().reserve(gang, bundles, strategy)
        self.requests += 1
        if self.requests <= self._lost:
            raise EngineUnavailableError("The cluster does not answer.")
        return created


@pytest.mark.fault("F38")
def test_a_gang_whose_request_was_not_answered_is_found_again_and_placed_once(tmp_path: Path) -> None:
    link = ForgetfulBridge(lost=2)
    engine = engine_on(tmp_path, link)
    reserved(engine, gang(tmp_path))
    assert link.requests > 2
    assert list(link.groups) == ["trainshed/p-one/a/1"]
    engine.release(gang(tmp_path).folder)
    eventually(lambda: link.groups, lambda groups: groups == {})


def test_gpus_beside_a_machine_are_asked_for_with_it(tmp_path: Path) -> None:
    link = ScriptedBridge([NODE])
    asked = replace(gang(tmp_path), gpus={"worker-replica-0": 2})
    engine = engine_on(tmp_path, link)
    assert engine.reserve(asked, ()) == Pending(blocks_queue=False)
    assert engine.pending_reason(asked, ()).startswith(
        "it needs 1 × 4 CPUs, 15 GB and 2 GPUs; the cluster has 1 machine with"
    )


def test_the_loop_is_woken_by_capacity_and_by_a_release(tmp_path: Path) -> None:
    link, woken = ScriptedBridge([NODE]), threading.Event()
    engine = engine_on(tmp_path, link)
    engine._wake = woken.set
    reserved(engine, gang(tmp_path))
    assert woken.wait(90)
    woken.clear()
    engine.release(gang(tmp_path).folder)
    assert woken.wait(90)
    assert link.groups == {}


def test_what_was_asked_for_is_known_to_the_next_server_until_it_is_gone(tmp_path: Path) -> None:
    link = ScriptedBridge([NODE])
    first = gang(tmp_path)
    reserved(engine_on(tmp_path, link), first)
    BEGUN.pop().close()
    engine = engine_on(tmp_path, link)
    assert engine.reservations() == [first.folder]
    link.silent_since_us = now_us()
    engine.release(first.folder)
    assert engine.reservations() == [first.folder]
    link.silent_since_us = 0
    eventually(lambda: engine.release(first.folder) or engine.reservations(), lambda held: held == [])  # type: ignore[func-returns-value]
    assert link.groups == {}
    assert engine_on(tmp_path, link).reservations() == []


def test_a_gang_that_could_never_fit_holds_nobody_up_and_is_told_what_would(tmp_path: Path) -> None:
    link = ScriptedBridge([NODE, NODE])
    engine = engine_on(tmp_path, link)
    wide = gang(tmp_path, count=3, machine="n1-highcpu-8")
    assert engine.reserve(wide, ()) == Pending(blocks_queue=False)
    assert engine.pending_reason(wide, ()) == (
        "it needs 3 × 8 CPUs and 7.2 GB; the cluster has 2 machines with 4 CPUs and 16 GB; "
        "a gang of machine type n1-standard-2 would fit"
    )
    link.machines = [{"CPU": 24.0, "memory": 64.0 * GB}]  # as after a machine joined it
    reserved(engine, wide)


def test_a_gang_that_waits_for_others_holds_up_those_behind_it(tmp_path: Path) -> None:
    engine = engine_on(tmp_path, ScriptedBridge([NODE, NODE]))
    reserved(engine, gang(tmp_path, "busy"))
    both = gang(tmp_path, "both", count=2)
    assert engine.reserve(both, ()) == Pending(blocks_queue=True)
    words = "it needs 2 × 4 CPUs and 15 GB; free on its machines are 0 CPUs and 1 GB on 1, 4 CPUs and 16 GB on 1"
    eventually(lambda: engine.pending_reason(both, ()), lambda said: said == words)


def test_gangs_with_capacity_do_not_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = ScriptedBridge([NODE, NODE])
    engine = engine_on(tmp_path, link)
    link.placing = True
    first, second, third = (gang(tmp_path, name) for name in ("first", "second", "third"))
    assert engine.reserve(first, ()) == engine.reserve(second, ()) == Pending(blocks_queue=False)
    assert engine.reserve(third, ()) == Pending(blocks_queue=True)  # there is room for two
    monkeypatch.setattr(ray_engine, "PLACEMENT_GRACE_S", 0.0)
    assert engine.reserve(first, ()) == Pending(blocks_queue=True)  # it has been given time enough
    link.placing = False
    reserved(engine, first)
    reserved(engine, second)


def test_behind_a_gang_that_nothing_may_overtake_nothing_is_requested(tmp_path: Path) -> None:
    engine = engine_on(tmp_path, ScriptedBridge([NODE, NODE]))
    reserved(engine, gang(tmp_path, "busy"))
    both, small = gang(tmp_path, "both", count=2), gang(tmp_path, "small")
    assert engine.reserve(small, (), [both]) == Pending(full=True)
    assert small.folder not in engine.reservations()
    reserved(engine, small)  # without the gang ahead it fits


def test_gangs_leave_a_share_of_the_cores_to_jobs_of_one_replica(tmp_path: Path) -> None:
    link = ScriptedBridge([NODE] * 4)  # 16 cores
    engine = engine_on(tmp_path, link, single_replica_share=0.25)
    first, second = gang(tmp_path, "first", count=2), gang(tmp_path, "second", count=2)
    reserved(engine, first)
    assert engine.reserve(second, ()) == Pending()
    assert second.folder not in engine.reservations(), "Ray would place it"
    reserved(engine, gang(tmp_path, "single"))
    engine.release(first.folder)
    eventually(engine.reservations, lambda left: first.folder not in left)
    reserved(engine, second)
    engine.release(second.folder)
    engine.release(gang(tmp_path, "single").folder)
    eventually(engine.reservations, lambda left: not left)
    reserved(engine, gang(tmp_path, "all", count=4))  # more than the rest, but alone


def test_only_so_many_gangs_are_placed_at_once(tmp_path: Path) -> None:
    link = ScriptedBridge([NODE] * (ray_engine.MAX_PENDING_GANGS + 1))
    engine = engine_on(tmp_path, link)
    link.placing = True
    answers = [engine.reserve(gang(tmp_path, f"g{number}"), ()) for number in range(ray_engine.MAX_PENDING_GANGS)]
    assert answers == [Pending(blocks_queue=False)] * (ray_engine.MAX_PENDING_GANGS - 1) + [Pending(blocks_queue=True)]


def test_machines_of_one_s_own_ask_for_what_they_have(tmp_path: Path) -> None:
    link = ScriptedBridge([NODE])
    engine = engine_on(tmp_path, link, shares=ResourceShares(cpu=0.5, memory=0.25))
    special = gang(tmp_path, machine="with_gpu")
    assert engine.reserve(special, ()) == Pending(blocks_queue=False)
    assert engine.pending_reason(special, ()).startswith(
        "it needs 1 × 1 CPU, 1 GB, 1 GPU and 1 tpu; the cluster has 1 machine"
    )
    link.machines.append({"CPU": 1.0, "memory": 1.0 * GB, "GPU": 1.0, "tpu": 1.0})
    reserved(engine, special)


def test_a_machine_that_there_is_no_more_waits_and_says_so(tmp_path: Path) -> None:
    engine = engine_on(tmp_path, ScriptedBridge([NODE]))
    old = gang(tmp_path, machine="taken_out")
    assert engine.reserve(old, ()) == Pending(blocks_queue=False)
    assert "'taken_out' is not a machine type" in engine.pending_reason(old, ())
    assert engine.reservations() == []


def test_a_cluster_that_is_silent_is_away_and_what_waits_says_since_when(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "OUTAGE_GRACE_S", 3600.0)
    link = ScriptedBridge([NODE])
    link.silent_since_us, link.why = 36_131_000_000, "It said nothing."
    engine = engine_on(tmp_path, link)
    waits = gang(tmp_path)
    assert engine.reserve(waits, ()) == Pending()
    assert engine.outage() is None  # the link may just be starting
    monkeypatch.setattr(ray_engine, "OUTAGE_GRACE_S", 0.0)
    eventually(
        engine.outage, lambda away: away == Outage(engine="The Ray cluster at 10.0.0.1:6379", since_us=36_131_000_000)
    )
    assert engine.pending_reason(waits, ()) == (
        "the Ray cluster at 10.0.0.1:6379 has not answered since 10:02:11 UTC (It said nothing.)"
    )
    link.silent_since_us = 0
    eventually(engine.outage, lambda away: away is None)
    reserved(engine, waits)


def test_a_server_that_was_given_no_cluster_says_so_to_jobs_that_are_on_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "OUTAGE_GRACE_S", 0.0)
    rules = PlacementConfig(address="", strategy="PACK", machines=MachineTypes(), shares=ResourceShares())
    began = now_us()
    supervisors = LocalEngine(Home(tmp_path / "home"), Path("uv"))
    away = RayEngine(rules, supervisors, ScriptedBridge([]), gangs=tmp_path / "gangs").outage()
    assert away is not None
    assert began <= away.since_us <= now_us()
    assert "whose address the server was not given" in away.engine


def test_an_attempt_is_launched_with_all_that_the_machines_there_need(tmp_path: Path) -> None:
    engine = engine_on(tmp_path, ScriptedBridge([NODE]))
    given = launch(tmp_path, "a")
    engine.launch(given)
    spec = json.loads((given.folder / "spec.json").read_text())
    assert spec["cluster"] == {
        "socket": "/nowhere/sock",
        "gang": gang_name(given.folder),
        "strategy": "PACK",
        "bundles": {"master-replica-0": {"CPU": 1, "memory": 3.75 * GB}},
        "runtime": {"name": "python"},
        "packages": [{"uri": "gs://b/p"}],
        "credentials": {"files": {}},
        "lease_s": 600.0,
    }
    assert spec["packages"] == []
    engine.cancel(given.folder)
    settle(engine, given.folder, AttemptPhase.ENDED)
