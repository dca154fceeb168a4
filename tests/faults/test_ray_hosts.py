"""Remote hosts on real processes: replica proxies, node agents, scripted hosts. Only Ray is faked."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from trainshed.artifacts.manifest import ArtifactAccess
from trainshed.config import Home
from trainshed.domain.capacity.machine_types import STANDARD
from trainshed.domain.capacity.placement import ResourceShares
from trainshed.engines.hosts.spec import HostSpec
from trainshed.engines.hosts.watcher import HostPhase, HostStatus
from trainshed.engines.ray.hosts import GANG_PREFIX, REPLICA, RayHostConfig, RayHostEngine
from trainshed.errors import EngineUnavailableError
from trainshed.node.remote.workspace import model_folder
from trainshed.serving.frames import FrameKind, auth_frame, pack_request
from trainshed.testing.clusters.gangs import KEY, alive
from trainshed.testing.eventually import eventually
from trainshed.testing.fakes.local_bridge import LocalBridge
from trainshed.testing.fakes.scripted_hosts import ship_scripted

RECIPE = {"name": "test", "key": KEY, "python": "3.11", "lock": "", "stands_for": []}


@pytest.fixture
def bridge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalBridge]:
    monkeypatch.setenv("TRAINSHED_NODE_CACHE", str(tmp_path / "cache"))
    bridge = LocalBridge(tmp_path, tmp_path / "cache", ship_scripted(tmp_path / "shipped"))
    bridge.start()
    yield bridge
    bridge.close()


def rules(**changes: str) -> RayHostConfig:
    return RayHostConfig(
        machines=STANDARD,
        shares=ResourceShares(),
        access=lambda spec: ArtifactAccess(url="https://nowhere/", ca="", token="ts_fetch"),
        recipe=lambda name: RECIPE,
        body_limit=1 << 20,
        **changes,
    )


@pytest.fixture
def hosts(tmp_path: Path, bridge: LocalBridge) -> Iterator[RayHostEngine]:
    made = RayHostEngine(
        Home(tmp_path / "home"), ship=lambda: ship_scripted(tmp_path / "shipped"), bridge=bridge, config=rules()
    )
    made.open(lambda: None)
    yield made
    made.close()


@pytest.fixture
def spec(tmp_path: Path, hosts: RayHostEngine) -> HostSpec:
    return equipped(tmp_path, hosts)


def equipped(root: Path, hosts: RayHostEngine, behaviour: str = "") -> HostSpec:
    """A version whose files its node has already."""
    folder = root / "files"
    folder.mkdir(exist_ok=True)
    (folder / "behaviour").write_text(behaviour)
    plain = HostSpec(
        project="p",
        model="m",
        version="v",
        instance=0,
        python=Path("/of/the/server"),
        model_dir=folder,
        loader="openvino",
        runtime="test",
        machine="n1-standard-4",
        threads=1,
        body_limit=1 << 20,
    )
    spec = hosts.prepare(plain)
    sha256 = hashlib.sha256(behaviour.encode()).hexdigest()
    there = Path(model_folder(str(root / "cache"), [{"name": "behaviour", "sha256": sha256}]))
    there.mkdir(parents=True, exist_ok=True)
    (there / "behaviour").write_text(behaviour)
    return spec


def seen(hosts: RayHostEngine, key: str) -> HostStatus:
    found = hosts.status(key)
    assert found is not None
    return found


def in_phase(hosts: RayHostEngine, key: str, phase: HostPhase) -> HostStatus:
    return eventually(lambda: seen(hosts, key), lambda found: found.phase is phase)


def test_a_host_gets_ready_and_answers_behind_its_secret(
    hosts: RayHostEngine, spec: HostSpec, bridge: LocalBridge
) -> None:
    key = hosts.start(spec)
    place = in_phase(hosts, key, HostPhase.READY).endpoint
    assert place is not None
    assert place.host == "127.0.0.1"
    eventually(lambda: hosts.stats(key).get("requests"), (7).__eq__)  # it tells nothing if it can't at once
    with socket.create_connection((place.host, place.port), timeout=60) as stranger:
        stranger.sendall(auth_frame("a guess") + pack_request(1, FrameKind.STATS, b""))
        assert stranger.recv(1) == b""
    [gang] = bridge.gangs()
    assert gang.startswith(f"{GANG_PREFIX}p/m/v/0-")
    eventually(lambda: hosts.memory_use(key)[1], lambda size: size > 1 << 20)


def test_the_secret_is_on_no_command_line_and_in_no_log(hosts: RayHostEngine, spec: HostSpec) -> None:
    key = hosts.start(spec)
    place = in_phase(hosts, key, HostPhase.READY).endpoint
    assert place is not None
    for process in psutil.process_iter(["cmdline"]):
        assert place.secret not in " ".join(process.info["cmdline"] or ())
    assert place.secret not in (hosts.folder("p", "m", "v") / "0.log").read_text()
    assert place.secret not in repr(place)


def test_every_host_has_a_secret_of_its_own(hosts: RayHostEngine, spec: HostSpec) -> None:
    keys = [hosts.start(each) for each in (spec, replace(spec, instance=1))]
    places = [in_phase(hosts, key, HostPhase.READY).endpoint for key in keys]
    secrets = {place.secret for place in places if place is not None}
    assert len(secrets) == 2
    assert all(len(secret) > 40 for secret in secrets)


def test_a_drained_host_ends_and_leaves_nothing(hosts: RayHostEngine, spec: HostSpec, bridge: LocalBridge) -> None:
    key = hosts.start(spec)
    in_phase(hosts, key, HostPhase.READY)
    hosts.drain(key)
    assert in_phase(hosts, key, HostPhase.ENDED).message.startswith("The host ended with the exit status 0.")
    eventually(bridge.gangs, lambda gangs: gangs == [])
    eventually(lambda: list((hosts.folder("p", "m", "v") / "remote").iterdir()), lambda left: left == [])


def test_a_killed_host_is_killed_there(hosts: RayHostEngine, spec: HostSpec, bridge: LocalBridge) -> None:
    key = hosts.start(spec)
    in_phase(hosts, key, HostPhase.READY)
    [actor] = bridge.actors.values()
    hosts.kill(key, reason="It was asked for.")
    assert in_phase(hosts, key, HostPhase.ENDED).message == "It was asked for."
    eventually(lambda: alive(actor.agent_pid), lambda runs: not runs)


def test_a_host_whose_node_is_lost_says_so(hosts: RayHostEngine, spec: HostSpec, bridge: LocalBridge) -> None:
    key = hosts.start(spec)
    in_phase(hosts, key, HostPhase.READY)
    bridge.lost[REPLICA] = True
    assert in_phase(hosts, key, HostPhase.ENDED).message == "The node a-node with host was lost."


def test_a_host_outlives_the_bridge(hosts: RayHostEngine, spec: HostSpec, bridge: LocalBridge) -> None:
    key = hosts.start(spec)
    in_phase(hosts, key, HostPhase.READY)
    bridge.stop()
    eventually(lambda: hosts.stats(key).get("requests"), (7).__eq__)  # it tells nothing if it can't at once
    bridge.start()
    hosts.drain(key)
    in_phase(hosts, key, HostPhase.ENDED)


def test_one_that_can_not_load_says_why(tmp_path: Path, hosts: RayHostEngine) -> None:
    key = hosts.start(equipped(tmp_path, hosts, "print fail"))
    assert in_phase(hosts, key, HostPhase.ENDED).message == "Failed to load model: it is broken (Error code: 0)"
    assert "what the model prints" in (hosts.folder("p", "m", "v") / "0.log").read_text()


def test_what_its_machine_says_before_is_for_the_log(tmp_path: Path, hosts: RayHostEngine) -> None:
    """It is not taken for what a host says of itself."""
    spec = equipped(tmp_path, hosts, "print")
    (spec.model_dir / "more").write_text("which the node does not have, and nobody gives it")
    key = hosts.start(hosts.prepare(spec))
    log = hosts.folder("p", "m", "v") / "0.log"
    eventually(lambda: log.read_text() if log.exists() else "", lambda said: "Downloading the files" in said)
    assert seen(hosts, key).phase is HostPhase.STARTING


def test_answers_are_compared_there(tmp_path: Path, hosts: RayHostEngine, spec: HostSpec) -> None:
    key = hosts.start(spec)
    in_phase(hosts, key, HostPhase.READY)
    reference = tmp_path / "reference"
    reference.write_bytes(b"what TensorFlow says")
    assert hosts.compare(key, reference, timeout_s=90)["within"] is True
    reference.write_bytes(b"x" * ((1 << 20) + 1))
    with pytest.raises(EngineUnavailableError, match=r"take 1,048,577 bytes.*body_limit_mb"):
        hosts.compare(key, reference, timeout_s=90)


def test_what_is_needed_is_known_to_the_next_server(hosts: RayHostEngine, spec: HostSpec) -> None:
    assert hosts.prepare(replace(spec, manifest=None), existing=True) == spec


def test_reservations_of_an_earlier_server_are_released(
    tmp_path: Path, hosts: RayHostEngine, spec: HostSpec, bridge: LocalBridge
) -> None:
    hosts.start(spec)
    eventually(bridge.gangs)
    [name] = bridge.actors
    actor = bridge.actors.pop(name)
    hosts.close()
    bridge.actors[name] = actor  # as if nobody had told it to end
    later = RayHostEngine(
        Home(tmp_path / "home"), ship=lambda: ship_scripted(tmp_path / "shipped"), bridge=bridge, config=rules()
    )
    later.open(lambda: None)
    eventually(bridge.gangs, lambda gangs: gangs == [])
    later.close()


def test_without_a_cluster_none_is_started(tmp_path: Path, spec: HostSpec, bridge: LocalBridge) -> None:
    none = RayHostEngine(
        Home(tmp_path / "other"),
        ship=lambda: tmp_path,
        bridge=bridge,
        config=rules(unavailable_reason="There is none."),
    )
    none.open(lambda: None)
    with pytest.raises(EngineUnavailableError, match=r"There is none\."):
        none.start(spec)
    none.close()


def test_what_a_host_asks_for(hosts: RayHostEngine) -> None:
    asked = replace(rules(), shares=ResourceShares(cpu=0.5)).bundle
    assert asked("")["CPU"] == 0.5
    assert asked("mls1-c4-m2")["CPU"] == 2
    assert asked("n1-standard-8")["CPU"] == 4


def test_the_order_holds_all_that_a_node_needs(hosts: RayHostEngine, spec: HostSpec) -> None:
    key = hosts.start(spec)
    [folder] = (hosts.folder("p", "m", "v") / "remote").iterdir()
    order = json.loads((folder / "spec.json").read_text())
    assert (folder / "spec.json").stat().st_mode & 0o077 == 0
    assert [each["name"] for each in order["cluster"]["files"]] == ["behaviour"]
    assert order["cluster"]["files"][0]["url"].startswith("https://nowhere/")
    assert order["cluster"]["apart"] == f"{GANG_PREFIX}p/m/v/"
    assert order["env"] == {"OMP_NUM_THREADS": "4"}
    in_phase(hosts, key, HostPhase.READY)
