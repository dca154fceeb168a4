"""What a database promises beyond its rows: one view, one order, one server."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace

import pytest
import sqlalchemy as sa

from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.job import Job, JobEvent, JobEventKind
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.domain.objects import Bucket
from trainshed.errors import CannotProceedError, InvalidArgumentError, UnavailableError
from trainshed.store.buckets import BucketStore
from trainshed.store.database import Database
from trainshed.store.jobs import JobStore
from trainshed.store.projects import ProjectStore
from trainshed.testing.eventually import eventually

JOB = Job(project="shed", id="a", workload=Training.parse({}), labels={}, created_us=1, priority=0)


def bucket(name: str) -> Bucket:
    return Bucket(name=name, project="shed", location="US", storage_class="STANDARD", created_us=1, updated_us=1)


def test_a_read_sees_one_moment(database: Database) -> None:
    count = sa.text("select count(*) as found from projects")
    with database.read() as tx:
        before = tx.rows(count)
        ProjectStore(database).ensure("shed", now_us=1)
        assert tx.rows(count) == before
    with database.read() as tx:
        assert tx.rows(count) != before


def test_a_write_after_a_read_is_one(database: Database) -> None:
    """The connection of a read goes back to be used by others: nothing of the read may stay on it."""
    for number in range(3):
        assert ProjectStore(database).find(f"shed-{number}") is None
        ProjectStore(database).ensure(f"shed-{number}", now_us=1)


def test_buckets_are_sorted_and_chosen_byte_by_byte(database: Database) -> None:
    store = BucketStore(database)
    names = ["abc", "abc-d", "abc.d", "abc_d", "abc0", "abd", "b%c", "b_c", "bxc"]
    for name in reversed(names):
        store.add(bucket(name))
    assert [found.name for found in store.page("shed", prefix="", after="", limit=99)] == sorted(names)
    for prefix in ("abc", "ABC", "b_", "b%", "abc_", "zzz"):
        expected = [name for name in sorted(names) if name.startswith(prefix)]
        assert [found.name for found in store.page("shed", prefix=prefix, after="", limit=99)] == expected
        assert [found.name for found in store.page("shed", prefix=prefix, after="abc0", limit=1)] == [
            name for name in expected if name > "abc0"
        ][:1]


def test_words_of_programs_can_always_be_stored(database: Database) -> None:
    jobs = JobStore(database)
    jobs.add(JOB, [JobEvent(kind=JobEventKind.PREPARING, message="a\0b \udc80", time_us=1)])
    failure = Failure(cause=FailureCause.LAUNCH_FAILED, message="c\0d \udc80", facts={"by": "\0"})
    failed = JOB.to(JobState.FAILED, now_us=2, failure=failure)
    jobs.record(failed, [JobEvent(kind=JobEventKind.PREPARING, message="\0", time_us=2)])
    assert [event.message for event in jobs.events("shed", "a")] == ["a\ufffdb \\udc80", "\ufffd"]
    stored = jobs.get("shed", "a").failure
    assert stored is not None
    assert (stored.message, stored.facts) == ("c\ufffdd \\udc80", {"by": "\ufffd"})


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_value_that_cannot_be_stored_is_the_callers_fault(database: Database) -> None:
    with pytest.raises(InvalidArgumentError, match="NUL"):
        JobStore(database).get("shed", "a\0b")


def waiting(database: Database) -> int:
    """How many sessions wait for a lock."""
    with database.read() as tx:
        [row] = tx.rows(
            sa.text(
                "select count(*) as n from pg_stat_activity "
                "where wait_event_type = 'Lock' and datname = current_database()"
            )
        )
    return int(row["n"])


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_an_event_is_never_seen_before_one_with_a_lower_number(database: Database) -> None:
    jobs = JobStore(database)
    jobs.add(JOB, [])
    with database.write() as tx:  # a commit of "slow" waits for the advisory lock 1
        tx.run(
            sa.text(
                "create function dawdle() returns trigger language plpgsql as $$ begin "
                "if new.message = 'slow' then perform pg_advisory_xact_lock(1); end if; return null; end $$"
            )
        )
        tx.run(
            sa.text(
                "create constraint trigger dawdle after insert on job_events deferrable initially deferred "
                "for each row execute function dawdle()"
            )
        )
    with ThreadPoolExecutor(2) as pool:
        with database.write() as holder:
            holder.rows(sa.text("select pg_advisory_xact_lock(1)"))
            slow = pool.submit(jobs.tell, JOB, JobEvent(kind=JobEventKind.PREPARING, message="slow", time_us=1))
            deadline = time.monotonic() + 90
            while waiting(database) < 1 and time.monotonic() < deadline:
                time.sleep(0.01)
            fast = pool.submit(jobs.tell, JOB, JobEvent(kind=JobEventKind.PREPARING, message="fast", time_us=2))
            while not fast.done() and waiting(database) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
            seen = jobs.events("shed", "a")
        wait([slow, fast])
    last = max((event.seq for event in seen), default=0)
    seen = [*seen, *(event for event in jobs.events("shed", "a") if event.seq > last)]
    assert sorted(event.message for event in seen) == ["fast", "slow"]


class TestFence:
    @pytest.fixture
    def url(self, database: Database) -> str:
        return database._engine.url.render_as_string(hide_password=False).replace("+psycopg", "")

    @pytest.mark.parametrize("database", ["postgresql"], indirect=True)
    def test_it_is_put_up_again_when_its_connection_was_lost(self, database: Database, url: str) -> None:
        database.fence()
        end_fence(database)
        database.check_fence(at_most_every_s=0)
        second = Database(url)
        try:
            with pytest.raises(CannotProceedError, match="Another server uses the database"):
                second.fence()
        finally:
            second.close()

    @pytest.mark.fault("F07")
    @pytest.mark.parametrize("database", ["postgresql"], indirect=True)
    def test_who_lost_it_to_another_writes_no_more(self, database: Database, url: str) -> None:
        database.fence()
        end_fence(database)
        second = Database(url)
        try:
            second.fence()
            with pytest.raises(CannotProceedError, match="Another server uses the database"):
                database.check_fence(at_most_every_s=0)
            with pytest.raises(UnavailableError, match="taken over"):
                ProjectStore(database).ensure("shed", now_us=1)
            ProjectStore(second).ensure("shed", now_us=1)
        finally:
            second.close()
        eventually(lambda: regained(database))  # PostgreSQL ends the other's session a moment after it was left
        assert ProjectStore(database).ensure("shed", now_us=2).created_us == 1

    @pytest.mark.parametrize("database", ["postgresql"], indirect=True)
    def test_positions_count_what_another_server_wrote_meanwhile(self, database: Database, url: str) -> None:
        """The fence was lost, another server wrote and went, and this one learns of neither."""
        store, last = JobStore(database), replace(JOB, id="last", created_us=9)
        database.fence()
        store.add(last, [])
        assert [each.id for each in store.queued("local").jobs] == ["last"]
        end_fence(database)
        second = Database(url)
        try:
            second.fence()
            JobStore(second).add(replace(JOB, priority=1), [])
        finally:
            second.close()
        eventually(lambda: regained(database))
        assert {each.id for each in store.queued("local").jobs} == {"last", JOB.id}

    @pytest.mark.parametrize("database", ["postgresql"], indirect=True)
    def test_it_leaves_no_transaction_open(self, database: Database, url: str) -> None:
        database.fence()
        database.check_fence(at_most_every_s=0)
        with database.read() as tx:
            states = tx.rows(sa.text("select state from pg_stat_activity where datname = current_database()"))
        assert "idle in transaction" not in {row["state"] for row in states}

    @pytest.mark.parametrize("database", ["sqlite"], indirect=True)
    def test_sqlite_needs_none(self, database: Database) -> None:
        database.fence()
        database.check_fence(at_most_every_s=0)


def regained(database: Database) -> bool:
    try:
        database.check_fence(at_most_every_s=0)
    except CannotProceedError:
        return False
    return True


def end_fence(database: Database) -> None:
    """End the session that holds the fence, as an administrator or a restart of PostgreSQL would."""
    with database.write() as tx:
        [ended] = tx.rows(
            sa.text(
                "select pg_terminate_backend(pid, 60000) as done from pg_locks where locktype = 'advisory' and granted "
                "and database = (select oid from pg_database where datname = current_database())"
            )
        )
    assert ended["done"]
