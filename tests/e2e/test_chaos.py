"""Killing a replica on purpose: by the API and by the command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from trainshed.attempts.journal import read_record
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.workloads.submitter import Submitter

PROJECT = "chaos-course"
TRAINER = """
import json, os, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
print("here is", task["type"], task["index"], flush=True)
while task["type"] not in ("master", "chief") or not os.path.exists("done"):
    time.sleep(0.01)
"""
GANG = {
    "scaleTier": "CUSTOM",
    "masterType": "n1-standard-4",
    "workerType": "n1-standard-4",
    "workerCount": "1",
    "parameterServerType": "n1-standard-4",
    "parameterServerCount": "1",
}


@pytest.fixture(scope="module")
def jobs(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Submitter:
    return Submitter(server, PROJECT, tmp_path_factory.mktemp("chaos"))


def _trainshed(server: RunningServer, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainshed.cli", *words]
    env = server.env() | {"TRAINSHED_PROJECT": PROJECT}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=180)


def _ask(server: RunningServer, job: str, body: Any) -> tuple[int, Any]:
    path = f"/trainshed/v1/projects/{PROJECT}/jobs/{job}:chaos"
    return Caller(server.url)("POST", path, token=server.token, body=body)


def _await_lines(jobs: Submitter, job: str, line: str, count: int) -> None:
    eventually(lambda: jobs.lines(job).count(line), lambda seen: seen == count)


def test_a_stopped_replica_is_an_alert_until_it_is_continued(server: RunningServer, jobs: Submitter) -> None:
    def told() -> list[str]:
        overview = Caller(server.url)("GET", f"/trainshed/v1/projects/{PROJECT}/overview", token=server.token)[1]
        return [alert["message"] for alert in overview["alerts"] if "halted" in alert["message"]]

    code = "import os, time\nprint('here', flush=True)\nwhile not os.path.exists('done'):\n    time.sleep(0.1)\n"
    jobs.submit("halted", code)
    jobs.wait("halted", {"RUNNING"})
    _await_lines(jobs, "halted", "here", 1)
    assert _ask(server, "halted", {"kill": "master-replica-0", "signal": "STOP"})[0] == 200
    [alert] = eventually(told, within_s=120)
    assert alert.startswith("Job halted: master-replica-0 is stopped by a signal, for ")
    described = _trainshed(server, "jobs", "describe", "halted").stderr
    assert "master-replica-0 is stopped by a signal" in described
    assert "Thread MainThread (most recent call last):" in described
    assert "task.py" in described
    assert _ask(server, "halted", {"kill": "master-replica-0", "signal": "CONT"})[0] == 200
    eventually(told, lambda alerts: alerts == [], within_s=120)
    (jobs.attempt("halted") / "work" / "done").touch()
    assert jobs.wait("halted")["state"] == "SUCCEEDED"
    details = Caller(server.url)("GET", f"/trainshed/v1/projects/{PROJECT}/jobs/halted", token=server.token)[1]
    assert [event["kind"] for event in details["events"] if event["kind"] in ("hung", "hang_ended")] == [
        "hung",
        "hang_ended",
    ]
    [hang] = details["hangs"]
    assert (hang["replica"], hang["kind"], hang["endTime"] is None) == ("master-replica-0", "stopped", False)


def test_a_user_kills_a_worker_and_the_job_gets_over_it(server: RunningServer, jobs: Submitter) -> None:
    jobs.submit("survivor", TRAINER, **GANG)
    jobs.wait("survivor", ("RUNNING",))
    _await_lines(jobs, "survivor", "here is worker 0", 1)
    done = _trainshed(server, "jobs", "chaos", "survivor", "--kill", "worker-replica-0")
    assert done.returncode == 0, done.stderr
    assert "Sent SIGKILL to worker-replica-0 of job [survivor]." in done.stderr
    assert "trainshed jobs stream-logs survivor" in done.stderr
    _await_lines(jobs, "survivor", "here is worker 0", 2)
    _await_lines(jobs, "survivor", "here is ps 0", 1)
    status, answer = _ask(server, "survivor", {"kill": "ps-replica-0", "signal": "sigterm"})
    assert (status, answer) == (200, {"replica": "ps-replica-0", "signal": "SIGTERM"})
    _await_lines(jobs, "survivor", "here is ps 0", 2)
    (jobs.attempt("survivor") / "work" / "done").touch()
    assert jobs.wait("survivor")["state"] == "SUCCEEDED"
    assert [restart.sentence for restart in read_record(jobs.attempt("survivor")).restarts] == [
        "restarted worker-replica-0 (killed by signal 9)",
        "restarted ps-replica-0 (killed by signal 15)",
    ]
    lines = jobs.lines("survivor")
    assert "Restarted worker-replica-0 (killed by signal 9)." in lines
    assert lines[-3:] == [
        "Tearing down training program.",
        "Finished tearing down training program.",
        "Job completed successfully.",
    ]

    status, answer = _ask(server, "survivor", {"kill": "worker-replica-0"})
    assert (status, answer["error"]["status"]) == (400, "FAILED_PRECONDITION")
    assert "Job survivor is SUCCEEDED." in answer["error"]["message"]


@pytest.fixture(scope="module")
def gang(jobs: Submitter) -> Iterator[str]:
    """A job that runs, of which nothing is killed."""
    jobs.submit("whole", TRAINER, **GANG)
    jobs.wait("whole", ("RUNNING",))
    yield "whole"
    (jobs.attempt("whole") / "work" / "done").touch()
    assert jobs.wait("whole")["state"] == "SUCCEEDED"
    assert read_record(jobs.attempt("whole")).restarts == ()


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"kill": "worker-replica-9"}, 404, "Its replicas are: master-replica-0, worker-replica-0, ps-replica-0."),
        ({"kill": "worker-replica-0\ncancel"}, 404, "has no replica"),
        ({"kill": "worker-replica-0", "signal": "HUGE"}, 400, "There is no signal 'HUGE'"),
        ({"kill": "worker-replica-0", "signal": 9}, 400, "Invalid value at 'signal'"),
        ({}, 400, "Say which replica to kill"),
        ({"kill": "worker-replica-0", "hard": True}, 400, 'Unknown name "hard"'),
    ],
)
def test_what_makes_no_sense_is_refused(server: RunningServer, gang: str, body: Any, status: int, words: str) -> None:
    found, answer = _ask(server, gang, body)
    assert found == status
    assert words in answer["error"]["message"]


def test_a_job_that_is_not_there_cannot_be_killed(server: RunningServer, jobs: Submitter) -> None:
    assert _ask(server, "absent", {"kill": "master-replica-0"})[0] == 404
    done = _trainshed(server, "jobs", "chaos", "absent", "--kill", "master-replica-0")
    assert done.returncode == 1
    assert "absent" in done.stderr
