"""Group commit: what waits for a commit shares the next one, and fails alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from trainshed.errors import UnavailableError
from trainshed.store.database import Database, Rider, Transaction
from trainshed.store.group_commit import GroupCommit

INSERT = sa.text("insert into projects (id, number, created_us) values (:id, :number, 1)")


class CountingDatabase(Database):
    """A database that counts the transactions that it began and committed, and can be busy after some of them."""

    begun = 0
    commits = 0
    busy_after = 1_000  #: transactions

    @contextmanager
    def write(self, *, riders: Sequence[Rider] | None = None) -> Iterator[Transaction]:
        self.begun += 1
        if self.begun > self.busy_after:
            raise UnavailableError("The database is busy.")
        with super().write(riders=riders) as tx:
            yield tx
        self.commits += 1


@pytest.fixture
def database(tmp_path: Path) -> Iterator[CountingDatabase]:
    opened = CountingDatabase(tmp_path / "state.db")
    opened.migrate()
    opened.begun = opened.commits = 0
    yield opened
    opened.close()


def names(database: Database) -> set[str]:
    with database.read() as tx:
        return {str(row["id"]) for row in tx.rows(sa.text("select id from projects"))}


def written_behind_another(group: GroupCommit, ids: list[str]) -> list[Future[None]]:
    """Write `first`, and these ids by a thread each while `first` commits."""
    entered, waiting, go = threading.Event(), threading.Semaphore(0), threading.Event()

    def first(tx: Transaction) -> None:
        entered.set()
        go.wait()
        tx.run(INSERT, {"id": "first", "number": 0})

    def behind(number: int, project: str) -> None:
        waiting.release()
        group.run(lambda tx: tx.run(INSERT, {"id": project, "number": number}))

    with ThreadPoolExecutor(len(ids) + 1) as pool:
        futures = [pool.submit(group.run, first)]
        entered.wait()
        futures += [pool.submit(behind, number, project) for number, project in enumerate(ids, start=1)]
        for _ in ids:
            waiting.acquire()
        while group.waiting < len(ids):  # between the semaphore and the list
            threading.Event().wait(0.001)
        go.set()
    return futures


def test_those_that_wait_share_one_commit(database: CountingDatabase) -> None:
    futures = written_behind_another(GroupCommit(database), ["a", "b", "c", "d"])
    assert [future.result() for future in futures] == [None] * 5
    assert names(database) == {"first", "a", "b", "c", "d"}
    assert database.commits == 2


def test_one_that_fails_takes_no_other_with_it(database: CountingDatabase) -> None:
    futures = written_behind_another(GroupCommit(database), ["a", "first", "c"])
    errors = [future.exception() for future in futures]
    assert [isinstance(error, sa.exc.IntegrityError) for error in errors] == [False, False, True, False]
    assert names(database) == {"first", "a", "c"}


def test_a_busy_database_is_waited_for_once_and_refuses_all_that_share_the_commit(database: CountingDatabase) -> None:
    database.busy_after = 1
    futures = written_behind_another(GroupCommit(database), ["a", "b", "c", "d"])
    errors = [future.exception() for future in futures]
    assert [isinstance(error, UnavailableError) for error in errors] == [False, True, True, True, True]
    assert (database.begun, names(database)) == (2, {"first"})


def test_a_write_alone_raises_its_error_and_the_next_one_goes_on(database: CountingDatabase) -> None:
    group = GroupCommit(database)

    def fail(tx: Transaction) -> None:
        tx.run(INSERT, {"id": "lost", "number": 1})
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        group.run(fail)
    group.run(lambda tx: tx.run(INSERT, {"id": "kept", "number": 2}))
    assert names(database) == {"kept"}
