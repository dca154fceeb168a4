"""What views of jobs and models read over HTTP, from a real server with a real job."""

from __future__ import annotations

import re
import select
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.workloads.submitter import Submitter

PROJECT = "views-project"
OWN = f"/trainshed/v1/projects/{PROJECT}"
PRINTER = """
import sys, time
for n in range(20):
    print("line", n, flush=True)
sys.stdin.close()
open("ready", "w").close()
while True:
    time.sleep(0.05)
    print("tick", flush=True)
"""
FAILER = """
print("step 1", flush=True)
raise FileNotFoundError(2, "No such file or directory", "gs://views-project-bucket/data/train.csv")
"""


@pytest.fixture(scope="module")
def submitter(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Submitter:
    made = Submitter(server, PROJECT, tmp_path_factory.mktemp("views"))
    made.submit("printer", PRINTER)
    made.submit("failer", FAILER, args=["--output-dir", f"gs://{made.bucket}/out"])
    made.wait("printer", ["RUNNING"])
    made.wait("failer")
    return made


def test_lines_are_followed_while_a_job_writes(submitter: Submitter) -> None:
    server, seen = submitter.server, []
    page = server.call("GET", f"{OWN}/jobs/printer/logs?before=end&pageSize=5")
    for _ in range(5):
        page = server.call("GET", f"{OWN}/jobs/printer/logs?cursor={page['cursor']}&waitSeconds=20")
        assert page["entries"], "a held request came back without a line"
        assert not page["ended"]
        seen += [entry["insertId"] for entry in page["entries"]]
    assert seen == sorted(set(seen))
    found = server.call("GET", f"{OWN}/jobs/printer/logs?search=LINE%207&replica=master-replica-0&severity=INFO")
    assert [line["message"] for line in found["entries"]] == ["line 7"]
    assert found["replicas"] == ["master-replica-0", "service"]


def held_ms(server: RunningServer) -> list[float]:
    """How long the server took for each request for lines of the job that goes on. 499: its client had left."""
    pattern = r"jobs/printer/logs status=(?:200|499) ms=([\d.]+)"
    return [float(found) for found in re.findall(pattern, server.log.read_text())]


def test_a_held_request_costs_no_other_one_its_answer(submitter: Submitter) -> None:
    """More requests are held than there are threads."""
    server = submitter.server
    address = urlsplit(server.url)
    cursor = server.call("GET", f"{OWN}/jobs/printer/logs?search=never&before=end")["cursor"]
    Caller(server.url)("GET", "/v1/after-those-before")
    eventually(
        server.log.read_text, lambda log: "path=/v1/after-those-before " in log
    )  # a line may come after its answer
    held, before = [], held_ms(server)
    try:
        for _ in range(60):
            client = socket.create_connection((address.hostname, address.port), timeout=30)
            target = f"{OWN}/jobs/printer/logs?search=never&cursor={cursor}&waitSeconds=20"
            head = f"GET {target} HTTP/1.1\r\nhost: localhost\r\n"
            client.sendall(f"{head}authorization: Bearer {server.token}\r\n\r\n".encode())
            held.append(client)
        server.call("GET", f"{OWN}/jobs?pageSize=1")
        assert not select.select(held, [], [], 0)[0], "it waited for those that wait"
    finally:
        for client in held:
            client.close()
    deadline = time.monotonic() + 60
    while len(took := held_ms(server)[len(before) :]) < 60 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(took) == 60
    assert max(took) < 20_000, "a request was held for a client that was gone"


def test_a_failed_job_says_why(submitter: Submitter) -> None:
    details = submitter.server.call("GET", f"{OWN}/jobs/failer")
    failure = details["failure"]
    assert failure["summary"] == "There is no gs://views-project-bucket/data/train.csv."
    assert "trainshed buckets ls gs://views-project-bucket/" in failure["remedy"]
    assert failure["replica"] == "master-replica-0"
    assert failure["lines"][0]["message"] == "Traceback (most recent call last):"
    assert failure["lines"][-1]["message"].startswith("FileNotFoundError: ")
    [row] = submitter.server.call("GET", f"{OWN}/jobs?state=FAILED")["jobs"]
    assert row["message"] == failure["summary"]
    assert submitter.server.call("GET", f"{OWN}/jobs/printer")["failure"] is None


def test_exports_are_found_where_the_job_writes(submitter: Submitter, tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"a model")
    submitter.upload(tmp_path / "saved_model.pb", "out/export/1/saved_model.pb")
    [found] = submitter.server.call("GET", f"{OWN}/jobs/failer/exports")["exports"]
    assert (found["uri"], found["framework"]) == (f"gs://{submitter.bucket}/out/export/1/", "TENSORFLOW")
    assert submitter.server.call("GET", f"{OWN}/jobs/printer/exports") == {"exports": []}


def test_the_table_finds_jobs(submitter: Submitter) -> None:
    server = submitter.server
    page = server.call("GET", f"{OWN}/jobs?search=PRINT&state=RUNNING&state=FAILED,QUEUED&kind=training")
    assert [(row["jobId"], row["state"], row["gang"]) for row in page["jobs"]] == [("printer", "RUNNING", "1 master")]
    page = server.call("GET", f"{OWN}/jobs?pageSize=1")
    assert page["counts"]["ALL"] == 2
    rest = server.call("GET", f"{OWN}/jobs?pageSize=1&pageToken={page['nextPageToken']}")
    assert {row["jobId"] for row in page["jobs"] + rest["jobs"]} == {"printer", "failer"}
    assert "nextPageToken" not in rest


def test_a_project_at_a_glance(submitter: Submitter) -> None:
    told = submitter.server.call("GET", f"{OWN}/overview")
    assert (told["jobs"]["running"], told["jobs"]["failed24h"]) == (1, 1)
    assert [row["jobId"] for row in told["running"]] == ["printer"]
    assert told["machine"]["memoryBytes"] > 0
    [item] = [each for each in told["alerts"] if "failer" in each["message"]]
    assert item["link"] == f"#/p/{PROJECT}/jobs/failer"
    assert "gs://views-project-bucket/data/train.csv" in item["message"]


def test_the_settings_are_for_owners_of_the_server(submitter: Submitter) -> None:
    server = submitter.server
    told = {each["name"]: each for each in server.call("GET", "/trainshed/v1/settings")["settings"]}
    assert (told["gs_in_trainers"]["value"], told["gs_in_trainers"]["source"]) == ("trainshed", "environment")
    assert told["host"]["source"] == "default"
    body = {"user": "alice", "project": PROJECT, "role": "owner"}
    token = server.call("POST", "/trainshed/v1/tokens", body)["token"]
    assert Caller(server.url)("GET", "/trainshed/v1/settings", token=token)[0] == 403


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("jobs/printer/logs?pageSize=6000", "from 1 to 5000"),
        ("jobs/printer/logs?cursor=x", "`cursor` must be a cursor"),
        ("jobs/printer/logs?before=x", "`before` must be a cursor"),
        ("jobs/printer/logs?severity=LOUD", "is not a severity"),
        ("jobs/printer/logs?waitSeconds=21", "from 0 to 20"),
        ("jobs/printer/logs?colour=red", "Unknown name"),
        ("jobs?state=DONE", "is not a state"),
        ("jobs?pageSize=x", "pageSize"),
        ("jobs?kind=training&kind=prediction", "given twice"),
    ],
)
def test_nonsense_is_refused_in_words(submitter: Submitter, query: str, words: str) -> None:
    status, body = Caller(submitter.server.url)("GET", f"{OWN}/{query}", token=submitter.server.token)
    assert status == 400
    assert words in body["error"]["message"]


def test_the_jobs_are_ended(submitter: Submitter, tmp_path: Path) -> None:
    submitter.server.call("POST", f"/v1/projects/{PROJECT}/jobs/printer:cancel", {})
    submitter.wait("printer", ["CANCELLED"])
    page = submitter.server.call("GET", f"{OWN}/jobs/printer/logs?before=end&pageSize=1")
    assert page["ended"]


def test_the_level_of_the_sandbox_is_told(server: RunningServer, submitter: Submitter) -> None:
    body = server.call("GET", "/trainshed/v1/server")
    assert body["sandbox"] in ("full", "landlock", "none")
    assert (body["sandbox"] == "full") or body["sandboxReason"]
    assert body["limits"] in ("cgroups", "watched", "none")
    assert (body["limits"] == "cgroups") or body["limitsReason"]
    lines = eventually(lambda: submitter.lines("printer"), lambda lines: "tick" in lines)
    assert [line for line in lines if line.startswith(f"The sandbox has the level {body['sandbox']}")] != []
