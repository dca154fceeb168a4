"""The sandbox: what it costs a job's start, and the answers of a model beside jobs that take what they can get.

python bench/sandbox.py               # about ten minutes
python bench/sandbox.py --rounds 2    # quicker, and noisier
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from report import Row, percentiles_ms, publish
from trainshed.testing.neighbours import HOGS, SETTINGS, Neighbourhood
from trainshed.testing.processes.servers import MeasuredServer, RunningServer
from trainshed.testing.workloads.submitter import PACKAGE, Submitter

PROJECT = "bench-sandbox"
SOURCE = "import time\nprint(time.time(), flush=True)\n"


class Starts:
    """A server with one level of the sandbox, and the same job again and again."""

    def __init__(self, server: RunningServer, scratch: Path) -> None:
        self._jobs = Submitter(server, PROJECT, scratch)
        self._server = server
        self._count = 0
        self._jobs.submit("first", SOURCE)  # uploads the package, and installs it
        self._jobs.wait("first", {"SUCCEEDED"})

    def start_s(self) -> float:
        """Seconds from the request to the job's first line."""
        self._count += 1
        name = f"starts_{self._count}"
        training = {
            "region": "local",
            "runtimeVersion": "python",
            "packageUris": [f"gs://{self._jobs.bucket}/first/{PACKAGE}"],
            "pythonModule": "trainer.task",
        }
        began = time.time()
        self._server.call("POST", f"/v1/projects/{PROJECT}/jobs", {"jobId": name, "trainingInput": training})
        self._jobs.wait(name, {"SUCCEEDED"})
        times = [line for line in self._jobs.lines(name) if line.replace(".", "").isdigit()]
        return float(times[0]) - began


@contextmanager
def server(folder: Path, **settings: Any) -> Iterator[RunningServer]:
    running = MeasuredServer(folder / "home", settings).start()
    try:
        yield running
    finally:
        running.close()


def starts(count: int) -> Row:
    """Start the same job on two servers in turn."""
    without: list[float] = []
    within: list[float] = []
    with (
        tempfile.TemporaryDirectory() as one,
        tempfile.TemporaryDirectory() as other,
        server(Path(one), sandbox="none") as bare,
        server(Path(other), sandbox="full") as full,
    ):
        jobs = [(Starts(bare, Path(one)), without), (Starts(full, Path(other)), within)]
        for number in range(count):
            for each, found in jobs if number % 2 else reversed(jobs):
                found.append(each.start_s())
    return _start_row(without, within)


def _start_row(without: list[float], within: list[float]) -> Row:
    more = statistics.median(b - a for a, b in zip(without, within, strict=True))
    fastest = min(within) - min(without)
    return Row(
        what="submit to a job's first line, in the sandbox",
        value=f"{statistics.median(within) * 1000:.0f} ms",
        against=f"without: {statistics.median(without) * 1000:.0f} ms",
        ratio=f"{more * 1000:+.0f} ms; of the fastest {fastest * 1000:+.0f} ms",
        aim="+20 ms",
    )


def hogs(rounds: int) -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch, server(Path(scratch), **SETTINGS) as running:
        neighbourhood = Neighbourhood(running, Path(scratch))
        for hog in HOGS:
            answers = neighbourhood.measure(hog, rounds=rounds)
            rows.append(
                Row(
                    what=f"a model's answers beside jobs: {hog}, p50 / p99",
                    value=percentiles_ms(answers.beside),
                    against=f"alone: {percentiles_ms(answers.quiet)}",
                    ratio=f"p99 {answers.ratio:.2f}× ({answers.jobs} jobs)",
                    aim="< 2×",
                )
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="windows with and without each hog, in turn")
    parser.add_argument("--starts", type=int, default=40, help="how often each start is measured, in turn")
    args = parser.parse_args()
    publish("sandbox", [starts(args.starts), *hogs(args.rounds)])


if __name__ == "__main__":
    main()
