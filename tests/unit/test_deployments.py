"""The loop that deploys versions, on a real database, with hosts that follow a script."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from trainshed.buckets.tree import ObjectTree
from trainshed.config import Home
from trainshed.control.creations import Creations, Room, Supplies
from trainshed.control.deployments import CREATIONS, CREATIONS_EACH, Deployments, alike
from trainshed.control.outcomes import Ledger
from trainshed.control.pinning import Pins
from trainshed.domain.deployments import Standing
from trainshed.domain.models import Model
from trainshed.domain.objects import Draft
from trainshed.domain.operations import Operation, OperationType
from trainshed.domain.times import now_us
from trainshed.domain.versions import Version, VersionState
from trainshed.engines.hosts import HostSpec, LocalHosts
from trainshed.engines.installs import Installs
from trainshed.engines.references import References
from trainshed.engines.warm import WarmProcesses
from trainshed.errors import NotFound
from trainshed.gateway.routes import Routes, VersionRoute
from trainshed.runtimes.environments import RuntimeInfo, Runtimes, RuntimeState
from trainshed.store.database import Database
from trainshed.store.models import Change, ModelStore
from trainshed.store.operations import OperationStore
from trainshed.testing.engines import wait_for
from trainshed.testing.scripted import ship_scripted

PYTHON = Path(sys.executable)


class QuietTraffic:
    """Nothing is ever on its way, unless a test says so."""

    def __init__(self) -> None:
        self.waits: list[Collection[str]] = []
        self.used_us = 0
        self.look: Callable[[], bool] = lambda: True
        self.seen: list[bool] = []

    def drained(self, keys: Collection[str], *, timeout_s: float) -> bool:
        self.waits.append(keys)
        self.seen.append(self.look())
        return True

    def last_used_us(self, project: str, model: str, version: str) -> int:
        return self.used_us


class OneRuntime:
    """There is one, and it is the interpreter of the tests."""

    def __init__(self) -> None:
        self.built: Callable[[], None] = lambda: None

    def get(self, name: str) -> RuntimeInfo:
        return RuntimeInfo(
            name=name,
            python="3.11",
            summary="",
            state=RuntimeState.READY,
            fraction=1.0,
            text="",
            error="",
            path=PYTHON.parent.parent,
            size=0,
        )

    def ensure(self, name: str, progress: Callable[[float, str], None]) -> Path:
        progress(0.5, "Half of it")
        self.built()
        return PYTHON


class Shed:
    """A state folder with one model, and servers on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.home = Home(path / "home")
        self.home.path.mkdir()
        self.database = Database(self.home.database)
        self.database.migrate()
        self.models = ModelStore(self.database)
        self.operations = OperationStore(self.database)
        self.tree = ObjectTree(self.home.buckets, self.home.uploads)
        self.tree.make_bucket("bucket")
        self.models.add(Model(project="p", id="m", body={}, created_us=now_us()))
        self.runtime = OneRuntime()
        self.traffic = QuietTraffic()
        self.routes = Routes()
        self.references = 0
        self.expected: list[Path] = []
        self.load_timeout_s = 20.0
        self.sleep_after_s = 900.0

    def open(self) -> None:
        """Start what a server starts."""
        ship = lambda: ship_scripted(self.path / "node")  # noqa: E731
        self.hosts = LocalHosts(self.home, ship=ship)
        self.pins = Pins(self.home.models, self.tree, self.home.buckets, used=self.models.files_used)
        references = References(WarmProcesses(self.home, modules={}, ship=ship), ship=ship)
        self.deployments = Deployments(
            Ledger(models=self.models, operations=self.operations),
            Creations(
                Supplies(
                    home=self.home,
                    pins=self.pins,
                    runtimes=cast(Runtimes, self.runtime),
                    installs=Installs(uv=Path(shutil.which("uv") or "uv"), ship=ship),
                    references=_Counted(self, references),
                    owner=self._owner,
                    alike=alike(self.models),
                ),
                self.hosts,
                Room(cpus=2, memory_bytes=8 << 30, load_timeout_s=self.load_timeout_s, body_limit=1 << 20),
            ),
            self.routes,
            self.traffic,
            sleep_after_s=self.sleep_after_s,
            drain_s=5.0,
        )
        self.pins.sweep()
        self.hosts.begin(self.deployments.wake)
        self.deployments.start()

    def close(self) -> None:
        self.deployments.stop()
        self.deployments.join()
        self.hosts.close()

    def _owner(self, bucket: str) -> str:
        if bucket != "bucket":
            raise NotFound(f"There is no bucket {bucket}.")
        return "p"

    def put(self, name: str, data: bytes) -> None:
        with self.tree.stage() as staged:
            staged.write(data)
            self.tree.commit(staged, Draft(bucket="bucket", name=name))

    def create(self, name: str, *behaviour: str, saved_model: bool = True, **body: Any) -> Version:
        self.put(f"{name}/behaviour", " ".join(behaviour).encode())
        self.put(f"{name}/saved_model.pb" if saved_model else f"{name}/model.bst", b"model")
        return self.create_from(name, f"gs://bucket/{name}", **body)

    def create_from(self, name: str, uri: str, **body: Any) -> Version:
        version = Version(
            project="p",
            model="m",
            id=name,
            body={"deploymentUri": uri, **body},
            details={"runtime": "2.21", "notes": []},
            created_us=now_us(),
        )
        operation_id = OperationType.CREATE_VERSION.id("m", name, now_us=now_us())
        added, _ = self.models.add_version(version, Operation.begin("p", operation_id, {}, now_us=now_us()))
        self.deployments.wake()
        return added

    def delete(self, name: str) -> None:
        operation = Operation.begin("p", f"delete_{name}", {}, now_us=now_us())

        def decide(model: Model, versions: Any) -> Change:
            [version] = [each for each in versions if each.id == name]
            return Change(version=version.to(VersionState.DELETING, operation=operation.id), operation=operation)

        self.models.change("p", "m", decide)
        self.deployments.wake()

    def rescale(self, nodes: int) -> Operation:
        """Have the only version get another number of hosts."""
        operation = Operation.begin("p", f"update_m-{nodes}", {}, now_us=now_us())

        def decide(model: Model, versions: Any) -> Change:
            [version] = versions
            changed = version.rescaled({**version.body, "manualScaling": {"nodes": nodes}}, operation.id)
            return Change(version=changed, operation=operation)

        self.models.change("p", "m", decide)
        self.deployments.publish("p", "m")
        self.deployments.wake()
        return operation

    def until(self, name: str, state: VersionState = VersionState.READY) -> Version:
        version = wait_for(
            lambda: self.models.version("p", "m", name), lambda version: version.state is not VersionState.CREATING
        )
        assert version.state is state, version
        return version

    def route(self, name: str) -> VersionRoute:
        return self.routes.models["p", "m"].versions[name]

    def until_route(self, name: str, state: Standing) -> VersionRoute:
        found = wait_for(
            lambda: self.routes.models["p", "m"].versions.get(name),
            lambda route: route is not None and route.state is state,
        )
        assert found is not None
        return found

    def behave(self, version: Version, *behaviour: str) -> None:
        """Have the next hosts of a version do something else."""
        path = self.pins.folder("p", version.files) / "behaviour"
        path.unlink()
        path.write_text(" ".join(behaviour))


class _Counted:
    def __init__(self, shed: Shed, references: References) -> None:
        self._shed = shed
        self._references = references

    def compute(self, spec: HostSpec, folder: Path, *, timeout_s: float, check: Callable[[], None]) -> Path:
        self._shed.references += 1
        return self._references.compute(spec, folder, timeout_s=timeout_s, check=check)

    def await_warm(self, spec: HostSpec, *, check: Callable[[], None]) -> None:
        self._references.await_warm(spec, check=check)

    def expect(self, python: Path) -> None:
        self._shed.expected.append(python)


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
    assert ready.details["loader"] == "openvino"
    assert ready.details["parity"]["within"]
    assert ready.details["size"] == len(b"model")
    assert shed.routes.models["p", "m"].default == "v1"
    operation = shed.operations.get("p", version.operation)
    assert operation.response is not None
    assert operation.response["state"] == "READY"
    [host] = shed.deployments.hosts("p", "m", "v1")
    assert host["state"] == "READY"
    assert host["memoryBytes"] > 0
    assert host["figures"]["requests"] == 7
    assert shed.deployments.progress("p", "m", "v1") == ""


def _is_ready(shed: Shed, name: str) -> bool:
    model = shed.routes.models.get(("p", "m"))
    route = model.versions.get(name) if model else None
    return route is not None and route.state is Standing.READY and bool(route.hosts)


def test_a_new_model_gets_things_ready_for_its_first_version(shed: Shed) -> None:
    shed.deployments.publish("p", "m")
    wait_for(lambda: shed.expected, bool)
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
        assert go_on.wait(20)

    shed.runtime.built = wait
    for name in ("v1", "v2", "v3", "v4"):
        shed.create(name)
    wait_for(lambda: len(begun), lambda count: count == CREATIONS_EACH)
    free = [name for name in ("v1", "v2", "v3", "v4") if not shed.deployments.progress("p", "m", name)]
    assert len(free) == 4 - CREATIONS_EACH < 4
    assert CREATIONS_EACH < CREATIONS
    go_on.set()
    for name in ("v1", "v2", "v3", "v4"):
        shed.until(name)


@pytest.mark.parametrize("behaviour", ["differs", "no-reference", "fail-openvino"])
def test_tensorflow_serves_what_openvino_can_not_or_says_otherwise(shed: Shed, behaviour: str) -> None:
    shed.create("v1", behaviour)
    ready = shed.until("v1")
    assert ready.details["loader"] == "tensorflow"
    assert not ready.details["parity"]["within"]
    assert ready.details["parity"]["text"]


def test_the_same_files_are_compared_once(shed: Shed) -> None:
    shed.create("v1")
    first = shed.until("v1")
    shed.create_from("v2", "gs://bucket/v1")
    second = shed.until("v2")
    assert shed.references == 1
    assert second.files == first.files
    assert second.details["parity"] == first.details["parity"]
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
    assert shed.until_route("v1", Standing.UNHEALTHY).reason == failed.error
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
    wait_for(lambda: shed.deployments.progress("p", "m", "v1"), lambda text: text.startswith("Loading"))
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
    wait_for(lambda: shed.route("v1"), lambda route: route.hosts not in ((), (host,)))
    assert (shed.pins.folder("p", before.files) / "saved_model.pb").read_bytes() == b"model"


def test_a_dead_host_is_replaced_at_once_and_a_loop_of_deaths_is_unhealthy(shed: Shed) -> None:
    shed.create("v1")
    version = shed.until("v1")
    shed.behave(version, "die")
    os.kill(shed.deployments.hosts("p", "m", "v1")[0]["pid"], 9)
    route = shed.until_route("v1", Standing.UNHEALTHY)
    assert "was killed by SIGKILL" in route.reason
    assert "was killed by SIGKILL" in shed.deployments.progress("p", "m", "v1")
    assert shed.models.version("p", "m", "v1").state is VersionState.READY


def test_a_stuck_host_is_replaced(shed: Shed) -> None:
    shed.create("v1")
    shed.until("v1")
    [host] = shed.route("v1").hosts
    shed.deployments.stuck(host.key)
    wait_for(lambda: shed.route("v1"), lambda route: route.hosts not in ((), (host,)))


def test_scaling_up_and_down(shed: Shed) -> None:
    shed.create("v1", manualScaling={"nodes": 3})
    shed.until("v1")
    route = wait_for(lambda: shed.route("v1"), lambda route: len(route.hosts) == 3)
    told = orjson.loads((shed.hosts.folder("p", "m", "v1") / "2.json").read_bytes())
    assert (told["threads"], told["memory_bytes"]) == (1, 2 << 30)

    operation = shed.rescale(1)
    wait_for(lambda: shed.route("v1").hosts, lambda hosts: hosts == route.hosts[:1])
    wait_for(lambda: len(shed.deployments.hosts("p", "m", "v1")), lambda count: count == 1)
    wait_for(lambda: shed.traffic.waits[-1:], lambda waits: waits == [[host.key for host in route.hosts[1:]]])
    assert wait_for(lambda: shed.operations.get("p", operation.id), lambda found: found.done).response is not None
    shed.until("v1")


def test_an_update_is_done_when_the_new_hosts_answer(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    shed.load_timeout_s = 2.0
    shed.open()
    version = shed.create("v1")
    shed.behave(shed.until("v1"), "print", "hang")
    operation = shed.rescale(2)
    printed = shed.hosts.folder("p", "m", "v1") / "1.log"
    wait_for(lambda: printed.exists() and printed.stat().st_size, bool)  # it has read what it shall do
    hosts = shed.deployments.hosts("p", "m", "v1")
    assert [host["state"] for host in hosts] == ["READY", "STARTING"]
    assert shed.models.version("p", "m", "v1").state is VersionState.UPDATING
    assert len(shed.route("v1").hosts) == 1, "it answers meanwhile"
    shed.behave(shed.models.version("p", "m", "v1"))
    done = wait_for(lambda: shed.operations.get("p", operation.id), lambda found: found.done)
    assert len(shed.route("v1").hosts) == 2
    assert done.response is not None
    assert done.response["state"] == "READY"
    assert shed.until("v1").generation == version.generation + 3
    shed.close()


def test_an_update_that_no_host_survives_ends_too(shed: Shed) -> None:
    shed.create("v1")
    version = shed.until("v1")
    shed.behave(version, "fail")
    operation = shed.rescale(6)
    assert wait_for(lambda: shed.operations.get("p", operation.id), lambda found: found.done).done
    assert shed.until("v1").nodes == 6
    assert len(shed.route("v1").hosts) == 1, "the host of before answers still"


def test_one_that_nobody_calls_sleeps_until_it_is_called(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    shed.sleep_after_s = 0.5
    shed.open()
    shed.create("v1", autoScaling={"minNodes": 0})
    version = shed.until("v1")
    route = shed.until_route("v1", Standing.SLEEPING)
    assert route.hosts == ()
    wait_for(lambda: shed.deployments.hosts("p", "m", "v1"), lambda hosts: hosts == [])
    shed.behave(version, "slow")  # it takes longer to wake up than it would stay awake
    shed.deployments.rouse("p", "m", "v1")
    assert shed.until_route("v1", Standing.WAKING).hosts == ()
    assert len(shed.until_route("v1", Standing.READY).hosts) == 1
    shed.close()


def test_deleting_drains_and_takes_all_away(shed: Shed) -> None:
    shed.create("v1")
    version = shed.until("v1")
    [host] = shed.route("v1").hosts
    shed.traffic.look = lambda: "v1" in shed.routes.models["p", "m"].versions
    shed.delete("v1")
    wait_for(lambda: shed.models.versions("p", "m"), lambda versions: not versions)
    wait_for(lambda: shed.operations.get("p", "delete_v1").done, bool)
    assert shed.traffic.seen == [False]
    assert shed.hosts.look(host.key) is None
    wait_for(lambda: shed.pins.folder("p", version.files).exists(), lambda there: not there)
    assert shed.routes.models["p", "m"].default == ""
    folders = (shed.home.hosts, shed.home.models)
    wait_for(lambda: [path.name for folder in folders for path in folder.iterdir()], [".sockets"].__eq__)


def test_hosts_that_end_slowly_hold_up_no_others(shed: Shed) -> None:
    names = [f"v{number}" for number in range(6)]
    for name in names:
        shed.create(name)
        shed.until(name)
    going = threading.Event()
    shed.traffic.look = lambda: going.wait(30)
    for name in names:
        shed.delete(name)
    wait_for(lambda: len(shed.traffic.waits), (6).__eq__)  # each waits for its last answers
    shed.create("another")
    shed.until("another")
    assert len(shed.until_route("another", Standing.READY).hosts) == 1
    going.set()
    wait_for(lambda: [each.id for each in shed.models.versions("p", "m")], ["another"].__eq__)


def test_a_row_goes_last_so_that_no_folder_is_left_without_one(shed: Shed) -> None:
    shed.create("v1")
    shed.until("v1")
    folder = shed.hosts.folder("p", "m", "v1")
    assert folder.is_dir()
    seen: list[bool] = []
    shed.routes.listen(lambda: None if shed.models.versions("p", "m") else seen.append(folder.exists()))
    shed.delete("v1")
    wait_for(lambda: seen, bool)
    assert not any(seen)


def test_files_stay_as_long_as_a_version_has_them(shed: Shed) -> None:
    shed.create("v1")
    version = shed.until("v1")
    shed.create_from("v2", "gs://bucket/v1")
    shed.until("v2")
    shed.delete("v2")
    wait_for(lambda: shed.operations.get("p", "delete_v2").done, bool)
    assert shed.pins.folder("p", version.files).is_dir()


def test_the_next_server_serves_what_was_ready(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    shed.open()
    shed.create("v1")
    shed.until("v1")
    shed.close()
    shed.open()
    assert len(shed.until_route("v1", Standing.READY).hosts) == 1
    shed.close()


def test_the_next_server_goes_on_with_a_creation(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    shed.open()
    version = shed.create("v1", "hang", saved_model=False)
    wait_for(lambda: shed.deployments.progress("p", "m", "v1"), lambda text: text.startswith("Loading"))
    shed.close()
    assert shed.models.version("p", "m", "v1").state is VersionState.CREATING
    shed.put("v1/behaviour", b"")
    shed.open()
    shed.until("v1")
    assert shed.operations.get("p", version.operation).done
    shed.close()


def test_a_version_whose_runtime_is_gone_is_unhealthy_and_says_why(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    shed.open()
    shed.create("v1")
    shed.until("v1")
    shed.close()

    def refuse() -> None:
        raise NotFound("The runtime was taken away.")

    shed.runtime.built = refuse
    shed.open()
    route = wait_for(lambda: shed.route("v1"), lambda route: bool(route.reason))
    assert route.state in (Standing.STARTING, Standing.UNHEALTHY)
    assert route.reason == "The runtime was taken away."
    shed.close()
