"""200 users in 20 projects, all submitting real jobs at once: each project gets the same slot-seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.workloads.submitter import PACKAGE, Submitter

PROJECTS, USERS, JOBS_EACH = 20, 200, 3
SOURCE = "print('done')\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    server = RunningServer(tmp_path / "home", {"slots": 8}).start()
    yield server
    server.stop()


def seconds(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["time"]).timestamp()


@pytest.mark.soak  # the same with a simulated clock, in tests/unit/control/test_queue.py, covers the path
def test_every_project_gets_the_same_slot_seconds(server: RunningServer, tmp_path: Path) -> None:
    call = Caller(server.url)
    # What a project used before would count, so none of them runs the first job of the server.
    first = Submitter(server, "warm-up", tmp_path / "warm-up")
    first.submit("first", SOURCE)
    first.wait("first")
    package = tmp_path / "warm-up" / "first" / PACKAGE
    uris = {}
    for project in (f"course-{number:02}" for number in range(PROJECTS)):
        uris[project] = Submitter(server, project, tmp_path / project).upload(package, PACKAGE)

    def submit(user: int) -> None:
        project = f"course-{user % PROJECTS:02}"
        wanted = {"user": f"student-{user:03}", "project": project, "role": "editor"}
        token = server.call("POST", "/trainshed/v1/tokens", wanted)["token"]
        for number in range(JOBS_EACH):
            training = {"runtimeVersion": "python", "packageUris": [uris[project]], "pythonModule": "trainer.task"}
            body = {"jobId": f"u{user}_{number}", "trainingInput": training | {"region": "local"}}
            status, answer = call("POST", f"/v1/projects/{project}/jobs", token=token, body=body)
            assert status == 200, answer

    # One job fills the machine until all have submitted.
    holder = Submitter(server, "holder", tmp_path / "holder")
    release = tmp_path / "release"
    holding = f"import pathlib, time\nwhile not pathlib.Path({str(release)!r}).exists():\n    time.sleep(0.05)\n"
    for number in range(8):
        holder.submit(f"holds_{number}", holding)
        holder.wait(f"holds_{number}", {"RUNNING"})
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(submit, range(USERS)))
    release.touch()

    def ended() -> int:
        tables = [server.call("GET", f"/trainshed/v1/projects/{project}/overview") for project in uris]
        return sum(table["jobs"]["queued"] + table["jobs"]["running"] for table in tables)

    eventually(ended, lambda left: left == 0, within_s=1800.0)
    spans: list[tuple[str, float, float]] = []
    starts: Counter[str] = Counter()
    for user in range(USERS):
        project = f"course-{user % PROJECTS:02}"
        for number in range(JOBS_EACH):
            found = server.call("GET", f"/trainshed/v1/projects/{project}/jobs/u{user}_{number}")
            times = {event["kind"]: seconds(event) for event in found["events"]}
            assert found["job"]["state"] == "SUCCEEDED"
            spans.append((project, times["admitted"], times["ended"]))
            starts[f"u{user}"] += 1
    assert set(starts.values()) == {JOBS_EACH}, "nobody starved"
    last_admitted = {name: max(start for project, start, _ in spans if project == name) for name in uris}
    end_s = min(last_admitted.values())  # until then all 20 have queued work
    used: Counter[str] = Counter()
    for project, start, end in spans:
        used[project] += max(0.0, min(end, end_s) - start)  # type: ignore[assignment]
    mean = sum(used.values()) / PROJECTS
    shares = {project: round(each / mean, 3) for project, each in used.items()}
    print(f"{len(spans)} jobs, {mean:.1f} slot-seconds a project: {min(shares.values())} to {max(shares.values())}")
    assert [share for share in shares.values() if abs(share - 1) > 0.1] == [], shares
