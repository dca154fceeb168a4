"""PostgreSQL is killed, or its connection cut when a transaction commits: nothing is lost and nothing is done twice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainshed.node.crashpoints import DELAY, EIO, ENOSPC, FAIL
from trainshed.testing.cache import link_runtimes
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.commit_proxy import CommitProxy, Cut, commit_proxy
from trainshed.testing.processes.postgresql import Postgresql, running_postgresql
from trainshed.testing.processes.servers import HttpAnswer, RunningServer, ask
from trainshed.testing.reliability.crash.scenarios import SCENARIOS, go_through
from trainshed.testing.reliability.crash.world import World
from trainshed.testing.reliability.kills import break_database, run_batch
from trainshed.testing.reliability.verdict import GRACE_S
from trainshed.testing.workloads.submitter import Submitter

PROJECT = "on-postgres"
UNTIL_FILE = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)"

#: Steps that write rows, one failure each, and two at which the server is killed. All others are in `make soak`.
FAILURES = (
    ("job.create.before_commit", FAIL),
    ("job.create.after_commit", FAIL),
    ("job.admit.after_write", EIO),
    ("job.end.before_write", FAIL),
    ("bucket.create.recorded", FAIL),
    ("bucket.delete.forgotten", EIO),
    ("token.create.before_commit", FAIL),
    ("token.revoke.after_commit", EIO),
    ("model.create.after_commit", FAIL),
    ("model.delete.before_commit", FAIL),
)
KILLS = ("job.create.after_commit", "job.running.before_write")
OTHER_FAILURES = [
    (point, action) for point in SCENARIOS for action in (DELAY, ENOSPC, EIO, FAIL) if (point, action) not in FAILURES
]


@pytest.fixture(scope="module")
def mortal() -> Iterator[Postgresql]:
    """A PostgreSQL that tests kill."""
    with running_postgresql() as server:
        yield server


@pytest.fixture(scope="module")
def proxy(mortal: Postgresql) -> Iterator[CommitProxy]:
    with commit_proxy(mortal) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def on_postgresql(
    mortal: Postgresql, proxy: CommitProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    url = proxy.url(mortal.create_database("whole_server"))
    home = link_runtimes(tmp_path_factory.mktemp("on-postgresql") / "home")
    running = RunningServer(home, {"database": url, "grace_s": GRACE_S}).start()
    yield running
    running.kill()
    running.end_jobs()


@pytest.fixture(scope="module")
def training(on_postgresql: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    jobs = Submitter(on_postgresql, PROJECT, tmp_path_factory.mktemp("training"))
    body: dict[str, Any] = jobs.submit("first", "pass")["trainingInput"]
    jobs.wait("first", {"SUCCEEDED"})
    return body


def call(server: RunningServer, method: str, path: str, body: object = None) -> HttpAnswer:
    return ask(server.url, method, path, body=body, headers={"authorization": f"Bearer {server.token}"})


def until_answered(server: RunningServer, method: str, path: str, body: object = None) -> HttpAnswer:
    """Repeat a request, as clients do, until the answer is not that it may be repeated."""
    return eventually(lambda: call(server, method, path, body), lambda answer: answer.status != 503)


CREATES = {
    "job": (f"/v1/projects/{PROJECT}/jobs", "jobId"),
    "model": (f"/v1/projects/{PROJECT}/models", "name"),
    "bucket": (f"/storage/v1/b?project={PROJECT}", "name"),
}


@pytest.mark.fault("F06")
@pytest.mark.parametrize("cut", list(Cut))
@pytest.mark.parametrize("kind", CREATES)
def test_a_create_whose_commit_is_cut_is_there_once(
    on_postgresql: RunningServer, proxy: CommitProxy, training: dict[str, Any], kind: str, cut: Cut
) -> None:
    path, field = CREATES[kind]
    name = f"cut_{kind}_{cut}" if kind != "bucket" else f"cut-{cut}"
    body = {field: name, "trainingInput": training} if kind == "job" else {field: name}
    before = proxy.cuts
    proxy.cut_next(cut)
    first = call(on_postgresql, "POST", path, body)
    assert first.status in (200, 503), first.body  # another transaction may be the one that is cut
    assert first.status == 200 or first.headers["retry-after"]
    eventually(lambda: proxy.cuts, lambda cuts: cuts == before + 1)
    again = until_answered(on_postgresql, "POST", path, body)
    if first.status == 200 or cut is Cut.ANSWER:
        assert again.status == 409, again.body
    else:
        assert again.status == 200, again.body
    assert until_answered(on_postgresql, "POST", path, body).status == 409


@pytest.mark.fault("F06")
def test_requests_fail_while_postgresql_is_down_and_jobs_go_on(
    on_postgresql: RunningServer, mortal: Postgresql, tmp_path: Path
) -> None:
    jobs = Submitter(on_postgresql, "down", tmp_path)
    ends, waits = tmp_path / "ends.now", tmp_path / "waits.now"
    jobs.submit("ends", UNTIL_FILE, args=[str(ends)])
    jobs.submit("goes_on", UNTIL_FILE, args=[str(waits)])
    for name in ("ends", "goes_on"):
        jobs.wait(name, {"RUNNING"})
    mortal.kill()
    ends.touch()
    read = call(on_postgresql, "GET", "/v1/projects/down/jobs/ends")
    written = call(on_postgresql, "POST", "/v1/projects/down/models", {"name": "m"})
    assert [read.status, written.status] == [503, 503]
    assert read.headers["retry-after"] and written.headers["retry-after"]
    mortal.start()
    until_answered(on_postgresql, "GET", "/v1/projects/down/jobs/ends")
    assert jobs.wait("ends")["state"] == "SUCCEEDED"
    assert jobs.get("goes_on")["state"] == "RUNNING"
    waits.touch()
    assert jobs.wait("goes_on")["state"] == "SUCCEEDED"
    assert until_answered(on_postgresql, "POST", "/v1/projects/down/models", {"name": "m"}).status == 200


@pytest.mark.fault("F06")
def test_nothing_is_lost_or_done_twice_when_postgresql_breaks_under_load(
    on_postgresql: RunningServer, mortal: Postgresql, proxy: CommitProxy, tmp_path: Path
) -> None:
    strike = break_database(mortal, proxy)
    report = run_batch(on_postgresql, tmp_path, seed=3, batch=0, rounds=3, max_life_s=1.0, strike=strike)
    assert [str(each) for each in report.violations] == []
    assert report.operations > 0


@pytest.fixture(scope="module")
def world(postgresql: Postgresql, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("crashes")
    url = postgresql.create_database(f"crashes_{os.urandom(6).hex()}")
    made = World(RunningServer(link_runtimes(folder / "home"), {"database": url}), folder)
    yield made
    made.server.end_jobs()


@pytest.mark.fault("F01")
@pytest.mark.parametrize("point", KILLS)
def test_a_server_on_postgresql_that_is_killed_at(world: World, point: str) -> None:
    go_through(world, point)


@pytest.mark.soak
@pytest.mark.fault("F01")
@pytest.mark.parametrize("point", [point for point in SCENARIOS if point not in KILLS])
def test_a_server_on_postgresql_that_is_killed_at_any_other(world: World, point: str) -> None:
    go_through(world, point)


@pytest.fixture(scope="module")
def running_world(world: World) -> Iterator[World]:
    """One server for all that fails without a restart."""
    world.server.start()
    yield world
    world.server.kill()


@pytest.mark.fault("F01")
@pytest.mark.parametrize(("point", "action"), FAILURES)
def test_a_step_that_fails_on_postgresql(running_world: World, point: str, action: str) -> None:
    go_through(running_world, point, action)


@pytest.mark.soak
@pytest.mark.fault("F01")
@pytest.mark.parametrize(("point", "action"), OTHER_FAILURES)
def test_a_step_that_fails_on_postgresql_in_any_other_way(running_world: World, point: str, action: str) -> None:
    go_through(running_world, point, action)
