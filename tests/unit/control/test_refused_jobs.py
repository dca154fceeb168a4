"""Jobs whose rows can't be written or read: the others go on in the same pass, and an outage is seen as one."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from trainshed.control.jobs.controller import RETRY_INTERVAL_S, JobController
from trainshed.control.jobs.engines import EngineRegistry, RegisteredEngine
from trainshed.domain.jobs.job import Job, JobEvent, JobEventKind
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.domain.times import now_us
from trainshed.engines.base import AttemptSpec, GangRequest, Outage
from trainshed.errors import DataLossError, DiskFullError, InvalidArgumentError, UnavailableError
from trainshed.store.database import Database
from trainshed.store.jobs import JobStore
from trainshed.testing.contracts.engines import FakeEngine
from trainshed.testing.eventually import eventually
from trainshed.testing.fakes.attempts import attempt_folder, attempt_spec
from trainshed.testing.fakes.databases import migrated_database

PROJECT = "p-one"
CONTROLLERS: list[JobController] = []  # to be stopped after each test
REFUSAL = UnavailableError("The row is locked.")


class RefusingStore(JobStore):
    """A store that refuses the writes of some jobs with an error of each, as a database does."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.database = database
        self.refused: dict[str, Exception] = {}

    def record(self, job: Job, events: Iterable[JobEvent] = ()) -> Job:
        self._refuse(job)
        return super().record(job, events)

    def tell(self, job: Job, *events: JobEvent) -> None:
        self._refuse(job)
        super().tell(job, *events)

    def _refuse(self, job: Job) -> None:
        if job.id in self.refused:
            raise self.refused[job.id]

    def damage(self, *job_ids: str) -> None:
        with self.database.write() as tx:
            for job_id in job_ids:
                tx.run(sa.text("update jobs set body = '[]' where id = :id"), {"id": job_id})

    def states(self, *job_ids: str) -> list[JobState]:
        return [self.get(PROJECT, job_id).state for job_id in job_ids]


class ReservingEngine(FakeEngine):
    """An engine that remembers what was reserved, and what was released."""

    def __init__(self) -> None:
        super().__init__(slots=9)
        self.held: set[Path] = set()
        self.released: list[Path] = []

    def reservations(self) -> Collection[Path]:
        return set(self.held)

    def release(self, attempt: Path) -> None:
        self.held.discard(attempt)
        self.released.append(attempt)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RefusingStore]:
    database = migrated_database(tmp_path / "state.db")
    yield RefusingStore(database)
    while CONTROLLERS:  # their threads use the database
        CONTROLLERS[-1].stop()
        CONTROLLERS.pop().join()
    database.close()


def gang(job: Job) -> GangRequest:
    if "gangless" in job.id:
        raise ValueError("no gang")
    return GangRequest(
        project=job.project, job=job.id, attempt=job.attempt, folder=attempt_folder(job), machines={"w": ""}
    )


def controller(store: JobStore, engine: FakeEngine) -> JobController:
    registered = RegisteredEngine(engine=engine, prepare=attempt_spec, supports=frozenset({"training job"}))
    registry = EngineRegistry({"local": registered}, default="local")
    CONTROLLERS.append(JobController(store, registry, gang=gang, max_launches=9, poll_s=0.01))
    return CONTROLLERS[-1]


def add(store: JobStore, *job_ids: str) -> None:
    for job_id in job_ids:
        store.add(Job(project=PROJECT, id=job_id, workload=Training.parse({}), created_us=now_us()), ())


def run(control: JobController, store: JobStore, *job_ids: str) -> None:
    """Add jobs, and step until all of them run."""
    add(store, *job_ids)

    def states() -> set[JobState]:
        control.step()
        return {store.get(PROJECT, job_id).state for job_id in job_ids}

    eventually(states, lambda states: states == {JobState.RUNNING})


@pytest.mark.parametrize("error", [REFUSAL, ZeroDivisionError("a bug")], ids=["refused", "unforeseen"])
def test_a_job_that_cannot_be_admitted_blocks_none_and_is_tried_again(
    store: RefusingStore, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    control = controller(store, FakeEngine(slots=9))
    add(store, "bad", "good")
    store.refused = {"bad": error}
    assert control.step(), "the next pass comes soon"
    assert store.get(PROJECT, "bad").state is JobState.QUEUED
    assert store.get(PROJECT, "good").state is not JobState.QUEUED
    [failure] = [record.getMessage() for record in caplog.records if "step_failed" in record.getMessage()]
    assert failure == f"job.step_failed name=projects/{PROJECT}/jobs/bad reason={error}"
    store.refused = {}
    control.step()
    assert store.get(PROJECT, "bad").state is not JobState.QUEUED


def test_a_job_that_was_not_admitted_leaves_its_capacity_to_others(store: RefusingStore) -> None:
    engine = ReservingEngine()
    control = controller(store, engine)
    add(store, "bad")
    engine.held = {Path(f"/attempts/{PROJECT}/bad/1")}
    store.refused = {"bad": REFUSAL}
    control.step()
    assert engine.held == set()


def test_more_jobs_than_one_read_has_that_cannot_be_admitted_block_none(store: RefusingStore) -> None:
    control = controller(store, FakeEngine(slots=99))
    bad = [f"bad_{number}" for number in range(20)]
    add(store, *bad, "gangless", "good")
    store.refused = dict.fromkeys(bad, REFUSAL)
    control.step()
    assert store.get(PROJECT, "good").state is not JobState.QUEUED


def test_a_transition_that_cannot_be_written_blocks_none(store: RefusingStore) -> None:
    engine = FakeEngine(slots=9)
    control = controller(store, engine)
    run(control, store, "bad", "good")
    for job_id in ("bad", "good"):
        engine.finish(attempt_folder(store.get(PROJECT, job_id)))
    store.refused = {"bad": REFUSAL}
    assert control.step()
    assert store.states("bad", "good") == [JobState.RUNNING, JobState.SUCCEEDED]
    store.refused = {}
    control.step()
    assert store.states("bad") == [JobState.SUCCEEDED]


def test_a_notice_that_cannot_be_written_blocks_none(store: RefusingStore) -> None:
    engine = FakeEngine(slots=9)
    control = controller(store, engine)
    run(control, store, "bad", "good")
    engine.current_outage = Outage(engine="Ray", since_us=1)
    store.refused = {"bad": REFUSAL}
    control.step()

    def notices(job_id: str) -> int:
        return sum(event.kind is JobEventKind.OUTAGE for event in store.events(PROJECT, job_id))

    assert (notices("bad"), notices("good")) == (0, 1)
    store.refused = {}
    control.step()
    assert (notices("bad"), notices("good")) == (1, 1)


@pytest.mark.parametrize("error", [REFUSAL, DiskFullError("The disk is full.")], ids=["unavailable", "full"])
def test_a_database_that_refuses_all_ends_the_pass(store: RefusingStore, error: Exception) -> None:
    control = controller(store, FakeEngine(slots=9))
    add(store, "a", "b", "c")
    store.refused = dict.fromkeys("abc", error)
    with pytest.raises(type(error), match=str(error)):
        control.step()
    store.refused = dict.fromkeys("ab", error)
    assert control.step(), "it takes one: this is no outage"
    assert store.get(PROJECT, "c").state is not JobState.QUEUED


def test_a_database_that_cannot_be_read_ends_the_pass(store: RefusingStore) -> None:
    control = controller(store, FakeEngine(slots=9))
    add(store, "a")
    with store.database.write() as tx:
        tx.run(sa.text("alter table jobs rename to jobs_gone"))
    with pytest.raises(UnavailableError, match="no such table"):
        control.step()


def test_a_failed_launch_that_cannot_be_recorded_is_no_hot_loop(store: RefusingStore) -> None:
    launches: list[float] = []

    def prepare(job: Job) -> AttemptSpec:
        launches.append(time.monotonic())
        store.refused = {"bad": REFUSAL}
        raise InvalidArgumentError("There is no such thing.")

    registered = RegisteredEngine(engine=FakeEngine(), prepare=prepare, supports=frozenset({"training job"}))
    registry = EngineRegistry({"local": registered}, default="local")
    control = JobController(store, registry, gang=gang, max_launches=9, poll_s=0.01)
    add(store, "bad")

    def count() -> int:
        control.step()
        return len(launches)

    eventually(count, lambda count: count == 2)
    control.stop()
    control.join()
    assert launches[1] - launches[0] >= RETRY_INTERVAL_S


def test_queued_jobs_that_are_unreadable_block_none(store: RefusingStore, caplog: pytest.LogCaptureFixture) -> None:
    control = controller(store, FakeEngine(slots=99))
    damaged = [f"damaged_{number}" for number in range(20)]
    add(store, *damaged, "good")
    store.damage(*damaged)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            control.step()
    assert store.get(PROJECT, "good").state is not JobState.QUEUED
    unreadable = [record.getMessage() for record in caplog.records if "row.unreadable" in record.getMessage()]
    assert len(unreadable) == 20, "each is logged once"
    assert f"The row of job damaged_7 of project {PROJECT} in the database can't be read" in "\n".join(unreadable)


def test_an_active_job_that_is_unreadable_keeps_its_reservation_and_goes_on_when_repaired(store: RefusingStore) -> None:
    engine = ReservingEngine()
    control = controller(store, engine)
    run(control, store, "unread", "good")
    attempts = [attempt_folder(store.get(PROJECT, job_id)) for job_id in ("unread", "good")]
    engine.held = {*attempts, Path(f"/attempts/{PROJECT}/ended/1")}
    store.damage("unread")
    for attempt in attempts:
        engine.finish(attempt)
    control.step()
    assert store.get(PROJECT, "good").state is JobState.SUCCEEDED
    with pytest.raises(DataLossError, match="job unread of project"):
        store.get(PROJECT, "unread")
    control.step()
    assert engine.held == {attempts[0]}
    assert store.runtime_in_use("")
    with store.database.write() as tx:
        tx.run(sa.text("""update jobs set body = '{"trainingInput":{}}' where id = 'unread'"""))
    control.step()
    assert store.states("unread") == [JobState.SUCCEEDED]
