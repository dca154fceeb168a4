"""Log files and the service that reads them, on real files and a real database."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainshed.attempts import log_file as log_files
from trainshed.attempts.log_file import AttemptLog
from trainshed.config import Home
from trainshed.domain.iam import Principal, Role
from trainshed.domain.logs import LogEntry
from trainshed.domain.work_budget import WorkBudget, WorkLimits
from trainshed.errors import InvalidArgumentError, PermissionDeniedError, RequestCancelledError
from trainshed.services.logs import job_log
from trainshed.services.logs.entries import LogEntries, LogQuery
from trainshed.store.jobs import JobStore
from trainshed.testing.workloads.job_logs import WrittenJob, open_jobs

OWNER = Principal(user="me", project="*", role=Role.OWNER)
T0 = 1_763_000_000_000_000

MakeJob = Callable[..., WrittenJob]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def jobs(home: Home) -> JobStore:
    return open_jobs(home)


@pytest.fixture
def make_job(jobs: JobStore, home: Home) -> MakeJob:
    def make(job_id: str, *, created_us: int = T0, project: str = "proj") -> WrittenJob:
        return WrittenJob(jobs, home, project=project, job_id=job_id, created_us=created_us)

    return make


@pytest.fixture
def logs(jobs: JobStore, home: Home) -> LogEntries:
    return LogEntries(jobs, home)


def log_file(path: Path) -> AttemptLog:
    return AttemptLog(root=path.parents[1], folder=(path.parent.name,), floor_us=T0)


def texts(entries: list[LogEntry]) -> list[str]:
    return [entry.message for entry in entries]


def pages(logs: LogEntries, *, filter_: str = "", order: str = "timestamp asc", size: int = 7) -> list[LogEntry]:
    """All entries, page by page."""
    found: list[LogEntry] = []
    token = ""
    for _ in range(1000):
        query = LogQuery(
            resource_names=("projects/proj",), filter=filter_, order_by=order, page_size=size, page_token=token
        )
        page = logs.entries(OWNER, query)
        assert len(page.entries) <= size
        found += page.entries
        token = page.next_token
        if not token:
            return found
    raise AssertionError("the pages never end")


def test_a_path_into_a_bucket_is_shown_as_its_uri(logs: LogEntries, make_job: MakeJob, home: Home) -> None:
    job = make_job("j")
    job.say([(T0 + 1, f"reading {home.buckets}/shed/a.csv, {home.buckets}/shed/b.csv"), (T0 + 2, "reading /tmp/c")])
    expected = ["reading gs://shed/a.csv, gs://shed/b.csv", "reading /tmp/c"]
    assert texts(pages(logs))[-2:] == expected
    assert texts(pages(logs, order="timestamp desc"))[:2] == expected[::-1]
    assert texts(pages(logs, filter_='jsonPayload.message:"gs://shed/a.csv"')) == expected[:1]


def test_what_is_appended_is_a_record_of_its_own(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job("appended")
    job.say([(T0 + 1, "first")])
    log = log_file(job.path)
    log.append([(T0 + 2, "python", "ERROR", "a\nb"), (T0 + 3, "python", "INFO", "é")])
    job.say([(T0 + 4, "last")])
    records = list(log.forwards())
    assert [record.message for record in records] == ["first", "a\nb", "é", "last"]
    assert [record.replica for record in records[1:3]] == ["python", "python"]
    (tmp_path / "linked").hardlink_to(job.path)
    with pytest.raises(OSError, match="another name"):
        log.append([(T0 + 5, "python", "INFO", "x")])
    job.path.unlink()
    job.path.symlink_to(tmp_path / "linked")
    with pytest.raises(OSError):
        log.append([(T0 + 5, "python", "INFO", "x")])


# -- one file


@given(
    gaps=st.lists(st.integers(1, 3), max_size=60),
    width=st.integers(0, 40),
    chunk=st.sampled_from([16, 64, 65536]),
    target=st.integers(-2, 130),
)
@settings(deadline=None)
def test_find_agrees_with_a_plain_search(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[int], width: int, chunk: int, target: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "1" / "log.jsonl"
    path.parent.mkdir()
    data, starts, time_us = b"", [], 0
    for number, gap in enumerate(gaps):
        time_us += gap
        starts.append((len(data), time_us))
        data += b'{"t":%d,"r":"m","s":"INFO","m":"%s"}\n' % (time_us, b"x" * (width * (number % 3)))
    path.write_bytes(data)
    expected = next((start for start, at in starts if at >= target), len(data))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_files, "CHUNK_BYTES", chunk)
        assert log_file(path).find(target) == expected
        forwards = list(log_file(path).forwards())
        assert [line.start for line in forwards] == [start for start, _ in starts]
        assert list(log_file(path).backwards()) == forwards[::-1]


def test_a_torn_line_is_left_for_the_next_read(make_job: MakeJob) -> None:
    job = make_job("j")
    job.say([(T0 + 1, "whole")])
    job.append(b'{"t": %d, "r": "master-replica-0", ' % (T0 + 2))
    file = log_file(job.path)
    assert [line.message for line in file.forwards()] == ["whole"]
    assert [line.message for line in file.backwards()] == ["whole"]
    job.append(b'"s": "INFO", "m": "torn no more"}\n')
    assert [line.message for line in file.forwards()] == ["whole", "torn no more"]


@pytest.mark.parametrize(
    "bad",
    [
        b"not json",
        b"",
        b"\xff\xfe",
        b"[1]",
        b'{"t":true,"r":"m","s":"INFO","m":"x"}',
        b'{"t":-1,"r":"m","s":"INFO","m":"x"}',
        b'{"t":1e99,"r":"m","s":"INFO","m":"x"}',
        b'{"t":999999999999999999999,"r":"m","s":"INFO","m":"x"}',
        b'{"t":1,"r":"m","s":"INFO"}',
        b"[" * 100_000,
        b"x" * (log_files.LINE_MAX_BYTES + 10),
    ],
    ids=lambda bad: repr(bad[:20]),
)
def test_what_is_not_a_line_becomes_one_that_says_so(make_job: MakeJob, bad: bytes) -> None:
    job = make_job("j")
    job.say([(T0 + 1, "before")])
    job.append(bad + b"\n" + bad + b"\n")
    job.say([(T0 + 9, "after")])
    forwards = list(log_file(job.path).forwards())
    assert [line.message for line in forwards[::2]] == ["before", "after"]
    assert forwards[1].message.startswith("2 damaged lines were left out here")
    assert (forwards[1].time_us, forwards[1].severity) == (T0 + 1, "WARNING")
    assert list(log_file(job.path).backwards()) == forwards[::-1]
    assert [line.message for line in log_file(job.path).forwards(forwards[1].start)] == [forwards[1].message, "after"]
    assert log_file(job.path).find(T0 + 5) == forwards[2].start


def test_half_a_surrogate_pair_is_shown_escaped(make_job: MakeJob) -> None:
    job = make_job("j")
    job.append(b'{"t": %d, "r": "m", "s": "ODD", "m": "a\\udcffb"}\n' % T0)
    [line] = log_file(job.path).forwards()
    assert (line.message, line.severity) == ("a\\udcffb", "DEFAULT")


# -- entries of many jobs


@pytest.mark.parametrize("order", ["timestamp asc", "timestamp desc"])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_all_jobs_of_a_project_are_one_stream(make_job: MakeJob, logs: LogEntries, order: str, size: int) -> None:
    for number in range(6):  # neighbours overlap
        job = make_job(f"j{number}", created_us=T0 + number * 10)
        job.say([(T0 + number * 10 + step, f"{number}/{step}") for step in range(1, 25, 4)])
        job.tell("done", T0 + number * 10 + 30)
    make_job("elsewhere", project="other")
    found = pages(logs, order=order, size=size)
    keys = [entry.key for entry in found]
    assert keys == sorted(keys, reverse=order.endswith("desc"))
    assert len(set(keys)) == len(keys) == 6 * 8
    assert {entry.project for entry in found} == {"proj"}


def test_filters_choose_jobs_times_and_tasks(make_job: MakeJob, logs: LogEntries) -> None:
    for name in ("a", "b"):
        job = make_job(name)
        job.say([(T0 + n * 1_000_000, f"{name}{n}") for n in range(1, 100)])
    one = 'resource.labels.job_id="a" AND '
    assert texts(pages(logs, filter_=one + 'timestamp>"2025-11-13T02:14:57Z"')) == ["a98", "a99"]
    assert texts(pages(logs, filter_=one + 'timestamp<="2025-11-13T02:13:21Z"')) == ["Job queued.", "a1"]
    assert texts(pages(logs, filter_='timestamp="2025-11-13T02:13:21Z"', order="timestamp desc")) == ["b1", "a1"]
    assert texts(
        pages(logs, filter_='labels."ml.googleapis.com/job_id"="b" AND resource.labels.task_name="service"')
    ) == ["Job queued."]
    assert texts(pages(logs, filter_='resource.labels.job_id="absent"')) == []


def test_pages_go_on_where_they_were_while_lines_are_added(make_job: MakeJob, logs: LogEntries) -> None:
    job = make_job("j")
    found: dict[str, list[str]] = {"timestamp asc": [], "timestamp desc": []}
    job.say([(T0 + n, f"{n}") for n in range(1, 11)])
    for order, seen in found.items():
        token = ""
        for turn in range(4):
            page = logs.entries(
                OWNER, LogQuery(resource_names=("projects/proj",), order_by=order, page_size=4, page_token=token)
            )
            seen += texts(page.entries)
            token = page.next_token
            start = 100 + 10 * turn + (0 if order.endswith("asc") else 500)
            job.say([(T0 + start, f"late {order} {turn}")])
            if not token:
                break
    assert found["timestamp asc"][:11] == ["Job queued.", *map(str, range(1, 11))]
    assert len(set(found["timestamp asc"])) == len(found["timestamp asc"])
    assert found["timestamp desc"][-11:] == [*map(str, range(10, 0, -1)), "Job queued."]


def test_entries_of_one_moment_are_told_apart_by_their_insert_id(make_job: MakeJob, logs: LogEntries) -> None:
    job = make_job("j")
    job.tell("event", T0 + 5)
    job.say([(T0 + 5, "line")])
    first, second = pages(logs, filter_='timestamp="2025-11-13T02:13:20.000005Z"')
    assert first.insert_id < second.insert_id
    rest = pages(
        logs,
        filter_=f'((timestamp="2025-11-13T02:13:20.000005Z" AND insertId>"{first.insert_id}") '
        'OR timestamp>"2025-11-13T02:13:20.000005Z")',
    )
    assert rest == [second]


def test_a_query_that_matches_nothing_costs_a_bounded_amount_a_page(
    make_job: MakeJob, logs: LogEntries, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job("j")
    job.say([(T0 + n, f"{n}") for n in range(1, 1001)])
    monkeypatch.setattr(job_log, "SCAN_LIMITS", WorkLimits(max_bytes=256 * 100, max_seconds=600))
    query = LogQuery(resource_names=("projects/proj",), filter="nowhere")
    page = logs.entries(OWNER, query)
    assert page.entries == []
    assert page.next_token
    assert texts(pages(logs, filter_='jsonPayload.message="1000"')) == ["1000"]


def test_who_may_ask_what(make_job: MakeJob, logs: LogEntries) -> None:
    make_job("j")
    viewer = Principal(user="v", project="proj", role=Role.VIEWER)
    assert logs.entries(viewer, LogQuery(resource_names=("projects/proj",))).entries
    with pytest.raises(PermissionDeniedError):
        logs.entries(viewer, LogQuery(resource_names=("projects/proj", "projects/other")))
    for query in (
        LogQuery(resource_names=()),
        LogQuery(resource_names=("folders/7",)),
        LogQuery(resource_names=("projects/../x",)),
        LogQuery(resource_names=("projects/proj",), order_by="severity"),
        LogQuery(resource_names=("projects/proj",), page_size=-1),
        LogQuery(resource_names=("projects/proj",), page_token="bm9uc2Vuc2U="),
        LogQuery(resource_names=("projects/proj",), page_token="!"),
    ):
        with pytest.raises(InvalidArgumentError):
            logs.entries(OWNER, query)


def test_a_page_token_is_good_for_its_own_query_only(make_job: MakeJob, logs: LogEntries) -> None:
    make_job("j").say([(T0 + 1, "x")])
    token = logs.entries(OWNER, LogQuery(resource_names=("projects/proj",), page_size=1)).next_token
    with pytest.raises(InvalidArgumentError, match="does not belong to this query"):
        logs.entries(OWNER, LogQuery(resource_names=("projects/proj",), filter="x", page_token=token))


def test_no_descriptor_is_left_open(make_job: MakeJob, logs: LogEntries, home: Home) -> None:
    for number in range(20):
        make_job(f"j{number}").say([(T0 + n, "x") for n in range(1, 50)])
    logs.entries(OWNER, LogQuery(resource_names=("projects/proj",), page_size=500))
    opened = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # threads that other tests left may open and close some meanwhile
            opened.append(os.readlink(f"/proc/self/fd/{fd}"))
    assert [path for path in opened if path.startswith(str(home.jobs))] == []


def test_the_body_is_a_log_entry(make_job: MakeJob, logs: LogEntries) -> None:
    make_job("j").say([(T0 + 1, "hello")], severity="WARNING")
    [entry] = pages(logs, filter_="hello")
    assert entry.body() == {
        "insertId": "001763000000000001-0001-000000000000",
        "jsonPayload": {"created": 1763000000.000001, "levelname": "WARNING", "message": "hello"},
        "labels": {
            "ml.googleapis.com/job_id": "j",
            "ml.googleapis.com/job_id/log_area": "root",
            "ml.googleapis.com/task_name": "master-replica-0",
            "ml.googleapis.com/trial_id": "",
        },
        "logName": "projects/proj/logs/master-replica-0",
        "receiveTimestamp": "2025-11-13T02:13:20.000001000Z",
        "resource": {
            "labels": {"job_id": "j", "project_id": "proj", "task_name": "master-replica-0"},
            "type": "ml_job",
        },
        "severity": "WARNING",
        "timestamp": "2025-11-13T02:13:20.000001000Z",
    }


# -- a log that its job has made huge


def test_a_log_cut_to_a_terabyte_is_read_without_its_hole(make_job: MakeJob, logs: LogEntries) -> None:
    job = make_job("j")
    job.say([(T0 + n, f"{n}") for n in range(1, 101)])
    size = job.path.stat().st_size
    os.truncate(job.path, 1 << 40)
    file = log_file(job.path)
    assert file.complete() == size
    assert [line.message for line in file.forwards()] == [line.message for line in file.backwards()][::-1]
    assert file.find(T0 + 50) == file.find(T0 + 49) + (file.find(T0 + 52) - file.find(T0 + 51))
    assert texts(pages(logs, filter_='jsonPayload.message="77"')) == ["77"]
    job.append(b"\n")
    job.say([(T0 + 200, "behind the hole")])
    assert [line.message for line in file.forwards()][-1] == "behind the hole"
    assert next(line.message for line in file.backwards()) == "behind the hole"
    assert texts(pages(logs, filter_='"behind the hole"', order="timestamp desc")) == ["behind the hole"]


def test_a_query_ends_with_its_time_and_goes_on_where_it_was(make_job: MakeJob, logs: LogEntries) -> None:
    make_job("j").say([(T0 + n, f"{n}") for n in range(1, 50)])
    found, token, steps = [], "", 0
    while steps == 0 or token:
        query = LogQuery(resource_names=("projects/proj",), filter="jsonPayload.message:7", page_token=token)
        page = logs.entries(OWNER, query, WorkBudget(WorkLimits(max_bytes=1 << 20, max_seconds=0)))
        found += texts(page.entries)
        token, steps = page.next_token, steps + 1
    assert found == ["7", "17", "27", "37", "47"]
    assert steps == 50


def test_a_query_of_a_client_that_is_gone_is_stopped(make_job: MakeJob, logs: LogEntries) -> None:
    make_job("j").say([(T0 + 1, "one")])
    budget = WorkBudget(WorkLimits(max_bytes=1 << 20, max_seconds=600))
    budget.cancel()
    with pytest.raises(RequestCancelledError):
        logs.entries(OWNER, LogQuery(resource_names=("projects/proj",)), budget)
