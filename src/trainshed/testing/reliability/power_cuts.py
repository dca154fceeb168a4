"""Cuts the power under load: kills all processes, loses what was not synced, starts again, and checks what is left.

python -m trainshed.testing.reliability.power_cuts --cuts 20 --seed 1
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click

from trainshed.config import Home
from trainshed.domain.jobs.states import TERMINAL_STATES, JobState
from trainshed.node.files import sync_folder
from trainshed.testing.cache import link_runtimes
from trainshed.testing.eventually import eventually
from trainshed.testing.processes import server_process
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.reliability.checker import Violation
from trainshed.testing.reliability.disk.power_cut_disk import PowerCutDisk, power_cut_disk
from trainshed.testing.reliability.history import OperationOutcome, now_s
from trainshed.testing.reliability.load import (
    JOBS_END_TIMEOUT_S,
    PROJECT,
    Load,
    prepare,
    training_input,
    upload_trainer,
)
from trainshed.testing.reliability.reports import FaultReport, run_rounds
from trainshed.testing.reliability.verdict import GRACE_S, judge
from trainshed.testing.workloads.submitter import wheel_name

MIN_LIFE_S, MAX_LIFE_S = 0.3, 3.0  #: of a server under load, from its first response to the cut
MAX_FIRST_START_S = 4.0  #: of a first start, until the cut
CUTS_PER_DISK = 5  #: the first one comes while the state folder is being made
JOBS_PER_CUT = 3
_SETTINGS = {"grace_s": GRACE_S}


@contextmanager
def disk_with_home(folder: Path) -> Iterator[tuple[PowerCutDisk, Path]]:
    """An empty disk, and the path of a state folder on it that has the runtimes of the checkout."""
    with power_cut_disk(folder / "disk", folder / "image") as disk:
        home = link_runtimes(disk.folder / "home")
        for path in (home, disk.folder):
            sync_folder(path)
        yield disk, home


def cut_first_start(disk: PowerCutDisk, home: Path, *, seed: str) -> list[Violation]:
    """Cut the power while a server starts on a new state folder or soon after. Returns what is wrong afterwards."""
    chance = random.Random(seed)
    env = {k: v for k, v in os.environ.items() if not k.startswith("TRAINSHED_")}
    env |= {"TRAINSHED_SERVER_PORT": "0", "TRAINSHED_SERVER_TLS_PORT": "0"}
    command = [sys.executable, "-m", server_process.__name__, str(home)]
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(chance.uniform(0.1, MAX_FIRST_START_S))
    announced = _keys(home) if _is_announced(home, process.pid) else {}
    process.kill()
    process.wait()
    disk.cut(seed)
    disk.mount()
    server = RunningServer(home, _SETTINGS)
    try:
        server.start()
    except RuntimeError as exc:
        return [Violation("lost", f"after a cut in the first start: {exc}")]
    changed = [name for name, content in announced.items() if _keys(home).get(name) != content]
    found = [Violation("lost", f"{name} is another one than before the cut") for name in changed]
    if server.call("GET", "/trainshed/v1/tokens")["tokens"] is None:
        found.append(Violation("lost", "the owner's token"))
    found += check_database(home)
    server.kill()
    return found


def _is_announced(home: Path, pid: int) -> bool:
    try:
        return int(json.loads(Home(home).server.read_text())["pid"]) == pid
    except FileNotFoundError:
        return False


def _keys(home: Path) -> dict[str, bytes]:
    """What clients keep of a server: its token and its authority."""
    paths = (Home(home).token, Home(home).certificates / "ca.pem")
    return {path.name: path.read_bytes() for path in paths if path.exists()}


def check_database(home: Path) -> list[Violation]:
    """Return a violation if the database does not pass its integrity check."""
    with closing(sqlite3.connect(f"{Home(home).database.as_uri()}?mode=ro", uri=True)) as connection:
        rows = [row[0] for row in connection.execute("pragma integrity_check").fetchall()]
    return [] if rows == ["ok"] else [Violation("lost", f"the database: {rows[:3]}")]


def check_new_job(server: RunningServer, scratch: Path, *, number: int) -> list[Violation]:
    """Return a violation unless a new job succeeds. Its package is one that was never installed.

    Installed packages are left out: they are synced by sync(2), which the kernel does not pass on to FUSE.
    """
    package, job = f"{number}/{wheel_name('trainer')}", f"after_{number}"
    upload_trainer(server, scratch, name=package, source=f"print({number})\n")
    server.call("POST", f"/v1/projects/{PROJECT}/jobs", {"jobId": job, "trainingInput": training_input(package)})
    body = eventually(
        lambda: server.call("GET", f"/v1/projects/{PROJECT}/jobs/{job}"),
        lambda body: body["state"] in TERMINAL_STATES,
        within_s=JOBS_END_TIMEOUT_S,
    )
    if body["state"] == JobState.SUCCEEDED:
        return []
    return [Violation("lost", f"a job after the cut is {body['state']}: {body.get('errorMessage', '')}")]


def _reboot(home: Path) -> None:
    """Make a state folder look as after a boot. The kernel's own id stays: the machine of the test goes on."""
    for stamp in Home(home).node.glob("*/.boot"):
        stamp.write_text("before the power cut")


def cut_under_load(disk: PowerCutDisk, server: RunningServer, scratch: Path, *, seed: int, number: int) -> FaultReport:
    """Cut the power once under load and check at rest. The server runs before and afterwards."""
    started_s, chance = now_s(), random.Random(f"{seed}/{number}")
    stamps = scratch / f"stamps-{number}"
    prepare(server, scratch)
    keys = _keys(server.home)
    load = Load(server, stamps, seed=seed, batch=number, max_jobs=JOBS_PER_CUT)
    load.start()
    report = FaultReport("power cuts", 1)
    try:
        time.sleep(chance.uniform(MIN_LIFE_S, MAX_LIFE_S))
        load.pause()
        cut_s = now_s()
        server.kill()
        disk.cut(f"{seed}/{number}")
        disk.mount()
        _reboot(server.home)
        began_s = now_s()
        server.start()
        report.restarts_s.append(now_s() - began_s)
    except BaseException:
        load.abandon()
        raise
    load.stop()
    jobs = load.quiesce()
    report.violations = judge(load, jobs, server, stamps, cuts_s=[cut_s]) + check_database(server.home)
    report.violations += check_new_job(server, scratch, number=number)
    if _keys(server.home) != keys:
        report.violations.append(Violation("lost", "the token or the authority is another one than before the cut"))
    report.operations, report.jobs = len(load.history.operations), len(load.jobs)
    report.unknown = sum(each.outcome is OperationOutcome.UNKNOWN for each in load.history.operations)
    report.seconds = now_s() - started_s
    return report


def run(cuts: int, seed: int, folder: Path, tell: Callable[[FaultReport], None]) -> list[Violation]:
    """Cut the power `cuts` times, on a new disk every few cuts, and tell of each cut. Returns all violations."""
    violations: list[Violation] = []
    for start in range(0, cuts, CUTS_PER_DISK):
        scratch = folder / f"disk-{start}"
        scratch.mkdir(parents=True)
        with disk_with_home(scratch) as (disk, home):
            began_s = now_s()
            first = FaultReport("power cuts", 1, violations=cut_first_start(disk, home, seed=f"{seed}/{start}"))
            first.seconds = now_s() - began_s
            tell(first)
            violations += first.violations
            server = RunningServer(home, _SETTINGS)
            for number in range(start + 1, min(start + CUTS_PER_DISK, cuts)):
                if number == start + 1:
                    server.start()
                report = cut_under_load(disk, server, scratch, seed=seed, number=number)
                tell(report)
                violations += report.violations
            server.kill()
    return violations


@click.command()
@click.option("--cuts", default=20, show_default=True, help="How often to cut the power.")
@click.option("--seed", default=1, show_default=True, help="For what clients do, when the power is cut, what is lost.")
@click.option("--record", "recorded", is_flag=True, help="Add the figures to docs/reliability.md.")
def main(cuts: int, seed: int, recorded: bool) -> None:
    """Cut the power under load. Keeps the stamps of trainers and the last image of a disk if something is wrong."""
    run_rounds("F03", cuts, lambda folder, tell: run(cuts, seed, folder, tell), recorded=recorded)


if __name__ == "__main__":
    main()
