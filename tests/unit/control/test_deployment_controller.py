"""The loop that keeps, scales and deletes versions, on a real database, with hosts that follow a script."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
import sqlalchemy as sa

from trainshed.control.deployments.controller import runtime_in_use
from trainshed.domain.models.hosting import ServingState
from trainshed.domain.models.version import Version, VersionState
from trainshed.domain.operations import Operation
from trainshed.errors import DatabaseUnavailableError, DataLossError, NotFoundError, UnavailableError
from trainshed.gateway.routes import HostAddress
from trainshed.store.models import ModelStore
from trainshed.testing.eventually import eventually
from trainshed.testing.fakes.scripted_deployments import Shed


@pytest.fixture
def shed(tmp_path: Path) -> Iterator[Shed]:
    shed = Shed(tmp_path)
    shed.open()
    yield shed
    shed.close()


def test_a_dead_host_is_replaced_at_once_and_a_loop_of_deaths_is_unhealthy(shed: Shed) -> None:
    shed.create("v1")
    version = shed.until("v1")
    shed.behave(version, "die")
    os.kill(shed.deployments.hosts("p", "m", "v1")[0]["pid"], 9)
    route = shed.until_route("v1", ServingState.UNHEALTHY)
    assert "was killed by SIGKILL" in route.reason
    assert "was killed by SIGKILL" in shed.deployments.progress("p", "m", "v1")
    assert shed.models.version("p", "m", "v1").state is VersionState.READY


def test_a_stuck_host_is_replaced(shed: Shed) -> None:
    shed.create("v1")
    shed.until("v1")
    [host] = shed.route("v1").hosts
    shed.deployments.host_unresponsive(host.key)
    eventually(lambda: shed.route("v1"), lambda route: route.hosts not in ((), (host,)))


def test_scaling_up_and_down(shed: Shed) -> None:
    shed.create("v1", manualScaling={"nodes": 3})
    shed.until("v1")
    route = eventually(lambda: shed.route("v1"), lambda route: len(route.hosts) == 3)
    routed: list[tuple[HostAddress, ...]] = []
    shed.routes.listen(lambda: routed.append(shed.route("v1").hosts))
    told = orjson.loads((shed.hosts.folder("p", "m", "v1") / "2.json").read_bytes())
    assert (told["threads"], told["memory_bytes"]) == (1, 2 << 30)

    operation = shed.rescale(1)
    eventually(lambda: route.hosts[:1] in routed)  # until one takes its place that has the whole machine
    eventually(lambda: len(shed.deployments.hosts("p", "m", "v1")), lambda count: count == 1)
    eventually(lambda: [host.key for host in route.hosts[1:]] in shed.traffic.waits)
    assert eventually(lambda: shed.operations.get("p", operation.id), lambda found: found.done).response is not None
    shed.until("v1")


def test_an_update_is_done_when_the_new_hosts_answer(shed: Shed) -> None:
    version = shed.create("v1")
    shed.behave(shed.until("v1"), "print", "hang")
    operation = shed.rescale(2)
    printed = shed.hosts.folder("p", "m", "v1") / "1.log"
    eventually(lambda: printed.exists() and printed.stat().st_size)  # it has read what it shall do
    hosts = shed.deployments.hosts("p", "m", "v1")
    assert [host["state"] for host in hosts] == ["READY", "STARTING"]
    assert shed.models.version("p", "m", "v1").state is VersionState.UPDATING
    assert len(shed.route("v1").hosts) == 1, "it answers meanwhile"
    shed.behave(shed.models.version("p", "m", "v1"))
    os.kill(hosts[1]["pid"], 9)
    done = eventually(lambda: shed.operations.get("p", operation.id), lambda found: found.done)
    assert len(shed.route("v1").hosts) == 2
    assert done.response is not None
    assert done.response["state"] == "READY"
    assert shed.until("v1").generation == version.generation + 3


def test_an_update_that_no_host_survives_ends_too(shed: Shed) -> None:
    shed.create("v1")
    version = shed.until("v1")
    shed.behave(version, "fail")
    operation = shed.rescale(6)
    assert eventually(lambda: shed.operations.get("p", operation.id), lambda found: found.done).done
    assert shed.until("v1").nodes == 6
    assert len(shed.route("v1").hosts) == 1, "the host of before answers still"


def test_one_that_nobody_calls_sleeps_until_it_is_called(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    shed.sleep_after_s = 0.5
    shed.open()
    shed.create("v1", autoScaling={"minNodes": 0})
    version = shed.until("v1")
    route = shed.until_route("v1", ServingState.SLEEPING)
    assert route.hosts == ()
    eventually(lambda: shed.deployments.hosts("p", "m", "v1"), lambda hosts: hosts == [])
    shed.behave(version, "slow")  # it takes longer to wake up than it would stay awake
    seen: list[tuple[ServingState, int]] = []
    shed.routes.listen(lambda: seen.append((shed.route("v1").state, len(shed.route("v1").hosts))))
    shed.deployments.activate("p", "m", "v1")
    eventually(lambda: (ServingState.READY, 1) in seen)
    assert seen[: seen.index((ServingState.READY, 1))] == [(ServingState.WAKING, 0)]
    shed.close()


def test_deleting_drains_and_takes_all_away(shed: Shed) -> None:
    shed.create("v1")
    version = shed.until("v1")
    [host] = shed.route("v1").hosts
    shed.traffic.look = lambda: "v1" in shed.routes.models["p", "m"].versions
    shed.delete("v1")
    eventually(lambda: shed.models.versions("p", "m"), lambda versions: not versions)
    eventually(lambda: shed.operations.get("p", "delete_v1").done)
    assert shed.traffic.seen == [False]
    assert shed.hosts.status(host.key) is None
    eventually(lambda: shed.pins.folder("p", version.files).exists(), lambda there: not there)
    eventually(lambda: shed.routes.models["p", "m"].default, lambda default: not default)
    folders = (shed.home.hosts, shed.home.models)
    eventually(lambda: [path.name for folder in folders for path in folder.iterdir()], [".sockets"].__eq__)


def test_hosts_that_end_slowly_hold_up_no_others(shed: Shed) -> None:
    names = [f"v{number}" for number in range(6)]
    for name in names:
        shed.create(name)
        shed.until(name)
    going = threading.Event()
    shed.traffic.look = lambda: going.wait(90)
    for name in names:
        shed.delete(name)
    eventually(lambda: len(shed.traffic.waits), (6).__eq__)  # each waits for its last answers
    shed.create("another")
    shed.until("another")
    assert len(shed.until_route("another", ServingState.READY).hosts) == 1
    going.set()
    eventually(lambda: [each.id for each in shed.models.versions("p", "m")], ["another"].__eq__)


def test_a_row_goes_last_so_that_no_folder_is_left_without_one(shed: Shed) -> None:
    shed.create("v1")
    shed.until("v1")
    folder = shed.hosts.folder("p", "m", "v1")
    assert folder.is_dir()
    seen: list[bool] = []
    shed.routes.listen(lambda: None if shed.models.versions("p", "m") else seen.append(folder.exists()))
    shed.delete("v1")
    eventually(lambda: seen)
    assert not any(seen)


def test_files_stay_as_long_as_a_version_has_them(shed: Shed) -> None:
    shed.create("v1")
    version = shed.until("v1")
    shed.create_from("v2", "gs://bucket/v1")
    shed.until("v2")
    shed.delete("v2")
    eventually(lambda: shed.operations.get("p", "delete_v2").done)
    assert shed.pins.folder("p", version.files).is_dir()


def test_the_next_server_serves_what_was_ready(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    shed.open()
    shed.create("v1")
    shed.until("v1")
    shed.close()
    shed.open()
    assert len(shed.until_route("v1", ServingState.READY).hosts) == 1
    shed.close()


def test_the_next_server_goes_on_with_a_creation(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    shed.open()
    version = shed.create("v1", "hang", saved_model=False)
    eventually(lambda: shed.deployments.progress("p", "m", "v1"), lambda text: text.startswith("Loading"))
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
        raise NotFoundError("The runtime was taken away.")

    shed.runtime.built = refuse
    shed.open()
    route = eventually(lambda: shed.route("v1"), lambda route: bool(route.reason))
    assert route.state in (ServingState.STARTING, ServingState.UNHEALTHY)
    assert route.reason == "The runtime was taken away."
    shed.close()


def test_a_version_whose_row_is_unreadable_keeps_its_hosts_and_holds_up_no_other(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    shed.open()
    shed.create("v1")
    shed.until("v1")
    [host] = shed.deployments.hosts("p", "m", "v1")
    damage = sa.text("update versions set details = 'damaged' where id = 'v1'")
    with shed.database.write() as tx:
        tx.run(damage)
    with pytest.raises(DataLossError, match=r"version v1 of model m of project p in the database can't be read"):
        shed.models.version("p", "m", "v1")
    shed.create("v2")
    shed.until("v2")
    shed.deployments.step()
    assert [found["pid"] for found in shed.deployments.hosts("p", "m", "v1")] == [host["pid"]]
    assert runtime_in_use(shed.models, "any")
    shed.close()

    shed.open()
    shed.until_route("v2", ServingState.READY)
    shed.close()


class RefusingModels(ModelStore):
    """A store that refuses the writes of some versions, as a database does."""

    refused: frozenset[str] = frozenset()

    def record_version(self, version: Version, operation: Operation | None = None) -> Version:
        if version.id in self.refused:
            raise UnavailableError(f"The database does not take {version.id}.")
        return super().record_version(version, operation)


class ForgetfulModels(ModelStore):
    """A store that loses the first answers of the database to READY, after the row was written or before."""

    lost: tuple[bool, ...] = (False, True)  #: whether the row is written, for each

    def record_version(self, version: Version, operation: Operation | None = None) -> Version:
        if version.state is not VersionState.READY or not self.lost:
            return super().record_version(version, operation)
        [written, *left] = self.lost
        self.lost = tuple(left)
        if written:
            super().record_version(version, operation)
        raise DatabaseUnavailableError("The connection was lost.")


def test_an_outage_of_the_database_does_not_fail_a_version(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    models = shed.models = ForgetfulModels(shed.database)
    shed.open()
    shed.create("v1")
    shed.until("v1")
    assert models.lost == ()
    shed.until_route("v1", ServingState.READY)
    shed.close()


def test_a_version_whose_row_cannot_be_written_holds_up_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shed = Shed(tmp_path)
    models = shed.models = RefusingModels(shed.database)
    shed.open()
    models.refused = frozenset({"v1"})
    shed.create("v1")
    shed.create("v2")
    shed.until("v2")
    eventually(lambda: "The database does not take v1." in caplog.text)
    assert models.version("p", "m", "v1").state is VersionState.CREATING
    models.refused = frozenset()
    shed.until("v1")
    shed.close()
