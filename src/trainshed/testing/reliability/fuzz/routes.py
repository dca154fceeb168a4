"""Sends generated requests to every route of a real server, and checks each response and what is left.

python -m trainshed.testing.reliability.fuzz.routes --requests 100000 --seed 1
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from trainshed.testing.loop_watch import blocked_loops
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.reliability.checker import Violation
from trainshed.testing.reliability.fuzz.generator import RequestGenerator
from trainshed.testing.reliability.fuzz.kept import Kept
from trainshed.testing.reliability.fuzz.operations import OPENAPI_PATH, ApiOperation, discovery_paths, operations
from trainshed.testing.reliability.fuzz.wire import WireClient, response_faults
from trainshed.testing.reliability.reports import FaultReport, run_rounds
from trainshed.testing.reliability.soak.leaks import held_resources
from trainshed.testing.reliability.verdict import staged_files

ROW = "F74"
CLIENTS = 3
REQUESTS_PER_BATCH = 5000  #: to one server, which then ends and starts again
_SETTINGS = {"grace_s": 1}


class Fuzz:
    """Clients that share a number of requests, and what they saw."""

    def __init__(self, server: RunningServer, kept: Kept, *, seed: str) -> None:
        self.statuses: Counter[int] = Counter()
        self.reached: set[str] = set()  #: operations that were answered with a success
        self._server = server
        self._seed = seed
        self._secrets = [server.token, kept.secret]
        self._operations = served_operations(server)
        self._found: dict[str, Violation] = {}
        self._failures: list[BaseException] = []
        self._lock = threading.Lock()

    def run(self, requests: int) -> list[Violation]:
        """Send the requests. Returns one violation for each sort of fault of each operation."""
        numbers = itertools.count()
        threads = [
            threading.Thread(target=self._client, args=(client, numbers, requests), name=f"fuzz-{client}")
            for client in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failures:
            raise self._failures[0]
        return list(self._found.values())

    def _client(self, number: int, numbers: Iterator[int], requests: int) -> None:
        generator = RequestGenerator(self._operations, f"{self._seed}/{number}")
        try:
            with contextlib.closing(WireClient(self._server.url, self._server.token)) as client:
                while next(numbers) < requests:
                    self._send(client, generator)
        except BaseException as exc:
            self._failures.append(exc)
            raise

    def _send(self, client: WireClient, generator: RequestGenerator) -> None:
        request = generator.next()
        try:
            response = client.send(request)
        except TimeoutError:
            faults, status = ["no response: it hangs"], 0
        else:
            faults, status = response_faults(request, response, self._secrets), response.status
        with self._lock:
            self.statuses[status] += 1
            if 200 <= status < 300:
                self.reached.add(str(request.operation))
            for each in faults:
                self._found.setdefault(
                    f"{request.operation} {status} {each[:40]}", Violation("5xx", f"{request}\n    {each}")
                )


def served_operations(server: RunningServer) -> list[ApiOperation]:
    """The operations of a server, by its own documents."""
    return operations(server.call("GET", OPENAPI_PATH), [server.call("GET", path) for path in discovery_paths()])


def run_batch(folder: Path, *, seed: str, requests: int) -> FaultReport:
    """Send requests to a server of its own in `folder`, and check it at rest and after a restart."""
    began_s = time.monotonic()
    server = RunningServer(folder / "home", _SETTINGS).start()
    report = FaultReport("requests", requests)
    try:
        kept = Kept(server)
        kept.create()
        fuzz = Fuzz(server, kept, seed=seed)
        before = held_resources(server)
        report.violations = fuzz.run(requests)
        report.violations += kept.check()
        report.violations += [
            Violation("5xx", f"the event loop was blocked for {each}") for each in blocked_loops(server.home)
        ]
        report.violations += tracebacks(server)
        report.violations += before.leaks(held_resources(server))
        began_restart_s = time.monotonic()
        server.stop()
        report.violations += [Violation("survivors", f"the file {path}") for path in staged_files(server.home)]
        server.start()
        report.restarts_s.append(time.monotonic() - began_restart_s)
        report.violations += kept.check()
        report.details = ", ".join(f"{status}: {count}" for status, count in sorted(fuzz.statuses.items()))
        report.details += f"; {len(fuzz.reached)} operations answered with a success"
    finally:
        server.kill()
        server.end_jobs()
    report.seconds = time.monotonic() - began_s
    return report


def tracebacks(server: RunningServer) -> list[Violation]:
    """Errors that the server did not expect: each is in its log, with the line before it."""
    lines = server.log.read_text(errors="replace").splitlines()
    found = [number for number, line in enumerate(lines) if line.startswith("Traceback ")]
    return [
        Violation("5xx", "in the server's log:\n    " + "\n    ".join(lines[max(0, at - 1) : at + 40]))
        for at in found[:1]
    ]


def run(requests: int, seed: int, folder: Path, tell: Callable[[FaultReport], None]) -> list[Violation]:
    """Run batches, each with a server of its own, and tell of each. Returns all violations."""
    violations: list[Violation] = []
    for batch, start in enumerate(range(0, requests, REQUESTS_PER_BATCH)):
        own = folder / f"batch-{batch}"
        own.mkdir()
        report = run_batch(own, seed=f"{seed}/{batch}", requests=min(REQUESTS_PER_BATCH, requests - start))
        violations += report.violations
        tell(report)
    return violations


@click.command()
@click.option("--requests", default=10_000, show_default=True, help="How many to send.")
@click.option("--seed", default=1, show_default=True, help="For what is sent. Another one sends other requests.")
@click.option("--record", "recorded", is_flag=True, help="Add the figures to docs/reliability.md.")
def main(requests: int, seed: int, recorded: bool) -> None:
    """Send generated requests to every route. Keeps the state folders if something is wrong."""
    run_rounds(ROW, requests, lambda folder, tell: run(requests, seed, folder, tell), recorded=recorded)


if __name__ == "__main__":
    main()
