"""Quotas on SQLite and PostgreSQL: what counts, and that several at once can't take the last place."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.domain.models.model import Model
from trainshed.domain.models.version import Version
from trainshed.domain.models.version_details import VersionDetails
from trainshed.domain.operations import Operation
from trainshed.errors import NotFoundError, QuotaExceededError
from trainshed.services.access.quotas import Quotas
from trainshed.store.access.quotas import QuotaStore
from trainshed.store.database import Database
from trainshed.store.jobs import JobStore
from trainshed.store.models import ModelChange, ModelStore

PROJECT = "p-one"
DAY_US = 86_400_000_000


class Shed:
    def __init__(self, database: Database) -> None:
        self.now = 10 * DAY_US
        self.store = QuotaStore(database)
        self.quotas = Quotas(self.store, clock=lambda: self.now)
        self.jobs = JobStore(database)
        self.models = ModelStore(database)

    def limit(self, name: str, value: int, user: str = "", project: str = PROJECT) -> None:
        self.quotas.set(project, {"name": name, "user": user, "value": value})

    def submit(self, job_id: str, user: str = "ada", *, replicas: int = 1, priority: int = 0, **values: Any) -> Job:
        job = Job(
            project=values.pop("project", PROJECT),
            id=job_id,
            workload=Training.parse({}),
            user=user,
            replicas=replicas,
            priority=priority,
            created_us=self.now,
            **values,
        )
        return self.jobs.add(job, (), self.quotas.check_job(job, max(1, replicas)))

    def deploy(self, model: str, version: str, body: dict[str, Any] | None = None) -> None:
        made = Version(
            project=PROJECT,
            model=model,
            id=version,
            body=body or {},
            details=VersionDetails(runtime="2.15"),
            created_us=self.now,
        )
        operation = Operation.begin(PROJECT, f"create_{model}_{version}-1", {}, now_us=self.now)
        self.models.add_version(made, operation, self.quotas.check_version(PROJECT, made.host_range.maximum))

    def scale(self, model: str, version: str, body: dict[str, Any]) -> None:
        def decide(_: Model, versions: Sequence[Version]) -> ModelChange:
            [before] = [each for each in versions if each.id == version]
            after = replace(before, body=body)
            more = after.host_range.maximum - before.host_range.maximum
            return ModelChange(version=after, check=self.quotas.check_hosts(PROJECT, more))

        self.models.change(PROJECT, model, decide)

    def used(self) -> dict[tuple[str, str], int | None]:
        return {(each["name"], each["user"]): each["used"] for each in self.quotas.listed(PROJECT)}


@pytest.fixture
def shed(database: Database) -> Shed:
    return Shed(database)


def test_queued_replicas_are_counted_for_the_project_and_the_user(shed: Shed) -> None:
    shed.limit("queued-replicas", 6)
    shed.limit("queued-replicas", 3, "ada")
    shed.submit("a", replicas=2)
    with pytest.raises(QuotaExceededError, match=r"User ada .* 2 of 3 replicas in the queue .* needs 2 more"):
        shed.submit("b", replicas=2)
    shed.submit("b", replicas=1)
    shed.submit("c", "bob", replicas=3)
    with pytest.raises(QuotaExceededError, match="Project p-one has reached a limit: 6 of 6"):
        shed.submit("d", "bob")
    shed.submit("d", "bob", project="p-two")
    assert shed.used() == {("queued-replicas", ""): 6, ("queued-replicas", "ada"): 3}
    shed.jobs.record(shed.jobs.get(PROJECT, "c").to(JobState.PREPARING, now_us=shed.now))
    shed.submit("d", "bob")
    with pytest.raises(NotFoundError):
        shed.jobs.get(PROJECT, "e")


def test_jobs_of_a_day_are_counted_without_trials(shed: Shed) -> None:
    shed.limit("jobs-per-day", 2, "*")
    shed.submit("a", replicas=0)
    shed.submit("a.trial-1", parent="a", trial=1)
    shed.submit("b")
    with pytest.raises(QuotaExceededError, match="2 of 2 jobs that were submitted"):
        shed.submit("c")
    shed.submit("d", "bob")
    shed.now += DAY_US + 10
    shed.submit("c")


def test_a_gang_that_never_fits_and_a_priority_that_is_too_high_are_refused(shed: Shed) -> None:
    shed.limit("running-replicas", 4, project="*")
    shed.limit("highest-priority", 10)
    with pytest.raises(QuotaExceededError):
        shed.submit("a", replicas=5)
    with pytest.raises(QuotaExceededError):
        shed.submit("a", priority=11)
    for number in range(3):
        shed.submit(f"fits-{number}", replicas=4, priority=10)
    assert shed.used() == {("running-replicas", ""): 0, ("highest-priority", ""): None}


def test_versions_of_all_models_are_counted(shed: Shed) -> None:
    for model in ("m", "n"):
        shed.models.add(Model(project=PROJECT, id=model, body={}, created_us=1))
    shed.limit("versions", 2)
    shed.deploy("m", "v1")
    shed.deploy("n", "v1")
    with pytest.raises(QuotaExceededError, match="2 of 2 versions of models"):
        shed.deploy("m", "v2")
    assert not shed.models.has_version(PROJECT, "m", "v2")


def test_hosts_count_as_many_as_a_version_can_have(shed: Shed) -> None:
    shed.models.add(Model(project=PROJECT, id="m", body={}, created_us=1))
    shed.limit("hosts", 5)
    shed.deploy("m", "asleep", {"autoScaling": {"minNodes": 0}})
    shed.deploy("m", "scales", {"autoScaling": {"minNodes": 1, "maxNodes": 3}})
    with pytest.raises(QuotaExceededError, match=r"4 of 5 hosts of versions .*, and this needs 2 more"):
        shed.deploy("m", "two", {"manualScaling": {"nodes": 2}})
    shed.scale("m", "asleep", {"manualScaling": {"nodes": 2}})
    with pytest.raises(QuotaExceededError, match=r"5 of 5 hosts of versions .*, and this needs 1 more"):
        shed.scale("m", "asleep", {"manualScaling": {"nodes": 3}})
    assert shed.models.version(PROJECT, "m", "asleep").nodes == 2
    shed.limit("hosts", 1)
    shed.scale("m", "scales", {"autoScaling": {"minNodes": 1, "maxNodes": 2}})
    assert shed.used() == {("hosts", ""): 4}


@pytest.mark.parametrize("what", ["jobs", "versions"])
def test_many_at_once_cannot_take_more_than_the_limit(shed: Shed, what: str) -> None:
    shed.limit("queued-replicas", 5)
    shed.limit("versions", 5)
    for number in range(16):
        shed.models.add(Model(project=PROJECT, id=f"m{number}", body={}, created_us=1))

    def create(number: int) -> bool:
        try:
            if what == "jobs":
                shed.submit(f"j{number}")
            else:
                shed.deploy(f"m{number}", "v1")
        except QuotaExceededError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(create, range(16))) == 5
    assert shed.used()["queued-replicas" if what == "jobs" else "versions", ""] == 5


def test_limits_are_set_replaced_removed_and_read_by_another_server(shed: Shed, database: Database) -> None:
    shed.limit("versions", 2)
    shed.limit("versions", 3)
    shed.limit("queued-replicas", 9, "*", project="*")
    assert [(each["project"], each["user"], each["value"]) for each in shed.quotas.all()] == [
        ("*", "*", 9),
        (PROJECT, "", 3),
    ]
    assert Quotas(QuotaStore(database)).all() == shed.quotas.all()
    assert [(each["user"], each["value"]) for each in shed.quotas.of_user(PROJECT, "ada")] == [("ada", 9)]
    shed.quotas.unset(PROJECT, {"name": "versions"})
    with pytest.raises(NotFoundError):
        shed.quotas.unset(PROJECT, {"name": "versions"})
    assert len(shed.quotas.all()) == 1
