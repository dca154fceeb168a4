"""The loop on a real store and an engine in memory: claims, launches, cancels, and what happens when parts fail."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from trainshed.background import BackgroundLoop
from trainshed.control.jobs import controller, poll_interval
from trainshed.control.jobs.controller import JobController
from trainshed.control.jobs.engines import EngineRegistry, RegisteredEngine
from trainshed.control.jobs.running_limits import Limits
from trainshed.control.jobs.secret_files import SecretFiles
from trainshed.domain.access.quotas import AppliedLimit, QuotaName
from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.reconcile import ObservedAttempt
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import TRAINING, Training
from trainshed.domain.names import ENGINE_LABEL
from trainshed.domain.times import now_us
from trainshed.engines.base import AttemptSpec, Engine, GangRequest, Outage
from trainshed.errors import CannotProceedError, DatabaseUnavailableError, InvalidArgumentError, UnavailableError
from trainshed.store.jobs import JobStore
from trainshed.testing.contracts.engines import FakeEngine
from trainshed.testing.eventually import eventually
from trainshed.testing.fakes.attempts import attempt_folder, attempt_spec
from trainshed.testing.fakes.databases import migrated_database

PROJECT = "p-one"
CONTROLLERS: list[JobController] = []  # to be stopped after each test


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JobStore]:
    database = migrated_database(tmp_path / "state.db")
    yield JobStore(database)
    while CONTROLLERS:  # their threads use the database
        CONTROLLERS[-1].stop()
        CONTROLLERS.pop().join()
    database.close()


def gang(job: Job) -> GangRequest:
    machines = {f"worker-replica-{number}": "" for number in range(1 + job.training.worker_count)}
    return GangRequest(
        project=job.project, job=job.id, attempt=job.attempt, folder=attempt_folder(job), machines=machines
    )


def sites(
    prepare: Callable[[Job], AttemptSpec] = attempt_spec,
    clear: Callable[[Job], None] = lambda job: None,
    **engines: Engine,
) -> EngineRegistry:
    takes = frozenset({"training job"})
    table = {
        name: RegisteredEngine(engine=engine, prepare=prepare, clear=clear, supports=takes)
        for name, engine in engines.items()
    }
    return EngineRegistry(table, default="local")


class Brittle(FakeEngine):
    """An engine that fails in a way that nobody foresaw."""

    def cancel(self, attempt: Path) -> None:
        raise ZeroDivisionError(f"{attempt} can't be cancelled")


class Asked(FakeEngine):
    """An engine that lets a test wait until the loop has asked it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()

    def observe(self, attempts: Collection[Path]) -> Mapping[Path, ObservedAttempt]:
        self.asked.set()
        return super().observe(attempts)


class Glanced(FakeEngine):
    """An engine for one replica that counts how often it was asked."""

    def __init__(self) -> None:
        super().__init__(slots=1)
        self.glances = 0
        self._more = threading.Condition()

    def observe(self, attempts: Collection[Path]) -> Mapping[Path, ObservedAttempt]:
        with self._more:
            self.glances += 1
            self._more.notify_all()
        return super().observe(attempts)

    def await_glances(self, count: int) -> None:
        with self._more:
            assert self._more.wait_for(lambda: self.glances >= count, timeout=60)


class Loop:
    """A control loop that a test steps by hand."""

    def __init__(
        self,
        store: JobStore,
        *,
        slots: int = 2,
        prepare: Callable[[Job], AttemptSpec] = attempt_spec,
        engine: FakeEngine | None = None,
        far: FakeEngine | None = None,
        limits: Limits = lambda project, user: (),
        clear: Callable[[Job], None] = lambda job: None,
    ) -> None:
        self.engine = engine or FakeEngine(slots=slots)
        self.far = far or FakeEngine(slots=slots)
        table = sites(prepare, clear, local=self.engine, far=self.far)
        self.control = JobController(store, table, gang=gang, max_launches=max(slots, 9), poll_s=0.01, limits=limits)
        CONTROLLERS.append(self.control)
        self._store = store

    def until(self, job_id: str, state: JobState) -> Job:
        def step() -> Job:
            self.control.step()
            return self._store.get(PROJECT, job_id)

        job = self._store.get(PROJECT, job_id)
        return job if job.state is state else eventually(step, lambda job: job.state is state)


def add(
    store: JobStore,
    name: str,
    *,
    priority: int = 0,
    replicas: int = 1,
    engine: str = "local",
    user: str = "",
    labels: Mapping[str, str] | None = None,
) -> Job:
    workload = Training.parse({"workerCount": str(replicas - 1)})
    job = Job(
        project=PROJECT,
        id=name,
        workload=workload,
        priority=priority,
        replicas=replicas,
        engine=engine,
        user=user,
        labels=labels or {},
        created_us=now_us(),
    )
    return store.add(job, ())


def texts(store: JobStore, name: str) -> list[str]:
    return [event.message for event in store.events(PROJECT, name)]


def test_jobs_beyond_a_limit_of_running_replicas_wait_and_hold_up_nobody(store: JobStore) -> None:
    def limits(project: str, user: str) -> list[AppliedLimit]:
        if user != "ada":
            return []
        return [AppliedLimit(name=QuotaName.RUNNING_REPLICAS, value=2, project=project, user=user)]

    loop = Loop(store, slots=8, limits=limits)
    jobs = [("a1", "ada", 1), ("a2", "ada", 2), ("a3", "ada", 1), ("b1", "bob", 3)]
    for name, user, replicas in jobs:
        add(store, name, user=user, replicas=replicas)
    for name in ("a1", "a3", "b1"):
        loop.until(name, JobState.RUNNING)
    waiting = store.get(PROJECT, "a2")
    assert (waiting.state, waiting.passed_over_us) == (JobState.QUEUED, None)
    assert "user ada of project p-one has 2 of 2 replicas that run or start" in loop.control.quota_reason(waiting)
    assert loop.control.quota_reason(store.get(PROJECT, "b1")) == ""
    for name in ("a1", "a3"):
        loop.engine.finish(attempt_folder(store.get(PROJECT, name)))
        loop.until(name, JobState.SUCCEEDED)
    loop.until("a2", JobState.RUNNING)


def test_secrets_are_removed_when_an_attempt_ends_or_does_not_begin(store: JobStore, tmp_path: Path) -> None:
    files = SecretFiles(lambda project, names: dict.fromkeys(names, "planted-value"))
    written, prepared, cancelled = [], threading.Event(), threading.Event()

    def prepare(job: Job) -> AttemptSpec:
        if job.id == "late":
            prepared.set()
            assert cancelled.wait(60)
        spec = attempt_spec(job)
        files.give(job, replace(spec, folder=tmp_path / job.id))
        written.append(secrets(job.id))
        return spec

    def secrets(name: str) -> set[str]:
        return {path.name for path in tmp_path.glob(f"{name}/secrets*")}

    loop = Loop(store, prepare=prepare, clear=lambda job: files.remove(job, tmp_path / job.id))
    labels = {"trainshed-secret-cert": "file"}
    add(store, "a", labels=labels)
    running = loop.until("a", JobState.RUNNING)
    assert secrets("a") == {"secrets", "secrets.json"}
    loop.engine.finish(attempt_folder(running))
    loop.until("a", JobState.SUCCEEDED)
    assert secrets("a") == set()
    add(store, "late", labels=labels)
    job = loop.until("late", JobState.PREPARING)
    assert prepared.wait(60)
    failure = Failure(cause=FailureCause.CANCELLED)
    store.record(
        job.to(JobState.CANCELLING, now_us=now_us()).to(JobState.CANCELLED, now_us=now_us(), failure=failure), ()
    )
    cancelled.set()
    eventually(lambda: (len(written), secrets("late")), lambda seen: seen == (2, set()))


def test_a_job_goes_from_the_queue_to_its_end(store: JobStore) -> None:
    loop = Loop(store)
    add(store, "a")
    running = loop.until("a", JobState.RUNNING)
    assert (running.attempt, len(loop.engine.launches)) == (1, 1)
    loop.engine.finish(attempt_folder(running))
    ended = loop.until("a", JobState.SUCCEEDED)
    assert ended.ended_us is not None
    assert [e.message for e in store.events(PROJECT, "a")] == [
        "Waiting for job to be provisioned.",
        "Job completed successfully.",
    ]


def test_no_more_run_than_there_are_slots_and_the_best_go_first(store: JobStore) -> None:
    loop = Loop(store, slots=1)
    add(store, "old")
    add(store, "young")
    add(store, "urgent", priority=5)
    first = loop.until("urgent", JobState.RUNNING)
    assert {store.get(PROJECT, name).state for name in ("old", "young")} == {JobState.QUEUED}
    loop.engine.finish(attempt_folder(first))
    loop.until("old", JobState.RUNNING)
    assert store.get(PROJECT, "young").state is JobState.QUEUED


def test_a_gang_is_admitted_as_a_whole(store: JobStore) -> None:
    loop = Loop(store, slots=4)
    add(store, "first", replicas=3)
    add(store, "gang", replicas=4)
    first = loop.until("first", JobState.RUNNING)
    loop.control.step()
    assert store.get(PROJECT, "gang").state is JobState.QUEUED
    assert loop.control.pending_reason(store.get(PROJECT, "gang")) == "1 of 4 places are free"
    loop.engine.finish(attempt_folder(first))
    loop.until("gang", JobState.RUNNING)


def test_a_gang_larger_than_the_machine_runs_when_it_is_alone(store: JobStore) -> None:
    loop = Loop(store, slots=2)
    add(store, "other")
    add(store, "premium", replicas=31)
    other = loop.until("other", JobState.RUNNING)
    loop.control.step()
    assert store.get(PROJECT, "premium").state is JobState.QUEUED
    loop.engine.finish(attempt_folder(other))
    loop.until("premium", JobState.RUNNING)


def test_a_job_that_cannot_be_prepared_fails_with_the_reason(store: JobStore) -> None:
    def prepare(job: Job) -> AttemptSpec:
        raise InvalidArgumentError("There is no such thing.")

    loop = Loop(store, prepare=prepare)
    add(store, "a")
    failure = Failure(cause=FailureCause.LAUNCH_FAILED, message="There is no such thing.")
    assert loop.until("a", JobState.FAILED).failure == failure
    assert [e.message for e in store.events(PROJECT, "a")][-2:] == ["There is no such thing.", "Job failed."]


def test_an_outage_of_the_database_during_a_launch_does_not_fail_the_job(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "RETRY_INTERVAL_S", 0.01)
    outages = [DatabaseUnavailableError("The database can't be used right now.")] * 3

    def prepare(job: Job) -> AttemptSpec:
        if outages:
            raise outages.pop()
        return attempt_spec(job)

    loop = Loop(store, prepare=prepare)
    add(store, "a")
    assert loop.until("a", JobState.RUNNING).attempt == 1
    assert outages == []


def test_an_error_of_our_own_fails_the_job_and_does_not_stop_the_loop(store: JobStore) -> None:
    def prepare(job: Job) -> AttemptSpec:
        if job.id == "bad":
            raise ZeroDivisionError("oops")
        return attempt_spec(job)

    loop = Loop(store, prepare=prepare)
    add(store, "bad")
    add(store, "good")
    failure = loop.until("bad", JobState.FAILED).failure
    assert failure is not None
    assert "Trainshed itself failed" in failure.message
    loop.until("good", JobState.RUNNING)


def test_one_job_that_cannot_be_dealt_with_does_not_hold_up_the_others(store: JobStore) -> None:
    loop = Loop(store, engine=Brittle())
    add(store, "stuck")
    add(store, "good")
    stuck, good = loop.until("stuck", JobState.RUNNING), loop.until("good", JobState.RUNNING)
    store.record(stuck.to(JobState.CANCELLING, now_us=now_us()))
    loop.engine.finish(attempt_folder(good))
    loop.until("good", JobState.SUCCEEDED)
    assert store.get(PROJECT, "stuck").state is JobState.CANCELLING


def test_many_jobs_that_wait_for_a_runtime_do_not_hold_up_one_that_needs_none(store: JobStore) -> None:
    built = threading.Event()

    def prepare(job: Job) -> AttemptSpec:
        if job.id.startswith("waits"):
            assert built.wait(90)
        return attempt_spec(job)

    loop = Loop(store, slots=9, prepare=prepare)
    for number in range(8):
        add(store, f"waits_{number}")
    add(store, "ready")
    loop.until("ready", JobState.RUNNING)
    built.set()
    loop.until("waits_7", JobState.RUNNING)


def test_a_server_that_stops_leaves_an_unfinished_launch_to_the_next(store: JobStore) -> None:
    loop: Loop

    def prepare(job: Job) -> AttemptSpec:
        loop.control.stop()
        raise UnavailableError("The server is stopping.")

    loop = Loop(store, prepare=prepare)
    add(store, "a")
    loop.control.start()
    loop.control.join()
    assert store.get(PROJECT, "a").state is JobState.PREPARING
    assert Loop(store).until("a", JobState.RUNNING).attempt == 1


def test_a_job_cancelled_while_it_is_prepared_is_never_launched(store: JobStore) -> None:
    def prepare(job: Job) -> AttemptSpec:
        current = store.get(PROJECT, job.id)
        store.record(current.to(JobState.CANCELLING, now_us=now_us()))
        return attempt_spec(job)

    loop = Loop(store, prepare=prepare)
    add(store, "a")
    loop.until("a", JobState.CANCELLED)
    assert loop.engine.launches == []


def test_an_engine_that_is_down_leaves_running_jobs_as_they_are(store: JobStore) -> None:
    engine = Asked()
    loop = Loop(store, engine=engine)
    add(store, "a")
    running = loop.until("a", JobState.RUNNING)
    engine.down = True
    engine.asked.clear()
    loop.control.start()
    for _ in range(3):  # the loop has looked, failed, and gone on
        assert engine.asked.wait(90)
        engine.asked.clear()
    assert store.get(PROJECT, "a").state is JobState.RUNNING
    loop.engine.down = False
    loop.engine.finish(attempt_folder(running))
    eventually(lambda: store.get(PROJECT, "a").state, lambda state: state is JobState.SUCCEEDED)
    loop.control.stop()
    loop.control.join()


def test_a_server_that_was_fenced_out_gives_up(store: JobStore) -> None:
    gave_up = threading.Event()

    def check() -> None:
        raise CannotProceedError("Another server uses the database.")

    add(store, "a")
    engine = FakeEngine()
    control = JobController(
        store, sites(local=engine), gang=gang, max_launches=1, poll_s=0.01, check=check, give_up=gave_up.set
    )
    control.start()
    assert gave_up.wait(90)
    control.stop()
    control.join()
    assert engine.launches == []
    assert store.get(PROJECT, "a").state is JobState.QUEUED


def test_while_a_job_runs_and_nothing_is_new_its_row_is_not_read_at_each_glance(store: JobStore) -> None:
    engine = Glanced()
    looks: list[int] = []
    control = JobController(
        store,
        sites(local=engine),
        gang=gang,
        max_launches=1,
        poll_s=0.001,
        check=lambda: looks.append(engine.glances),
    )
    add(store, "a")
    add(store, "b")
    control.start()
    engine.await_glances(100)  # far more than the few looks that the start took
    assert len(looks) < 50
    engine.finish(attempt_folder(store.get(PROJECT, "a")))
    # the end was seen, and made room
    eventually(lambda: store.get(PROJECT, "b").state, lambda state: state is JobState.RUNNING)
    control.stop()
    control.join()


@pytest.mark.fault("F08")
def test_a_lost_supervisor_fails_the_job(store: JobStore) -> None:
    loop = Loop(store)
    add(store, "a")
    loop.engine.lose(attempt_folder(loop.until("a", JobState.RUNNING)))
    assert loop.until("a", JobState.FAILED).failure == Failure(cause=FailureCause.SUPERVISOR_LOST)


def test_a_signal_goes_to_the_current_attempt_on_the_engine_of_its_job(store: JobStore) -> None:
    loop = Loop(store)
    add(store, "a", engine="far")
    running = loop.until("a", JobState.RUNNING)
    loop.control.kill_replica(running, "worker-replica-0", signal.SIGTERM)
    assert (loop.engine.kills, loop.far.kills) == ([], [(attempt_folder(running), "worker-replica-0", signal.SIGTERM)])


def test_a_new_job_is_told_its_engine_and_what_that_lacks(store: JobStore) -> None:
    poor = RegisteredEngine(
        engine=FakeEngine(),
        prepare=attempt_spec,
        supports=frozenset({TRAINING}),
        shortfall=lambda training: "It is small.",
    )
    rich = replace(poor, shortfall=lambda training: "")
    registry = EngineRegistry({"local": poor, "far": rich}, default="local")
    control = JobController(store, registry, gang=gang, max_launches=1, poll_s=0.01)
    training = Training.parse({"pythonModule": "trainer.task"})
    engines = [control.choose_engine(labels, training) for labels in ({}, {ENGINE_LABEL: "far"})]
    assert [(engine, control.shortfall(engine, training)) for engine in engines] == [
        ("local", "It is small."),
        ("far", ""),
    ]


def test_each_engine_has_a_queue_of_its_own(store: JobStore) -> None:
    loop = Loop(store, slots=1)
    add(store, "first")
    add(store, "second")
    add(store, "elsewhere", engine="far")
    loop.until("elsewhere", JobState.RUNNING)
    loop.until("first", JobState.RUNNING)  # each is launched by a thread of its own
    assert [launch.job for launch in loop.far.launches] == ["elsewhere"]
    assert [launch.job for launch in loop.engine.launches] == ["first"]
    assert store.get(PROJECT, "second").state is JobState.QUEUED
    assert loop.control.positions([store.get(PROJECT, "second")]) == {(PROJECT, "second"): 1}


def test_an_engine_that_is_down_does_not_hold_up_another(store: JobStore) -> None:
    loop = Loop(store)
    loop.far.down = True
    add(store, "stuck", engine="far")
    add(store, "good")
    loop.until("good", JobState.RUNNING)
    assert store.get(PROJECT, "stuck").state is JobState.QUEUED
    loop.far.down = False
    loop.until("stuck", JobState.RUNNING)


def test_what_cannot_fit_at_all_holds_nobody_up(store: JobStore) -> None:
    loop = Loop(store, slots=2)
    add(store, "small")
    small = loop.until("small", JobState.RUNNING)
    for number in range(10):
        add(store, f"huge_{number}", replicas=3)
    add(store, "also_small")
    loop.until("also_small", JobState.RUNNING)
    assert store.get(PROJECT, "huge_0").state is JobState.QUEUED
    assert attempt_folder(small) in loop.engine.reservations()


def test_a_reservation_is_released_when_a_job_ends(store: JobStore) -> None:
    loop = Loop(store)
    add(store, "a")
    running = loop.until("a", JobState.RUNNING)
    assert loop.engine.reservations() == [attempt_folder(running)]
    loop.engine.finish(attempt_folder(running))
    loop.until("a", JobState.SUCCEEDED)
    loop.control.step()
    assert loop.engine.reservations() == []


def test_a_reservation_is_released_when_the_job_leaves_the_queue_or_is_no_longer_next(
    store: JobStore,
) -> None:
    loop = Loop(store, slots=1)
    add(store, "busy")
    add(store, "waits")
    add(store, "also_waits")
    busy = loop.until("busy", JobState.RUNNING)
    loop.control.step()
    waits = attempt_folder(store.get(PROJECT, "waits").to(JobState.PREPARING, now_us=now_us()))
    assert loop.engine.reservations() == [attempt_folder(busy), waits]
    add(store, "urgent", priority=9)
    loop.control.step()
    assert waits not in loop.engine.reservations()
    urgent = store.get(PROJECT, "urgent")
    store.record(urgent.to(JobState.CANCELLED, now_us=now_us()))
    loop.control.step()
    assert loop.engine.reservations() == [attempt_folder(busy), waits]


def test_reservations_of_an_earlier_server_are_released(store: JobStore) -> None:
    engine = FakeEngine()
    left = gang(Job(project=PROJECT, id="gone", workload=Training.parse({}), attempt=1, created_us=1))
    engine.reserve(left, ())
    Loop(store, engine=engine).control.step()
    assert engine.reservations() == []


def test_a_place_that_does_not_answer_is_told_once_and_once_that_it_is_back(store: JobStore) -> None:
    loop = Loop(store)
    add(store, "a", engine="far")
    add(store, "b")
    running = loop.until("a", JobState.RUNNING)
    loop.until("b", JobState.RUNNING)
    assert loop.control.outage(running) == ""
    loop.far.current_outage = Outage(engine="The place", since_us=36_131_000_000)
    told = "The place has not answered since 10:02:11 UTC. The job goes on when it does."
    for _ in range(3):
        loop.control.step()
    assert texts(store, "a")[1:] == [told]
    assert loop.control.outage(running) == told
    again = Loop(store, engine=loop.engine, far=loop.far)  # as after a restart of the server
    again.control.step()
    assert texts(store, "a")[1:] == [told]
    loop.far.current_outage = None
    again.control.step()
    again.control.step()
    assert texts(store, "a")[1:] == [told, "The place answers again."]
    assert store.get(PROJECT, "a").state is JobState.RUNNING
    assert len(texts(store, "b")) == 1


def test_a_young_job_is_looked_at_more_often(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    control = JobController(store, sites(local=FakeEngine(slots=1)), gang=gang, max_launches=1, poll_s=0.01)
    CONTROLLERS.append(control)
    pauses: list[float] = []

    def pause(loop: BackgroundLoop, seconds: float) -> bool:
        pauses.append(seconds)
        return True

    monkeypatch.setattr(BackgroundLoop, "pause", pause)
    monkeypatch.setattr(poll_interval, "YOUNG_JOB_S", math.inf)
    add(store, "short")
    control._poll_engines()
    control.step()
    control._poll_engines()
    monkeypatch.setattr(poll_interval, "MAX_POLLED_FASTER", -1)
    control._poll_engines()
    monkeypatch.setattr(poll_interval, "YOUNG_JOB_S", 0.0)
    control._poll_engines()
    assert pauses == [0.01, 0.01 / poll_interval.YOUNG_JOB_POLLS, 0.01, 0.01]
