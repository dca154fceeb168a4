"""What every store does, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import pytest
import sqlalchemy as sa

from trainshed.domain.jobs.batch_prediction import BatchPrediction
from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.job import Job, JobEvent, JobEventKind
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.domain.operations import Operation
from trainshed.domain.policies import Binding
from trainshed.errors import AbortedError, AlreadyExistsError, DataLossError, NotFoundError
from trainshed.store.database import Database
from trainshed.store.job_search import JobSearchQuery, JobSearchStore
from trainshed.store.jobs import JobStore
from trainshed.store.operations import OperationStore
from trainshed.store.policies import PolicyStore
from trainshed.store.projects import ProjectStore
from trainshed.testing.fakes.queues import job_queue

T = TypeVar("T")
START = (2**62, "")
PREDICTION = BatchPrediction.parse(
    {"inputPaths": ["gs://mine/rows"], "outputPath": "gs://mine/out", "dataFormat": "JSON"}
)
QUEUED = JobEvent(kind=JobEventKind.QUEUED, message="Job a is queued.", time_us=1)


def job(job_id: str, *, project: str = "shed", created_us: int = 1, priority: int = 0) -> Job:
    return Job(
        project=project,
        id=job_id,
        workload=Training.parse({"args": ["ü", "\0", "'; drop table jobs; --"], "region": "local"}),
        labels={"a": "b"},
        created_us=created_us,
        priority=priority,
    )


def at_once(count: int, work: Callable[[int], T]) -> list[T | Exception]:
    """The results of `count` calls from as many threads, errors of ours among them."""

    def one(number: int) -> T | Exception:
        try:
            return work(number)
        except (AbortedError, AlreadyExistsError) as exc:
            return exc

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_a_stored_workload_is_typed_unchanged_and_parsed_once(database: Database) -> None:
    store = JobStore(database)
    store.add(job("trains"), [QUEUED])
    store.add(replace(job("predicts"), workload=PREDICTION), [QUEUED])
    trains = store.get("shed", "trains")
    assert (trains.workload, trains.training.args) == (job("trains").workload, ("ü", "\0", "'; drop table jobs; --"))
    predicts = store.get("shed", "predicts")
    assert (predicts.workload, predicts.workload.input) == (PREDICTION, PREDICTION.input)
    with pytest.raises(TypeError, match="Job predicts is a batch prediction, not a training job"):
        _ = predicts.training
    assert store.record(replace(trains, labels={})).workload is trains.workload
    assert {found.id: found.workload for found in store.page("shed", before=START, limit=9)} == {
        "trains": trains.workload,
        "predicts": PREDICTION,
    }
    assert store.get("shed", "trains").workload is trains.workload


DAMAGE = (
    "body = 'no JSON'",
    "body = '{}'",
    "body = '[]'",
    "labels = 'no JSON'",
    "state = 'LOST'",
    """failure = '{"cause": "unknown"}'""",
)


@pytest.mark.parametrize("damage", DAMAGE)
def test_an_unreadable_job_has_a_clear_error_and_lists_have_all_others(database: Database, damage: str) -> None:
    store, table = JobStore(database), JobSearchStore(database)
    for number in range(6):
        store.add(job(f"j{number}", created_us=number), [])
    with database.write() as tx:
        tx.run(sa.text(f"update jobs set {damage} where id in ('j1', 'j3', 'j4')"))
    with pytest.raises(
        DataLossError, match=r"The row of job j3 of project shed in the database can't be read: .*backup"
    ):
        store.get("shed", "j3")
    read: list[str] = []
    before = START
    while len(page := store.page("shed", before=before, limit=2)) == 2:  # a short page is the last one
        read += [found.id for found in page]
        before = (page[-1].created_us, page[-1].id)
    assert read + [found.id for found in page] == ["j5", "j2", "j0"]
    assert [number for number in range(6) if store.find("shed", f"j{number}")] == [0, 2, 5]
    found = table.page("shed", JobSearchQuery(), states=tuple(JobState), before=START, limit=2)
    assert [each.id for each in found] == ["j5", "j2"]
    counts = table.counts("shed", JobSearchQuery())
    assert counts == {JobState.QUEUED: 3 if "LOST" in damage else 6}, "a state that is none is not counted"


class TestJobTable:
    """Ten jobs: j0, J_1, j2 ... ; every other one predicts, every third has failed, two have a team."""

    @pytest.fixture
    def table(self, database: Database) -> JobSearchStore:
        store = JobStore(database)
        for number in range(10):
            failed = number % 3 == 0
            stored = store.add(
                replace(
                    job(f"J_{number}" if number == 1 else f"j{number}", created_us=number),
                    workload=PREDICTION if number % 2 else Training.parse({}),
                    labels={1: {"team": "vision"}, 2: {"team": "vision-2", "user": "me"}}.get(number, {}),
                ),
                [],
            )
            if failed:
                store.record(replace(stored, state=JobState.FAILED, ended_us=100 + number))
        store.add(job("j0", project="other"), [])
        return JobSearchStore(database)

    def found(self, table: JobSearchStore, search: JobSearchQuery, *states: JobState) -> list[str]:
        jobs = table.page("shed", search, states=states or tuple(JobState), before=START, limit=100)
        assert len(jobs) == sum(n for s, n in table.counts("shed", search).items() if s in (states or JobState))
        return [found.id for found in jobs]

    @pytest.mark.parametrize(
        ("search", "ids"),
        [
            (JobSearchQuery(), ["j9", "j8", "j7", "j6", "j5", "j4", "j3", "j2", "J_1", "j0"]),
            (JobSearchQuery(text="j3"), ["j3"]),
            (JobSearchQuery(text="J3"), ["j3"]),
            (JobSearchQuery(text="j_"), ["J_1"]),
            (JobSearchQuery(text="%"), []),
            (JobSearchQuery(text="!"), []),
            (JobSearchQuery(text='"'), []),
            (JobSearchQuery(text="'; drop table jobs; --"), []),
            (JobSearchQuery(text="VISION"), ["j2", "J_1"]),
            (JobSearchQuery(text="team=vision-"), ["j2"]),
            (JobSearchQuery(text="ser=me"), ["j2"]),
            (JobSearchQuery(text="visionuser"), []),
            (JobSearchQuery(labels=(("team", "vision"),)), ["J_1"]),
            (JobSearchQuery(labels=(("team", None),)), ["j2", "J_1"]),
            (JobSearchQuery(labels=(("team", "vision-2"), ("user", "me"))), ["j2"]),
            (JobSearchQuery(labels=(("team", "vision"), ("user", "me"))), []),
            (JobSearchQuery(labels=(("tea", None),)), []),
            (JobSearchQuery(labels=(("t_am", "vision"),)), []),
            (JobSearchQuery(key="predictionInput", text="j"), ["j9", "j7", "j5", "j3", "J_1"]),
            (JobSearchQuery(key="trainingInput"), ["j8", "j6", "j4", "j2", "j0"]),
        ],
        ids=str,
    )
    def test_what_is_sought_is_found(self, table: JobSearchStore, search: JobSearchQuery, ids: list[str]) -> None:
        assert self.found(table, search) == ids

    def test_states_narrow_it(self, table: JobSearchStore) -> None:
        assert self.found(table, JobSearchQuery(), JobState.FAILED) == ["j9", "j6", "j3", "j0"]
        assert self.found(table, JobSearchQuery(key="trainingInput"), JobState.FAILED) == ["j6", "j0"]
        assert self.found(table, JobSearchQuery(), JobState.FAILED, JobState.QUEUED)[:2] == ["j9", "j8"]
        assert self.found(table, JobSearchQuery(), JobState.RUNNING) == []

    def test_pages_go_on_behind_the_last_row(self, table: JobSearchStore) -> None:
        every = tuple(JobState)
        rows = table.page("shed", JobSearchQuery(), states=every, before=START, limit=3)
        assert [row.id for row in rows] == ["j9", "j8", "j7"]
        rows = table.page("shed", JobSearchQuery(), states=every, before=(rows[-1].created_us, rows[-1].id), limit=2)
        assert [row.id for row in rows] == ["j6", "j5"]

    def test_those_that_failed_since_are_told_the_last_one_first(self, table: JobSearchStore) -> None:
        assert [found.id for found in table.failed_since("shed", 103, limit=2)] == ["j9", "j6"]
        assert table.failed_since("other", 0, limit=2) == []

    def test_all_projects_are_counted_together(self, table: JobSearchStore) -> None:
        assert table.counts_of_all_projects() == {JobState.FAILED: 4, JobState.QUEUED: 7}

    def test_those_that_ended_since_are_counted(self, table: JobSearchStore) -> None:
        assert table.ended_since("shed", 103) == {JobState.FAILED: 3}
        assert table.ended_since("shed", 110) == {}


class TestJobs:
    @pytest.fixture
    def store(self, database: Database) -> JobStore:
        return JobStore(database)

    def test_a_job_comes_back_as_it_was_stored(self, store: JobStore) -> None:
        stored = replace(job("a"), runtime="2.15", labels={"owner": "me"})
        store.add(stored, [QUEUED])
        assert store.get("shed", "a") == stored

    def test_an_id_is_taken_for_ever_and_in_its_project_only(self, store: JobStore) -> None:
        store.add(job("a"), [])
        with pytest.raises(AlreadyExistsError, match="A job with this id already exists"):
            store.add(job("a", created_us=2), [QUEUED])
        assert store.events("shed", "a") == [], "the events of a refused job were kept"
        store.add(job("a", project="other"), [])

    def test_ids_differ_by_case(self, store: JobStore) -> None:
        store.add(job("a"), [])
        store.add(job("A"), [])
        with pytest.raises(NotFoundError):
            store.get("shed", "b")

    def test_of_many_creates_at_once_one_wins(self, store: JobStore) -> None:
        results = at_once(8, lambda number: store.add(job("a", created_us=number), [QUEUED]))
        assert sum(isinstance(result, Job) for result in results) == 1
        assert len(store.events("shed", "a")) == 1

    def test_a_write_over_a_newer_one_is_aborted_with_its_events(self, store: JobStore) -> None:
        old = store.add(job("a"), [])
        store.record(replace(old, labels={"x": "1"}))
        with pytest.raises(AbortedError):
            store.record(old.to(JobState.CANCELLED, now_us=5), [QUEUED])
        found = store.get("shed", "a")
        assert (found.state, found.labels, found.generation) == (JobState.QUEUED, {"x": "1"}, 2)
        assert store.events("shed", "a") == []

    def test_of_many_writes_at_once_one_wins(self, store: JobStore) -> None:
        old = store.add(job("a"), [])
        results = at_once(8, lambda number: store.record(replace(old, labels={"n": str(number)}), [QUEUED]))
        won = [result for result in results if isinstance(result, Job)]
        assert len(won) == 1
        assert store.get("shed", "a") == won[0]
        assert len(store.events("shed", "a")) == 1

    def test_pages_are_newest_first_and_neither_skip_nor_repeat(self, store: JobStore) -> None:
        for number in range(7):
            store.add(job(f"j{number}", created_us=10 + number // 2), [])
        store.add(job("foreign", project="other", created_us=11), [])
        seen: list[str] = []
        before = START
        while page := store.page("shed", before=before, limit=2):
            seen += [found.id for found in page]
            before = (page[-1].created_us, page[-1].id)
        assert seen == ["j6", "j5", "j4", "j3", "j2", "j1", "j0"]

    def test_the_queue_goes_by_priority_then_age_over_all_projects(self, store: JobStore) -> None:
        store.add(job("gone", created_us=0), [])
        store.add(job("early", created_us=1, project="other"), [])
        store.add(job("late", created_us=3), [])
        store.add(job("urgent", created_us=4, priority=5), [])
        store.record(store.get("shed", "gone").to(JobState.PREPARING, now_us=9))
        queue = job_queue(store)
        assert [queued.id for queued in queue.order("local")] == ["urgent", "early", "late"]
        places = {("shed", "urgent"): 1, ("other", "early"): 2, ("shed", "late"): 3}
        jobs = [store.get(project, name) for project, name in places]
        assert queue.positions([*jobs, store.get("shed", "gone")]) == places
        assert queue.positions([store.get("shed", "late")]) == {("shed", "late"): 3}
        assert queue.positions([]) == {}
        assert queue.next_of("shed", ["local"], limit=9) == [("urgent", 1), ("late", 3)]
        assert [active.id for active in store.active()] == ["gone"]

    def test_a_failure_is_read_as_it_was_written(self, store: JobStore) -> None:
        failure = Failure(
            cause=FailureCause.OUT_OF_MEMORY,
            replica="master-replica-0",
            signal=9,
            memory_peak_bytes=7,
            output="last",
            facts={"module": "trainer.task", "limit": 1.5},
        )
        stored = store.add(job("a"), [QUEUED])
        store.record(stored.to(JobState.FAILED, now_us=5, failure=failure))
        assert store.get("shed", "a").failure == failure
        assert store.add(job("b"), []).failure is store.get("shed", "b").failure is None

    def test_events_come_in_the_order_they_were_written(self, store: JobStore) -> None:
        stored = store.add(
            job("a"), [QUEUED, JobEvent(kind=JobEventKind.NOTE, message="second", time_us=0, severity="WARNING")]
        )
        store.tell(stored, JobEvent(kind=JobEventKind.OUTAGE, message="third", time_us=0, subject="Ray"))
        events = store.events("shed", "a")
        assert [(event.kind, event.message, event.severity, event.subject) for event in events] == [
            (JobEventKind.QUEUED, "Job a is queued.", "INFO", ""),
            (JobEventKind.NOTE, "second", "WARNING", ""),
            (JobEventKind.OUTAGE, "third", "INFO", "Ray"),
        ]
        assert sorted({event.seq for event in events}) == [event.seq for event in events]


class TestPolicies:
    @pytest.fixture
    def store(self, database: Database) -> PolicyStore:
        return PolicyStore(database)

    def test_nobody_set_one(self, store: PolicyStore) -> None:
        assert store.get("projects/p/jobs/a").generation == 0

    def test_a_policy_comes_back_with_the_next_generation(self, store: PolicyStore) -> None:
        binding = Binding(role="roles/ml.viewer", members=("user:ann",))
        assert store.replace("r", [binding], generation=0).generation == 1
        assert store.replace("r", [binding, binding], generation=1).generation == 2
        assert store.get("r").bindings == (binding, binding)
        assert store.get("r").generation == 2

    @pytest.mark.parametrize("generation", [0, 1])
    def test_of_many_writes_at_once_one_wins(self, store: PolicyStore, generation: int) -> None:
        for number in range(generation):
            store.replace("r", [], generation=number)
        results = at_once(8, lambda number: store.replace("r", [], generation=generation))
        assert sum(not isinstance(result, Exception) for result in results) == 1
        assert store.get("r").generation == generation + 1


class TestOperations:
    @pytest.fixture
    def store(self, database: Database) -> OperationStore:
        return OperationStore(database)

    def operation(self, operation_id: str, *, created_us: int = 1) -> Operation:
        return Operation(project="shed", id=operation_id, metadata={"operationType": "X"}, created_us=created_us)

    def test_an_operation_comes_back_as_it_was_stored(self, store: OperationStore) -> None:
        plain = store.add(self.operation("o1"))
        failed = store.add(replace(self.operation("o2"), done=True, error={"code": 1, "message": "no"}))
        good = store.add(replace(self.operation("o3"), done=True, response={}))
        assert [store.get("shed", name) for name in ("o1", "o2", "o3")] == [plain, failed, good]
        with pytest.raises(AlreadyExistsError):
            store.add(plain)
        with pytest.raises(NotFoundError):
            store.get("other", "o1")

    def test_a_write_over_a_newer_one_is_aborted(self, store: OperationStore) -> None:
        old = store.add(self.operation("o1"))
        changed = store.record(old.cancelling())
        assert changed.generation == 2
        with pytest.raises(AbortedError):
            store.record(replace(old, done=True, response={}))
        assert store.get("shed", "o1") == changed

    def test_pages_are_newest_first(self, store: OperationStore) -> None:
        for number in range(4):
            store.add(self.operation(f"o{number}", created_us=number))
        first = store.page("shed", before=START, limit=3)
        rest = store.page("shed", before=(first[-1].created_us, first[-1].id), limit=3)
        assert [found.id for found in (*first, *rest)] == ["o3", "o2", "o1", "o0"]


class TestProjects:
    @pytest.fixture
    def store(self, database: Database) -> ProjectStore:
        return ProjectStore(database)

    def test_a_project_keeps_its_number(self, store: ProjectStore) -> None:
        assert store.find("shed") is None
        made = store.ensure("shed", now_us=7)
        assert store.ensure("shed", now_us=8) == made == store.find("shed")
        assert len(str(made.number)) == 12

    def test_many_at_once_get_the_same_project(self, store: ProjectStore, database: Database) -> None:
        results = at_once(8, lambda number: store.ensure("shed", now_us=number))
        assert len(set(map(repr, results))) == 1
        with database.read() as tx:
            assert len(tx.rows(sa.text("select id from projects"))) == 1

    def test_a_number_that_is_taken_is_not_given_twice(self, store: ProjectStore, database: Database) -> None:
        taken = store.ensure("shed", now_us=1).number
        with database.write() as tx:
            tx.run(sa.text("update projects set id = 'moved-away' where id = 'shed'"))
        assert store.ensure("shed", now_us=2).number != taken


class TestDatabase:
    def test_migrating_again_changes_nothing(self, database: Database) -> None:
        version = database.version()
        ProjectStore(database).ensure("shed", now_us=1)
        database.migrate()
        assert database.version() == version >= 1
        assert ProjectStore(database).find("shed") is not None

    def test_a_failed_transaction_leaves_nothing(self, database: Database) -> None:
        insert = sa.text("insert into projects (id, number, created_us) values ('x', 1, 1)")
        with pytest.raises(RuntimeError), database.write() as tx:
            tx.run(insert)
            raise RuntimeError
        assert ProjectStore(database).find("x") is None


@pytest.mark.fault("F09")
def test_jobs_are_in_the_order_of_their_creation_whatever_the_clock_says(database: Database) -> None:
    store, hour_us = JobStore(database), 3_600_000_000
    for number, created_us in enumerate((5 * hour_us, 5 * hour_us + 1, 4 * hour_us, 4 * hour_us + 7, 6 * hour_us)):
        added = store.add(job(f"{'edcba'[number]}", created_us=created_us), [QUEUED])
        assert (added.created_us, added.order_us) == (created_us, store.get("shed", added.id).order_us)
    assert [each.id for each in store.page("shed", before=START, limit=9)] == ["a", "b", "c", "d", "e"]
    first, second = store.page("shed", before=START, limit=2)
    assert [each.id for each in store.page("shed", before=(second.order_us, second.id), limit=9)] == ["c", "d", "e"]
    search = JobSearchStore(database)
    found = search.page("shed", JobSearchQuery(), states=list(JobState), before=START, limit=9)
    assert [each.id for each in found] == ["a", "b", "c", "d", "e"]
    queue = job_queue(store)
    assert [each.id for each in queue.order("local")] == ["e", "d", "c", "b", "a"]
    assert queue.positions([first]) == {("shed", "a"): 5}
    store.record(store.get("shed", "c").to(JobState.CANCELLED, now_us=4 * hour_us))
    assert [each.id for each in queue.order("local")] == ["e", "d", "b", "a"]
    assert job_queue(JobStore(database)).order("local") == queue.order("local")


def test_operations_are_in_the_order_of_their_creation_whatever_the_clock_says(database: Database) -> None:
    store = OperationStore(database)
    for name, now_us in (("c", 9_000_000), ("b", 5_000_000), ("a", 5_000_001)):
        store.add(Operation.begin("shed", name, {}, now_us=now_us))
    found = store.page("shed", before=START, limit=9)
    assert [each.id.rpartition("_")[2] for each in found] == ["a", "b", "c"]
