"""The loop that carries out rollouts, on a real database, with counts as a test gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from trainshed.control.deployments.rollouts import RolloutController
from trainshed.domain.models.model import Model, read_model
from trainshed.domain.models.version import Version, VersionState
from trainshed.domain.models.version_details import VersionDetails
from trainshed.domain.operations import Operation
from trainshed.errors import FailedPreconditionError, NotFoundError, TrainshedError
from trainshed.gateway.metrics import Totals
from trainshed.gateway.shadow import ShadowTotals
from trainshed.node import crashpoints
from trainshed.node.crashpoints import FAIL, VARIABLE
from trainshed.services.models.rollouts import Rollouts
from trainshed.store.database import Database
from trainshed.store.models import ModelChange, ModelStore
from trainshed.testing.fakes.databases import migrated_database
from trainshed.testing.fakes.deployments import FakeDeployments

PLAN = {"version": "v2", "steps": [10, 100], "stepSeconds": 60, "minRequests": 10, "abortIf": ["error_rate>5%"]}


class Counts:
    """Counts of requests as a test adds them."""

    def __init__(self) -> None:
        self.own: dict[str, Totals] = {}
        self.shadow = ShadowTotals()

    def add(self, version: str, count: int, *, ok: bool = True, seconds: float = 0.01) -> None:
        for _ in range(count):
            self.own.setdefault(version, Totals()).add(seconds, ok=ok)

    def requests(self, project: str, model: str, version: str) -> Totals:
        return self.own.get(version, Totals()).copy()

    def shadow_requests(self, project: str, model: str, version: str) -> ShadowTotals:
        return self.shadow.copy()


class Server:
    """The controller and the service on one database, as a server has them."""

    def __init__(self, database: Database) -> None:
        self.models, self.counts = ModelStore(database), Counts()
        self.now_us = 1_000_000
        self.deployments = FakeDeployments(database)
        self.control = RolloutController(self.models, self.counts, self.deployments.publish, clock=lambda: self.now_us)
        self.rollouts = Rollouts(self.models, self.deployments, self.control, clock=lambda: self.now_us)

    @property
    def model(self) -> Model:
        return self.models.get("p", "m")

    def start(self, **plan: Any) -> dict[str, Any]:
        started = self.rollouts.create("p", "m", {**PLAN, **plan})
        self.control.step()
        return started

    def after(self, seconds: float) -> dict[str, Any]:
        """The last rollout after a pass at a later time."""
        self.now_us += int(seconds * 1_000_000)
        self.control.step()
        newest: dict[str, Any] = self.rollouts.list("p", "m")["rollouts"][0]
        return newest


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(migrated_database(tmp_path / "state.db")) as database:
        store = ModelStore(database)
        store.add(read_model({"name": "m"}, "p", now_us=1))
        for name in ("v1", "v2", "v3"):
            version = Version(
                project="p", model="m", id=name, body={}, details=VersionDetails(runtime="2.21"), created_us=1
            )
            store.add_version(version, Operation.begin("p", f"create_{name}", {}, now_us=1))
        FakeDeployments(database).wake()
        yield database


@pytest.fixture
def server(database: Database) -> Server:
    return Server(database)


def test_a_good_version_goes_through_its_steps_and_becomes_the_default(server: Server) -> None:
    server.counts.add("v2", 500, ok=False)  # before it began
    server.start()
    assert server.model.split == {"v1": 90, "v2": 10}
    assert "0 of 10 requests" in server.after(61)["waitsFor"]
    server.counts.add("v2", 10)
    body = server.after(1)
    assert (body["stage"], server.model.split) == (1, {"v2": 100})
    assert body["measured"]["version"]["requests"] == 0  # counted anew in each stage
    server.counts.add("v2", 10)
    assert server.after(30)["waitsFor"] == "30 s of this stage are left."
    done = server.after(31)
    assert (done["state"], server.model.default_version, server.model.split) == ("PROMOTED", "v2", {})
    assert server.model.previous_version == "v1"
    assert len(done["events"]) == 3
    assert server.deployments.published.count(("p", "m")) == 3  # start, step, end


def test_a_version_that_fails_is_rolled_back_with_the_reason(server: Server) -> None:
    server.start()
    server.counts.add("v2", 3, ok=False)
    body = server.after(0)
    assert body["state"] == "ROLLED_BACK"
    assert "error_rate>5%: 3 requests failed" in body["reason"]
    assert (server.model.default_version, server.model.split) == ("v1", {})
    assert server.after(600)["events"] == body["events"]  # nothing happens after the end


def test_wrong_answers_of_shadow_traffic_roll_back(server: Server) -> None:
    server.start(shadowSeconds=60, abortIf=["changed>10%"])
    assert server.model.split == {}
    for _ in range(10):
        server.counts.shadow.requests.add(0.01, ok=True)
    server.counts.shadow.compared, server.counts.shadow.changed = 10, 2
    assert "changed>10%: 2 answers changed" in server.after(0)["reason"]


def test_a_restart_goes_on_where_it_was(server: Server, database: Database) -> None:
    server.start()
    server.counts.add("v2", 10)
    assert server.after(61)["stage"] == 1
    again = Server(database)
    again.now_us = server.now_us
    again.control.step()
    again.counts.add("v2", 10)
    assert again.after(30)["stage"] == 1
    assert again.after(31)["state"] == "PROMOTED"


def test_a_stage_that_was_written_is_routed_by_a_later_pass(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.start()
    server.counts.add("v2", 3, ok=False)
    published = len(server.deployments.published)
    monkeypatch.setenv(VARIABLE, f"rollout.stage.written:{FAIL}:1")
    crashpoints.arm()
    try:
        server.after(0)
    finally:
        monkeypatch.delenv(VARIABLE)
        crashpoints.arm()
    assert (server.model.split, len(server.deployments.published)) == ({}, published)
    server.after(0)
    assert len(server.deployments.published) == published + 1


def change(server: Server, decide: Callable[[Model, dict[str, Version]], Model]) -> None:
    server.models.change(
        "p", "m", lambda model, versions: ModelChange(model=decide(model, {each.id: each for each in versions}))
    )


def test_what_would_disturb_a_rollout_is_refused_while_it_runs(server: Server) -> None:
    server.start()
    for decide in (
        lambda model, versions: model.with_default(versions["v3"]),
        lambda model, versions: model.with_split({"v1": 50, "v3": 50}, versions.values()),
    ):
        with pytest.raises(FailedPreconditionError, match="--stop"):
            change(server, decide)
    versions = {each.id: each for each in server.models.versions("p", "m")}
    for name in ("v1", "v2"):
        with pytest.raises(FailedPreconditionError, match="--stop"):
            server.model.check_can_lose(versions[name], versions.values())
    server.model.check_can_lose(versions["v3"], versions.values())
    with pytest.raises(FailedPreconditionError, match="is being rolled out"):
        server.start(version="v3")


@pytest.mark.parametrize(
    ("plan", "error"),
    [
        ({"version": "v9"}, NotFoundError),
        ({"version": "v1"}, FailedPreconditionError),
    ],
)
def test_a_rollout_of_a_version_that_cannot_be_is_refused(
    server: Server, plan: dict[str, Any], error: type[TrainshedError]
) -> None:
    with pytest.raises(error):
        server.start(**plan)
    change(server, lambda model, versions: model.with_split({"v1": 50, "v3": 50}, versions.values()))
    with pytest.raises(FailedPreconditionError, match="split"):
        server.start()


def test_people_stop_and_promote(server: Server) -> None:
    first = server.start()
    stopped = server.rollouts.stop("p", "m", first["id"])
    assert (stopped["state"], server.model.split, server.model.default_version) == ("STOPPED", {}, "v1")
    with pytest.raises(FailedPreconditionError, match="has ended: STOPPED"):
        server.rollouts.promote("p", "m", first["id"])
    second = server.start()
    assert second["id"] == "2"
    assert server.rollouts.promote("p", "m", "2")["state"] == "PROMOTED"
    assert server.model.default_version == "v2"
    with pytest.raises(NotFoundError):
        server.rollouts.get("p", "m", "3")
    server.start(version="v3")
    change(server, lambda model, versions: model.rolled_back(versions.values(), now_us=5))
    assert [each["state"] for each in server.rollouts.list("p", "m")["rollouts"]] == ["STOPPED", "PROMOTED", "STOPPED"]
    assert server.model.default_version == "v2"


def test_a_version_that_stops_to_serve_ends_its_rollout(server: Server) -> None:
    server.start()
    version = server.models.version("p", "m", "v2")
    server.models.change("p", "m", lambda model, versions: ModelChange(version=version.to(VersionState.DELETING)))
    assert "v2 is not READY any more" in server.after(0)["reason"]
    assert server.model.split == {}
