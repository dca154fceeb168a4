"""Logs that a trainer has spoilt, flooded or cut short: read what is there, follow nothing, stay small."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import orjson
import psutil
import pytest

from trainshed.config import Home
from trainshed.domain.iam import Principal, Role
from trainshed.domain.logs import LogCursor, LogSelection
from trainshed.node.supervisor import log_writer as node_logs
from trainshed.services.logs.entries import LogEntries, LogQuery
from trainshed.services.logs.pages import LogPage, LogPageRequest, LogPages
from trainshed.store.database import Database
from trainshed.store.jobs import JobStore
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.job_logs import WrittenJob, open_jobs

OWNER = Principal(user="me", project="*", role=Role.OWNER)
T0 = 1_763_000_000_000_000
MB = 1024 * 1024
EVERYTHING = LogSelection()
T = TypeVar("T")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def jobs(home: Home) -> JobStore:
    return open_jobs(home)


@pytest.fixture
def job(jobs: JobStore, home: Home) -> WrittenJob:
    return WrittenJob(jobs, home, project="proj", job_id="j", created_us=T0)


@pytest.fixture
def logs(jobs: JobStore, home: Home) -> LogEntries:
    return LogEntries(jobs, home)


@pytest.fixture
def pages(jobs: JobStore, home: Home) -> LogPages:
    return LogPages(jobs, home)


def follow(pages: LogPages, selection: LogSelection, cursor: LogCursor | None) -> LogPage:
    return pages.page("proj", "j", LogPageRequest(selection=selection, cursor=cursor))


def lines(pages: LogPages) -> Iterator[str]:
    """All lines of the job's replicas and about its log, by cursor; each answer must be JSON."""
    cursor = None
    while True:
        batch = follow(pages, EVERYTHING, cursor)
        orjson.dumps([entry.body() for entry in batch.entries])
        yield from (entry.message for entry in batch.entries if entry.message != "Job queued.")
        cursor = batch.cursor
        if batch.ended:
            return


def link_file(job: WrittenJob, secret: Path) -> None:
    job.path.symlink_to(secret)


def link_folder(job: WrittenJob, secret: Path) -> None:
    job.path.parent.rmdir()
    job.path.parent.symlink_to(secret.parent)


def fifo(job: WrittenJob, secret: Path) -> None:
    os.mkfifo(job.path)


def folder(job: WrittenJob, secret: Path) -> None:
    job.path.mkdir()


def file_for_folder(job: WrittenJob, secret: Path) -> None:
    job.path.parent.rmdir()
    job.path.parent.write_bytes(secret.read_bytes())


@pytest.mark.fault("F36")
@pytest.mark.parametrize("replace", [link_file, link_folder, fifo, folder, file_for_folder])
def test_a_log_that_was_replaced_is_not_followed(
    job: WrittenJob, logs: LogEntries, pages: LogPages, tmp_path: Path, replace: Callable[[WrittenJob, Path], None]
) -> None:
    secret = tmp_path / "secret" / "log.jsonl"
    secret.parent.mkdir()
    secret.write_text('{"t": 1763000000000001, "r": "m", "s": "INFO", "m": "the secret"}\n')
    replace(job, secret)
    [line] = lines(pages)
    assert line.startswith("The log of this attempt can't be read: ")
    for order in ("timestamp asc", "timestamp desc"):
        page = logs.entries(OWNER, LogQuery(resource_names=("projects/proj",), order_by=order))
        assert sorted(entry.message for entry in page.entries) == ["Job queued.", line]
    batch = follow(pages, EVERYTHING, None)
    assert follow(pages, EVERYTHING, batch.cursor).entries == []


def test_a_log_cut_at_any_byte_is_read_once_and_whole(job: WrittenJob, pages: LogPages) -> None:
    job.say([(T0 + 1, "one"), (T0 + 2, "twö"), (T0 + 3, "three")])
    whole = job.path.read_bytes()
    job.path.unlink()
    job.append(b"")
    for cut in range(len(whole) + 1):
        job.path.write_bytes(whole[:cut])
        first = follow(pages, EVERYTHING, None)
        job.path.write_bytes(whole)
        second = follow(pages, EVERYTHING, LogCursor.read(str(first.cursor)))
        told = [entry.message for entry in [*first.entries, *second.entries]]
        assert told == ["Job queued.", "one", "twö", "three"], cut


def write_by_supervisor(job: WrittenJob, data: bytes, *, piece: int = MB) -> None:
    """What the supervisor makes of a replica's output."""
    log = node_logs.ReplicaLog("master-replica-0", node_logs.LogWriter(str(job.path)), 256 * MB)
    for start in range(0, len(data), piece):
        log.feed(node_logs.STDOUT, data[start : start + piece])
    log.close()


@pytest.mark.fault("F32")
@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe\x00binary\x80",
        b"null \x00 byte",
        b"\x1b[31mred\x1b[0m",
        b"half \xf0\x9f\x98 smile",
        "\ud800".encode("utf-8", "surrogatepass"),
        bytes(range(128, 256)),
        b'{"t": 1, "m": "a line in disguise"}',
    ],
)
def test_odd_bytes_of_a_trainer_arrive_as_text(job: WrittenJob, pages: LogPages, data: bytes) -> None:
    write_by_supervisor(job, b"before\n" + data + b"\nafter\n")
    before, odd, after = lines(pages)
    assert (before, after) == ("before", "after")
    assert odd == node_logs.printable(data)


@pytest.mark.fault("F32")
def test_an_endless_line_arrives_in_pieces_of_which_none_is_lost(job: WrittenJob, pages: LogPages) -> None:
    data = b"0123456789" * MB  # 10 MB
    write_by_supervisor(job, data)
    told = list(lines(pages))
    assert max(map(len, told)) < 100_000
    assert "".join(line.removesuffix("…") for line in told) == data.decode()


def write_flood(job: WrittenJob, size: int) -> int:
    """About `size` bytes of log; returns how many lines."""
    width, number = 200, 0
    with open(job.path, "wb", buffering=8 * MB) as file:
        while file.tell() < size:
            for _ in range(1000):
                number += 1
                text = f"{number:010d} {'x' * width}"
                file.write(b'{"t":%d,"r":"master-replica-0","s":"INFO","m":"%s"}\n' % (T0 + number, text.encode()))
    return number


def cheapest(act: Callable[[], T]) -> tuple[T, float]:
    """What it gives, and the least CPU seconds of a few times: others on the machine cost time, but none of ours."""
    costs = []
    for _ in range(3):
        began = time.thread_time()
        given = act()
        costs.append(time.thread_time() - began)
    return given, min(costs)


@pytest.mark.fault("F31")
def test_the_end_of_a_long_log_costs_little_beside_the_whole(
    job: WrittenJob, logs: LogEntries, pages: LogPages
) -> None:
    total = write_flood(job, 8 * MB)
    tail, for_the_tail = cheapest(lambda: follow(pages, LogSelection(tail=100), None))
    assert [entry.message[:10] for entry in tail.entries] == [f"{n:010d}" for n in range(total - 99, total + 1)]

    query = LogQuery(resource_names=("projects/proj",), order_by="timestamp desc", page_size=100)
    newest, for_the_newest = cheapest(lambda: logs.entries(OWNER, query))
    assert newest.entries == tail.entries[::-1]

    began = time.thread_time()
    assert sum(1 for _ in lines(pages)) == total
    for_all = time.thread_time() - began
    assert for_the_tail < for_all / 10
    assert for_the_newest < for_all / 10


def test_garbage_without_end_is_told_of_in_few_lines(job: WrittenJob, logs: LogEntries, pages: LogPages) -> None:
    job.say([(T0 + 1, "before")])
    job.append(b"x\n" * 150_000 + b"{\n" * 30_000)
    job.append(b"y" * (20 * MB) + b"\n")
    job.say([(T0 + 2, "after")])
    told = list(lines(pages))
    assert (told[0], told[-1]) == ("before", "after")
    assert len(told) < 50
    newest = logs.entries(OWNER, LogQuery(resource_names=("projects/proj",), order_by="timestamp desc", page_size=1))
    assert [entry.message for entry in newest.entries] == ["after"]


@pytest.mark.fault("F31")
@pytest.mark.soak
def test_a_log_of_a_gigabyte_does_not_fill_the_server(own_server: RunningServer) -> None:
    home = Home(own_server.home)
    database = Database(home.database)
    job = WrittenJob(JobStore(database), home, project="proj", job_id="j", created_us=T0)
    total = write_flood(job, 1024 * MB)
    path = "/trainshed/v1/projects/proj/jobs/j/logs"
    own_server.call("GET", f"{path}?tail=10")
    process = psutil.Process(own_server.pid)
    base = process.memory_info().rss

    began = time.perf_counter()
    tail = own_server.call("GET", f"{path}?tail=100")["entries"]
    for_the_tail = time.perf_counter() - began
    assert [entry["message"][:10] for entry in tail] == [f"{n:010d}" for n in range(total - 99, total + 1)]

    began = time.perf_counter()
    token, most = "", base
    for _ in range(8):  # a small part of it
        body = {"resourceNames": ["projects/proj"], "filter": "nowhere", "pageToken": token}
        answer = own_server.call("POST", "/v2/entries:list", body)
        assert "entries" not in answer
        token = answer["nextPageToken"]
        most = max(most, process.memory_info().rss)
    for_a_part = time.perf_counter() - began
    database.close()
    assert for_the_tail < for_a_part / 50
    assert most - base < 50 * MB
