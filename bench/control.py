"""The control plane under load: creates, lists and gets with 10,000 jobs, restart, no-op jobs, submit to first line.

python bench/control.py            # all of it, about five minutes
python bench/control.py --jobs 500 # smaller
"""

from __future__ import annotations

import argparse
import http.client
import json
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from report import Row, percentiles_ms, publish
from trainshed.testing.processes.servers import MeasuredServer, RunningServer
from trainshed.testing.workloads.submitter import Submitter

PROJECT = "bench-project"
JOBS = f"/v1/projects/{PROJECT}/jobs"
CLIENTS = 8
LOOKS = 400
SLEEPER = "import time\nprint('sleeping', flush=True)\ntime.sleep(86400)\n"
NOTHING = "import time\nprint('first line', time.time(), flush=True)\n"


class Connection:
    """One keep-alive connection of one thread."""

    def __init__(self, server: RunningServer) -> None:
        self._http = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=60)
        self._headers = {"authorization": f"Bearer {server.token}"}

    def call(self, method: str, path: str, body: object = None) -> object:
        self._http.request(method, path, json.dumps(body) if body is not None else None, self._headers)
        answer = self._http.getresponse()
        raw = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {raw.decode()}")
        return json.loads(raw)


def in_parallel(server: RunningServer, count: int, work: Callable[[Connection, int], object]) -> float:
    """Seconds that CLIENTS connections need to do `work` `count` times."""
    local = threading.local()

    def one(number: int) -> None:
        if not hasattr(local, "connection"):
            local.connection = Connection(server)
        work(local.connection, number)

    with ThreadPoolExecutor(CLIENTS) as pool:
        began = time.perf_counter()
        for _ in pool.map(one, range(count)):
            pass
        return time.perf_counter() - began


def timed(work: Callable[[], object], count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return seconds


@contextmanager
def a_server(**settings: object) -> Iterator[tuple[RunningServer, Submitter]]:
    with tempfile.TemporaryDirectory() as scratch:
        server = MeasuredServer(Path(scratch) / "home", settings).start()
        try:
            yield server, Submitter(server, PROJECT, Path(scratch) / "trainers")
        finally:
            server.close()


def training(jobs: Submitter, template: str) -> dict[str, object]:
    """The trainingInput of a job submitted before, to submit again without an upload."""
    return dict(jobs.get(template)["trainingInput"])


def bare_commits_per_s(count: int = 500) -> float:
    """The obvious alternative for a create: one durable SQLite insert, in this process, with no server."""
    with tempfile.TemporaryDirectory() as folder, closing(sqlite3.connect(f"{folder}/bare.db")) as database:
        database.execute("pragma journal_mode = wal")
        database.execute("pragma synchronous = full")
        database.execute("create table jobs (id integer primary key, body text)")
        began = time.perf_counter()
        for number in range(count):
            database.execute("insert into jobs values (?, ?)", (number, "x" * 400))
            database.commit()
        return count / (time.perf_counter() - began)


def fill_queue(server: RunningServer, jobs: Submitter, total: int) -> float:
    """Queue `count` jobs behind one that sleeps in the only slot. Returns the seconds of their creation."""
    jobs.submit("sleeper", SLEEPER)
    jobs.wait("sleeper", {"RUNNING"})
    given = training(jobs, "sleeper")
    return in_parallel(
        server, total, lambda c, n: c.call("POST", JOBS, {"jobId": f"queued_{n:05}", "trainingInput": given})
    )


def many_jobs(total: int) -> list[Row]:
    with a_server(slots=1) as (server, jobs):
        seconds = fill_queue(server, jobs, total)
        creates, bare = total / seconds, bare_commits_per_s()
        rows = [
            Row(
                what=f"creates, {CLIENTS} clients, {total:,} jobs",
                value=f"{creates:.0f}/s",
                against=f"bare durable SQLite inserts: {bare:.0f}/s",
                ratio=f"{creates / bare:.2f}",
                aim="200/s",
            ),
            *looks(Connection(server), total),
        ]
        memory = psutil.Process(server.pid).memory_info().rss / 1e6
        jobs.server.call("POST", f"{JOBS}/sleeper:cancel", {})
        server.kill()
        began = time.perf_counter()
        server.start()
        ready = time.perf_counter() - began
    return [
        *rows,
        Row(what="server memory after that", value=f"{memory:.0f} MB", aim="300 MB"),
        Row(what="kill -9 to ready again", value=f"{ready:.2f} s", aim="2 s"),
    ]


def looks(connection: Connection, total: int) -> list[Row]:
    """Reads of a queue, compared with the cheapest request."""
    health = timed(lambda: connection.call("GET", "/healthz"), LOOKS)
    asked = (
        ("list, 100 a page", f"{JOBS}?pageSize=100", "p99 < 100 ms"),
        ("get", f"{JOBS}/queued_{total // 2:05}", ""),
        ("table of jobs, 100 a page", f"/trainshed{JOBS}?pageSize=100", "p99 < 200 ms"),
        ("search in it that finds nothing", f"/trainshed{JOBS}?pageSize=100&search=nowhere", "p99 < 200 ms"),
    )
    rows = []
    for what, path, aim in asked:
        seconds = timed(partial(connection.call, "GET", path), LOOKS)
        rows.append(
            Row(
                what=f"{what}, p50 / p99",
                value=percentiles_ms(seconds),
                against=f"`/healthz`: {percentiles_ms(health)}",
                ratio=f"{sum(seconds) / sum(health):.1f}×",
                aim=aim,
            )
        )
    return rows


def small_jobs(total: int) -> list[Row]:
    with a_server() as (server, jobs):
        jobs.submit("first", NOTHING)  # builds the runtime and installs the package
        jobs.wait("first")
        given = training(jobs, "first")
        overheads = [submit_overhead(jobs, given, number) for number in range(10)]
        began = time.perf_counter()
        in_parallel(server, total, lambda c, n: c.call("POST", JOBS, {"jobId": f"noop_{n}", "trainingInput": given}))
        for number in range(total):
            jobs.wait(f"noop_{number}", {"SUCCEEDED"})
        rate = total / (time.perf_counter() - began)
    submitted = sorted(first for first, _ in overheads)[len(overheads) // 2]
    bare = sorted(alone for _, alone in overheads)[len(overheads) // 2]
    return [
        Row(what="no-op jobs, end to end", value=f"{rate:.1f}/s", aim="20/s"),
        Row(
            what="submit to the first line of user code, median",
            value=f"{submitted:.3f} s",
            against=f"bare `python -m`: {bare:.3f} s",
            ratio=f"{submitted / bare:.1f}×",
            aim=f"overhead < 0.5 s; it is {submitted - bare:.3f} s",
        ),
    ]


def submit_overhead(jobs: Submitter, given: dict[str, object], number: int) -> tuple[float, float]:
    """Seconds from the request, and from the start of a bare process, to the trainer's first line."""
    name = f"timed_{number}"
    began = time.time()
    jobs.server.call("POST", f"/v1/projects/{PROJECT}/jobs", {"jobId": name, "trainingInput": given})
    jobs.wait(name, {"SUCCEEDED"})
    submitted = first_line_at(jobs.lines(name)) - began
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "task.py").write_text(NOTHING)
        began = time.time()
        output = subprocess.run(
            [sys.executable, "-m", "task"], cwd=folder, capture_output=True, text=True, check=True
        ).stdout
        return submitted, first_line_at(output.splitlines()) - began


def first_line_at(lines: list[str]) -> float:
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith("first line"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000, help="how many jobs are in the database")
    parser.add_argument("--noops", type=int, default=200, help="how many no-op jobs are run")
    args = parser.parse_args()
    publish("control", [*many_jobs(args.jobs), *small_jobs(args.noops)])


if __name__ == "__main__":
    main()
