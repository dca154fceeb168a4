"""Following the log of one job, from its start, from a time or from its last entries, on real files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from trainshed.api.http.long_poll import wait_for_entries
from trainshed.config import Home
from trainshed.domain.jobs.states import JobState
from trainshed.domain.logs import LogCursor, LogEntry, LogSelection, parse_since
from trainshed.domain.work_budget import WorkLimits
from trainshed.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from trainshed.services.logs import job_log
from trainshed.services.logs.pages import LogPage, LogPageRequest, LogPages
from trainshed.store.jobs import JobStore
from trainshed.testing.workloads.job_logs import WrittenJob, open_jobs

T0 = 1_763_000_000_000_000
EVERYTHING = LogSelection()

MakeJob = Callable[..., WrittenJob]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def jobs(home: Home) -> JobStore:
    return open_jobs(home)


@pytest.fixture
def make_job(jobs: JobStore, home: Home) -> MakeJob:
    def make(job_id: str) -> WrittenJob:
        return WrittenJob(jobs, home, project="proj", job_id=job_id, created_us=T0)

    return make


@pytest.fixture
def logs(jobs: JobStore, home: Home) -> LogPages:
    return LogPages(jobs, home)


def texts(entries: list[LogEntry]) -> list[str]:
    return [entry.message for entry in entries]


def follow(
    logs: LogPages, selection: LogSelection, cursor: LogCursor | None, until: LogCursor | None = None
) -> LogPage:
    return logs.page("proj", "j", LogPageRequest(selection=selection, cursor=cursor, until=until))


def test_events_and_lines_come_in_time_order(make_job: MakeJob, logs: LogPages) -> None:
    job = make_job("j")
    job.say([(T0 + 10, "one"), (T0 + 30, "three")])
    job.tell("two", T0 + 20)
    batch = follow(logs, EVERYTHING, None)
    assert texts(batch.entries) == ["Job queued.", "one", "two", "three"]
    assert [entry.replica for entry in batch.entries] == ["service", "master-replica-0", "service", "master-replica-0"]
    assert batch.ended
    assert texts(follow(logs, EVERYTHING, batch.cursor).entries) == []


def test_a_follower_loses_nothing_that_appears_late_with_an_early_time(make_job: MakeJob, logs: LogPages) -> None:
    job = make_job("j")
    job.set_state(JobState.RUNNING)
    job.say([(T0 + 100, "line")])
    first = follow(logs, EVERYTHING, None)
    assert not first.ended
    job.tell("an event that took long to be stored", T0 + 50)
    job.set_state(JobState.RUNNING, attempt=2)
    job.path = job.attempt(2)
    job.say([(T0 + 200, "second attempt")])
    second = follow(logs, EVERYTHING, LogCursor.read(str(first.cursor)))
    assert texts(second.entries) == ["an event that took long to be stored", "second attempt"]


def test_selections(make_job: MakeJob, logs: LogPages) -> None:
    job = make_job("j")
    job.say([(T0 + n, f"step {n}") for n in range(1, 50)])
    job.say([(T0 + n, f"loss {n}") for n in range(50, 100)], replica="worker-replica-0")
    assert texts(follow(logs, LogSelection(tail=2), None).entries) == ["loss 98", "loss 99"]
    assert texts(follow(logs, LogSelection(tail=2, replica="master-replica-0"), None).entries) == [
        "step 48",
        "step 49",
    ]
    assert texts(follow(logs, LogSelection(tail=3, grep="[ ]1[0-9]$"), None).entries) == [
        "step 17",
        "step 18",
        "step 19",
    ]
    assert texts(follow(logs, LogSelection(since_us=T0 + 97), None).entries) == [
        "loss 97",
        "loss 98",
        "loss 99",
    ]
    assert texts(follow(logs, LogSelection(since_us=T0 + 98, tail=9), None).entries) == [
        "loss 98",
        "loss 99",
    ]
    assert texts(follow(logs, LogSelection(tail=1000), None).entries)[0] == "Job queued."
    nothing_yet = follow(logs, LogSelection(tail=0), None)
    assert nothing_yet.entries == []
    job.say([(T0 + 100, "new")])
    assert texts(follow(logs, LogSelection(tail=0), nothing_yet.cursor).entries) == ["new"]


def test_a_long_log_is_followed_in_batches(make_job: MakeJob, logs: LogPages, monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job("j")
    job.say([(T0 + n, f"{n}") for n in range(1, 2501)])
    monkeypatch.setattr(job_log, "SCAN_LIMITS", WorkLimits(max_bytes=256 * 700, max_seconds=600))
    found: list[str] = []
    cursor = None
    for _ in range(10):
        batch = follow(logs, EVERYTHING, cursor)
        found += texts(batch.entries)
        cursor = batch.cursor
        assert batch.ended is not batch.more
        if batch.ended:
            break
    assert found == ["Job queued.", *(f"{n}" for n in range(1, 2501))]


def test_a_reader_may_stop_at_what_was_there_when_it_began(make_job: MakeJob, logs: LogPages) -> None:
    job = make_job("j")
    job.set_state(JobState.RUNNING)
    job.say([(T0 + n, f"{n}") for n in range(1, 1501)])
    first = follow(logs, EVERYTHING, None)
    job.say([(T0 + n, f"{n}") for n in range(1501, 4001)])
    job.tell("an event of later", T0 + 1400)
    assert first.more
    assert first.end is not None
    second = follow(logs, EVERYTHING, first.cursor, LogCursor.read(str(first.end)))
    assert not second.more
    assert texts(first.entries + second.entries) == ["Job queued.", *(f"{n}" for n in range(1, 1501))]


@pytest.mark.parametrize(("tail", "first"), [(1, 3), (2, 2), (3, 1), (9, 1)])
def test_the_last_matches_of_a_long_log_are_sought_in_steps(
    make_job: MakeJob, logs: LogPages, monkeypatch: pytest.MonkeyPatch, tail: int, first: int
) -> None:
    job = make_job("j")
    job.say([(T0 + n, f"needle {n // 1000}" if n in (1500, 2500, 3500) else f"{n}") for n in range(1, 5001)])
    monkeypatch.setattr(job_log, "SCAN_LIMITS", WorkLimits(max_bytes=300 * 300, max_seconds=600))
    selection = LogSelection(tail=tail, grep="needle")
    batch = follow(logs, selection, None)
    assert (batch.entries, batch.more, batch.ended) == ([], True, False), "it looked at too much at once"
    job.say([(T0 + 6000, "needle new")])
    found: list[str] = []
    steps = 1
    while not batch.ended:
        batch = follow(logs, selection, LogCursor.read(str(batch.cursor)))
        found += texts(batch.entries)
        steps += 1
        assert steps < 100
    assert found == [*(f"needle {n}" for n in range(first, 4)), "needle new"]
    assert steps > 5


async def news(logs: LogPages, selection: LogSelection, after: LogCursor | None, *, wait_s: float) -> LogPage:
    async def read(cursor: LogCursor | None) -> LogPage:
        return await asyncio.to_thread(follow, logs, selection, cursor)

    return await wait_for_entries(
        read,
        lambda cursor: logs.sizes("proj", "j", cursor),
        after,
        wait_s=wait_s,
    )


def test_a_follower_that_waits_gets_a_line_when_it_is_written(make_job: MakeJob, logs: LogPages) -> None:
    job = make_job("j")
    job.set_state(JobState.RUNNING)
    selection = LogSelection(grep="wanted")

    async def follow() -> list[str]:
        waiting = asyncio.create_task(news(logs, selection, None, wait_s=60))
        await asyncio.sleep(0.05)
        job.say([(T0 + 1, "something else")])
        await asyncio.sleep(0.3)
        assert not waiting.done()
        job.say([(T0 + 2, "wanted")])
        batch = await waiting
        assert not batch.ended
        waiting = asyncio.create_task(news(logs, selection, batch.cursor, wait_s=60))
        await asyncio.sleep(0.05)
        job.say([(T0 + 3, "the wanted end")])
        job.set_state(JobState.SUCCEEDED)
        last = await waiting
        while not last.ended:
            assert last.entries
            batch = last
            last = await news(logs, selection, batch.cursor, wait_s=60)
        return texts(batch.entries) + texts(last.entries)

    assert asyncio.run(follow())[-1] == "the wanted end"


def test_a_follower_waits_no_longer_than_it_said(make_job: MakeJob, logs: LogPages) -> None:
    make_job("j").set_state(JobState.RUNNING)

    async def follow() -> bool:
        batch = await news(logs, LogSelection(tail=0), None, wait_s=0.2)
        return batch.ended or bool(batch.entries)

    assert asyncio.run(follow()) is False


def test_nonsense_is_refused(make_job: MakeJob, logs: LogPages) -> None:
    make_job("j")
    with pytest.raises(NotFoundError):
        logs.page("proj", "nope", LogPageRequest(selection=EVERYTHING))
    with pytest.raises(InvalidArgumentError, match="regular expression"):
        LogSelection(grep="(")
    with pytest.raises(InvalidArgumentError, match="0 or more"):
        LogSelection(tail=-1)
    for text in ("", "x", "1.", "1.-2", "1" * 30):
        with pytest.raises(InvalidArgumentError, match="an earlier response"):
            LogCursor.read(text)
    with pytest.raises(InvalidArgumentError, match="duration like"):
        parse_since("yesterday", now_us=T0)


def test_since_is_a_time_or_a_duration() -> None:
    assert parse_since("90s", now_us=T0) == T0 - 90_000_000
    assert parse_since("1d", now_us=T0) == T0 - 86_400_000_000
    assert parse_since("1970-01-01T00:00:01Z", now_us=T0) == 1_000_000


def test_a_job_without_trials_has_no_log_of_one(make_job: MakeJob, logs: LogPages) -> None:
    make_job("j")
    with pytest.raises(FailedPreconditionError, match="has no trials"):
        follow(logs, LogSelection(trial=1), None)
