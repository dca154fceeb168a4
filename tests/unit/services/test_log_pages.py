"""A job's lines in pages, back and forth, on real files and a real database."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainshed.api.http.long_poll import HeldRequests, wait_for_entries
from trainshed.api.native.job_logs import page_body
from trainshed.config import Home
from trainshed.domain.jobs.states import JobState
from trainshed.domain.logs import LogCursor, LogEntry, LogSelection
from trainshed.domain.work_budget import WorkLimits
from trainshed.errors import InvalidArgumentError, NotFoundError
from trainshed.services.logs import job_log
from trainshed.services.logs.pages import END, LogPage, LogPageRequest, LogPages
from trainshed.testing.workloads.job_logs import WrittenJob, open_jobs

T0 = 1_763_000_000_000_000


class LogReader:
    """Reads the pages of one job's log, of job `j`."""

    def __init__(self, path: Path) -> None:
        home = Home(path)
        jobs = open_jobs(home)
        self.job = WrittenJob(jobs, home, project="proj", job_id="j", created_us=T0)
        self.lines = LogPages(jobs, home)

    def page(
        self, *, after: str = "", before: str = "", limit: int = 1000, selection: LogSelection | None = None
    ) -> LogPage:
        """The last page, unless a cursor is given."""
        wanted = LogPageRequest(
            selection=selection or LogSelection(),
            cursor=LogCursor.read(after) if after else None,
            before=LogCursor.read(before) if before else None if after else END,
            page_size=limit,
        )
        return self.lines.page("proj", "j", wanted)

    def back(self, page: LogPage, **how: object) -> list[str]:
        """Every line up to the end of a page, read page by page towards the beginning."""
        found = texts(page.entries)
        while (before := page_body(page)["before"]) != "":
            page = self.page(before=before, **how)  # type: ignore[arg-type]
            found = texts(page.entries) + found
        return found

    def on(self, page: LogPage, **how: object) -> list[str]:
        """Every line behind a page."""
        found: list[str] = []
        while page.more or not found:
            page = self.page(after=page_body(page)["cursor"], **how)  # type: ignore[arg-type]
            found += texts(page.entries)
            if not page.entries and not page.more:
                break
        return found


@pytest.fixture
def reader(tmp_path: Path) -> LogReader:
    return LogReader(tmp_path)


def texts(entries: list[LogEntry]) -> list[str]:
    return [entry.message for entry in entries]


def counted(first: int, last: int) -> list[str]:
    return [f"{n}" for n in range(first, last + 1)]


def test_without_a_place_the_last_lines_are_told(reader: LogReader) -> None:
    reader.job.say([(T0 + n, f"{n}") for n in range(1, 101)])
    page = reader.page(limit=3)
    assert texts(page.entries) == ["98", "99", "100"]
    assert page.ended
    body = page_body(page)
    assert body["replicas"] == ["master-replica-0", "service"]
    assert body["entries"][-1] == {
        "insertId": page.entries[-1].insert_id,
        "time": "2025-11-13T02:13:20.000100Z",
        "replica": "master-replica-0",
        "trial": "",
        "severity": "INFO",
        "message": "100",
    }


def test_a_job_without_lines_has_those_of_the_service(reader: LogReader) -> None:
    page = reader.page()
    assert [(entry.replica, entry.message) for entry in page.entries] == [("service", "Job queued.")]
    assert page_body(page)["before"] == ""


@pytest.mark.parametrize("limit", [1, 7, 20, 101, 5000])
def test_pages_back_to_the_beginning_have_every_line_once(reader: LogReader, limit: int) -> None:
    reader.job.say([(T0 + n, f"{n}") for n in range(1, 101)])
    assert reader.back(reader.page(limit=limit), limit=limit) == ["Job queued.", *counted(1, 100)]


def test_there_is_no_page_before_the_first_line(reader: LogReader) -> None:
    reader.job.say([(T0 + n, f"{n}") for n in range(1, 10)])
    assert page_body(reader.page(limit=10))["before"] == ""
    assert page_body(reader.page(limit=9))["before"] != ""


def test_what_came_since_is_told_once_and_in_order(reader: LogReader) -> None:
    reader.job.set_state(JobState.RUNNING)
    reader.job.say([(T0 + n, f"{n}") for n in range(1, 6)])
    page = reader.page(limit=2)
    assert not page.ended
    assert reader.on(page) == []
    reader.job.say([(T0 + n, f"{n}") for n in range(6, 31)])
    reader.job.tell("of the service, and late", T0 + 2)
    assert sorted(reader.on(page, limit=4)) == sorted([*counted(6, 30), "of the service, and late"])
    assert reader.back(page, limit=2) == ["Job queued.", *counted(1, 5)]


def test_a_new_attempt_comes_after_what_was_told(reader: LogReader) -> None:
    reader.job.set_state(JobState.RUNNING)
    reader.job.say([(T0 + 1, "first attempt")])
    page = reader.page()
    reader.job.set_state(JobState.RUNNING, attempt=2)
    reader.job.path = reader.job.attempt(2)
    reader.job.say([(T0 + 2, "second attempt")])
    assert reader.on(page) == ["second attempt"]
    assert texts(reader.page(before=str(page.cursor)).entries) == ["Job queued.", "first attempt"]


@settings(max_examples=30)
@given(
    written=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    limit=st.integers(1, 9),
    torn=st.booleans(),
)
def test_nothing_is_lost_or_repeated_whenever_it_is_written(
    tmp_path_factory: pytest.TempPathFactory, written: list[int], limit: int, torn: bool
) -> None:
    reader = LogReader(tmp_path_factory.mktemp("home"))
    reader.job.set_state(JobState.RUNNING)
    count = 0
    page = reader.page(limit=limit)
    seen = texts(page.entries)
    for lines in written:
        reader.job.say([(T0 + n, f"{n}") for n in range(count + 1, count + lines + 1)])
        count += lines
        if torn:
            reader.job.append(b'{"t":')  # a line on its way
        page = reader.page(after=str(page.cursor), limit=limit)
        seen += texts(page.entries)
        if torn:
            reader.job.append(b'%d,"r":"master-replica-0","s":"INFO","m":"torn"}\n' % (T0 + count))
    while page.more or page.entries:
        page = reader.page(after=str(page.cursor), limit=limit)
        seen += texts(page.entries)
    assert [text for text in seen if text != "torn"] == ["Job queued.", *counted(1, count)]
    assert seen.count("torn") == (len(written) if torn else 0)
    assert reader.back(reader.page(limit=limit), limit=limit) == seen


def test_only_the_lines_that_match_are_told(reader: LogReader) -> None:
    reader.job.say([(T0 + 1, "loss 0.5 (a.b)"), (T0 + 2, "Saving CHECKPOINT")])
    reader.job.say([(T0 + 3, "cannot allocate")], severity="ERROR")
    reader.job.say([(T0 + 4, "slow checkpoint")], severity="WARNING", replica="worker-replica-0")

    def found(**selection: str) -> list[str]:
        return texts(reader.page(selection=LogSelection(**selection)).entries)  # type: ignore[arg-type]

    assert found(words="checkpoint") == ["Saving CHECKPOINT", "slow checkpoint"]
    assert found(words="(A.B)") == ["loss 0.5 (a.b)"], "it is text and no expression"
    assert found(severity="WARNING") == ["cannot allocate", "slow checkpoint"]
    assert found(severity="ERROR") == ["cannot allocate"]
    assert found(replica="worker-replica-0") == ["slow checkpoint"]
    assert found(replica="service") == ["Job queued."]
    assert found(words="checkpoint", severity="WARNING", replica="master-replica-0") == []


def test_a_rare_line_in_a_long_log_is_sought_in_bounded_steps(
    reader: LogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.job.set_state(JobState.RUNNING)
    reader.job.say([(T0 + n, "needle" if n == 700 else f"{n}") for n in range(1, 2001)])
    monkeypatch.setattr(job_log, "SCAN_LIMITS", WorkLimits(max_bytes=300 * 300, max_seconds=600))
    wanted = LogSelection(words="needle")
    page = reader.page(selection=wanted)
    assert page.entries == [], "it looked at too much at once"
    steps, place = 0, page_body(page)["before"]
    assert reader.back(page, selection=wanted) == ["needle"]
    while place:
        steps, place = steps + 1, page_body(reader.page(before=place, selection=wanted))["before"]
    assert steps > 4
    first = reader.page(after="0", selection=wanted)
    assert (first.entries, first.more) == ([], True)
    assert reader.on(first, selection=wanted) == ["needle"]


def test_a_page_is_bounded_in_bytes(reader: LogReader, monkeypatch: pytest.MonkeyPatch) -> None:
    reader.job.say([(T0 + n, "x" * 1000) for n in range(1, 101)])
    monkeypatch.setattr(job_log, "MAX_PAGE_BYTES", 20_000)
    assert 10 <= len(reader.page(limit=100).entries) <= 20
    assert len(reader.back(reader.page(limit=100), limit=100)) == 101


def test_a_thousand_lines_a_second_are_read_without_a_gap(reader: LogReader) -> None:
    reader.job.set_state(JobState.RUNNING)
    total, stop = 5000, threading.Event()

    def write() -> None:
        for n in range(1, total + 1):
            reader.job.say([(T0 + n, f"{n}")])
        stop.set()

    writer = threading.Thread(target=write)
    page = reader.page()
    seen = texts(page.entries)
    writer.start()
    while not stop.is_set() or page.entries:
        page = reader.page(after=str(page.cursor))
        seen += texts(page.entries)
    writer.join()
    seen += reader.on(page)
    assert seen == ["Job queued.", *counted(1, total)]


def read_news(reader: LogReader, after: LogCursor, *, gone: Callable[[], bool]) -> LogPage:
    async def is_gone() -> bool:
        return gone()

    async def read() -> LogPage:
        wanted = LogPageRequest(selection=LogSelection())

        async def page(cursor: LogCursor | None) -> LogPage:
            return await asyncio.to_thread(reader.lines.page, "proj", "j", wanted.on_from(cursor))

        return await wait_for_entries(
            page,
            lambda cursor: reader.lines.sizes("proj", "j", cursor),
            after,
            wait_s=60,
            is_disconnected=is_gone,
        )

    return asyncio.run(asyncio.wait_for(read(), 55))


def test_a_held_request_ends_when_its_client_is_gone(reader: LogReader) -> None:
    reader.job.set_state(JobState.RUNNING)
    looks = iter([False, True])
    page = read_news(reader, reader.page().cursor, gone=lambda: next(looks))
    assert (page.entries, page.ended) == ([], False)


def test_the_more_requests_are_held_the_less_often_each_of_them_looks() -> None:
    requests = HeldRequests()
    with ExitStack() as held:
        held.enter_context(requests.hold())
        alone = requests.check_interval_s
        for _ in range(599):
            held.enter_context(requests.hold())
        assert requests.check_interval_s >= 20 * alone
    assert requests.check_interval_s == alone


def test_a_held_request_ends_with_the_job(reader: LogReader) -> None:
    reader.job.set_state(JobState.RUNNING)
    page = reader.page()
    reader.job.set_state(JobState.SUCCEEDED)
    assert read_news(reader, page.cursor, gone=lambda: False).ended


def test_nonsense_is_refused(reader: LogReader) -> None:
    for limit in (0, 5001, -1):
        with pytest.raises(InvalidArgumentError, match="from 1 to 5000"):
            reader.page(limit=limit)
    for nonsense in ({"cursor": LogCursor()}, {"until": LogCursor()}, {"selection": LogSelection(tail=1)}):
        with pytest.raises(InvalidArgumentError, match="A page `before` a cursor"):
            LogPageRequest(**{"selection": LogSelection(), "before": END} | nonsense)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="'LOUD' is not a severity"):
        LogSelection(severity="LOUD")
    with pytest.raises(NotFoundError):
        reader.lines.page("proj", "nope", LogPageRequest(selection=LogSelection()))
