"""What the store knows of the queue: equal to the rows after any history, and read without a look at them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.queue_order import QueuedJob
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.errors import AlreadyExistsError, UnavailableError, WriteConflictError
from trainshed.store.database import Database, Rider, Transaction
from trainshed.store.jobs import JobStore
from trainshed.testing.fakes.queues import job_queue

WORKLOAD = Training.parse({})
NUMBERS = itertools.count()
INSERT = sa.text(
    "insert into jobs (project, id, body, labels, state, priority, attempt, runtime, engine, created_us, order_us, "
    "generation) "
    "values ('shed', :id, '{\"trainingInput\":{}}', '{}', 'QUEUED', 0, 0, '', 'local', :created_us, :created_us, 1)"
)
QUEUED = sa.text(
    "select project, id, engine, priority, order_us, user_name, replicas, passed_over_us from jobs "
    "where state = 'QUEUED'"
)


def job(job_id: str, **values: Any) -> Job:
    return Job(**{"project": "shed", "id": job_id, "workload": WORKLOAD, "created_us": 1, **values})


def stored(database: Database) -> dict[str, set[QueuedJob]]:
    """The queued jobs of each engine, by their rows."""
    with database.read() as tx:
        rows = [dict(row) for row in tx.rows(QUEUED)]
    jobs: dict[str, set[QueuedJob]] = {row["engine"]: set() for row in rows}
    for row in rows:
        jobs[row.pop("engine")].add(QueuedJob(user=row.pop("user_name"), **row))
    return jobs


def shown(store: JobStore, database: Database) -> dict[str, set[QueuedJob]]:
    """The queued jobs of each engine, as the store tells them."""
    return {engine: set(store.queued(engine).jobs) for engine in stored(database)}


@dataclass
class Failing:
    """Makes the next commit of a database raise: before it is done, or when it is done and nobody learns of it."""

    database: Database
    moment: str = ""

    @contextmanager
    def write(self, *, riders: Sequence[Rider] | None = None) -> Iterator[Transaction]:
        moment, self.moment = self.moment, ""
        with Database.write(self.database, riders=riders) as tx:
            yield tx
            if moment == "before":
                raise UnavailableError("The connection was lost.")
        if moment == "after":
            raise UnavailableError("The connection was lost.")


OPERATIONS = st.one_of(
    st.tuples(
        st.just("add"),
        st.sampled_from("pq"),
        st.sampled_from("abcdef"),
        st.integers(0, 2),
        st.integers(-1, 1),
        st.sampled_from(["near", "far"]),
    ),
    st.tuples(
        st.sampled_from(["change", "stale change"]),
        st.sampled_from("pq"),
        st.sampled_from("abcdef"),
        st.sampled_from([JobState.QUEUED, JobState.PREPARING, JobState.CANCELLED]),
    ),
    st.tuples(st.just("fail next"), st.sampled_from(["before", "after"])),
    st.tuples(st.just("restart")),
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=st.lists(OPERATIONS, max_size=25))
def test_the_queue_equals_the_rows(database: Database, operations: list[tuple[Any, ...]]) -> None:
    example = next(NUMBERS)  # the database is shared by all examples: each has projects and engines of its own
    failing = Failing(database)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "write", failing.write)
        store = JobStore(database)
        kept: dict[tuple[str, str], Job] = {}
        for operation in operations:
            try:
                match operation:
                    case ("add", project, job_id, created_us, priority, engine):
                        place = {"project": f"{project}{example}", "engine": f"{engine}{example}"}
                        new = job(job_id, created_us=created_us, priority=priority, **place)
                        kept.setdefault((project, job_id), new)
                        store.add(new, [])
                    case ("change", project, job_id, state) if (project, job_id) in kept:
                        store.record(replace(store.get(f"{project}{example}", job_id), state=state))
                    case ("stale change", project, job_id, state) if (project, job_id) in kept:
                        store.record(replace(kept[project, job_id], state=state, generation=99))
                    case ("fail next", moment):
                        failing.moment = moment
                    case ("restart",):
                        store = JobStore(database)
            except (AlreadyExistsError, WriteConflictError):
                pass
            except UnavailableError:
                for key, each in list(kept.items()):
                    if not store_has(database, each):
                        del kept[key]
            assert shown(store, database) == stored(database)


def store_has(database: Database, each: Job) -> bool:
    with database.read() as tx:
        found = sa.text("select id from jobs where project = :project and id = :id")
        return bool(tx.rows(found, {"project": each.project, "id": each.id}))


def test_the_queue_is_right_after_writes_of_many_threads(database: Database) -> None:
    """Writes, and loads between them: nobody's change is lost, and none stays of a job that left."""
    failing = Failing(database)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "write", failing.write)
        store = JobStore(database)

        def work(thread: int) -> None:
            for number in range(20):
                each = job(f"j{thread}_{number}", created_us=number, priority=thread % 2)
                try:
                    store.add(each, [])
                    if number % 3:
                        store.record(store.get("shed", each.id).to(JobState.PREPARING, now_us=1))
                except (UnavailableError, AlreadyExistsError):
                    pass  # the fault that another turn asked for, and a write that is done again because of it
                if number % 5 == 0:
                    failing.moment = "before" if thread % 2 else "after"
                assert store.queued("local").version >= 0

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        failing.moment = ""
        assert shown(store, database) == stored(database)


def names(store: JobStore) -> list[str]:
    return [each.id for each in store.queued("local").jobs]


def test_an_admission_right_behind_a_create_leaves_nothing_in_the_queue(database: Database) -> None:
    """A controller sees a new row before the thread that wrote it goes on."""
    store = JobStore(database)
    last = job("last", created_us=10**9)
    store.add(last, [])
    assert names(store) == ["last"]
    with ThreadPoolExecutor(1) as pool:
        creates = pool.submit(lambda: [store.add(job(f"j{number}", created_us=number), []) for number in range(100)])
        while not creates.done() or len(names(store)) > 1:
            for name in names(store):
                if name != "last" and (found := store.find("shed", name)) is not None:
                    store.record(found.to(JobState.PREPARING, now_us=1))
    assert creates.result()
    assert names(store) == ["last"]


@contextmanager
def statements() -> Iterator[list[str]]:
    """The statements that are executed inside the block, on any database."""
    executed: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        executed.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield executed
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


def test_a_read_costs_the_same_behind_10_and_5000_queued_jobs(database: Database) -> None:
    costs = []
    for first, count in ((0, 10), (10, 5000)):
        with database.write() as tx:
            tx.run_many(INSERT, [{"id": f"j{number:05}", "created_us": number} for number in range(first, count)])
        store = JobStore(database)
        queue = job_queue(store)
        last = store.add(job("last", created_us=10**6 + count), [])
        with statements() as at_the_first_read:
            assert queue.positions([last]) == {("shed", "last"): count + 1}
        assert len([each for each in at_the_first_read if "jobs" in each]) == 1
        with statements() as one:
            assert queue.positions([store.get("shed", "last")]) == {("shed", "last"): count + 1}
        with statements() as page:
            positions = queue.positions(store.page("shed", before=(2**62, ""), limit=5))
        assert sorted(positions.values()) == list(range(count - 3, count + 2))
        with statements() as positions_alone:
            assert queue.positions([last]) == {("shed", "last"): count + 1}
        assert positions_alone == []
        costs.append((one, page))
        with database.write() as tx:
            tx.run(sa.text("delete from jobs where id = 'last'"))
    assert costs[0] == costs[1]
