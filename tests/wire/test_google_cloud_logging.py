"""Unmodified google-cloud-logging lists a job's lines, and the requests that gcloud sends lose and repeat none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from google.cloud import logging as google_logging
from google.oauth2.credentials import Credentials

from trainshed.config import Home
from trainshed.domain.times import now_us, rfc3339
from trainshed.store.database import Database
from trainshed.store.jobs import JobStore
from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.workloads.job_logs import WrittenJob

PROJECT = "logged-project"
SECOND = 1_000_000

MakeJob = Callable[[str], WrittenJob]


@pytest.fixture
def make_job(server: RunningServer) -> Iterator[MakeJob]:
    home = Home(Path(server.home))
    database = Database(home.database)
    jobs = JobStore(database)

    def make(job_id: str) -> WrittenJob:
        return WrittenJob(jobs, home, project=PROJECT, job_id=job_id, created_us=now_us() - 600 * SECOND)

    yield make
    database.close()


@pytest.fixture
def client(server: RunningServer) -> Iterator[Any]:
    make_client: Any = google_logging.Client
    make_credentials: Any = Credentials
    client = make_client(
        project=PROJECT,
        credentials=make_credentials(server.token),
        client_options={"api_endpoint": server.url},
        _use_grpc=False,
    )
    yield client
    client._connection.http.close()


def about(job: WrittenJob) -> str:
    return f'resource.type="ml_job" AND resource.labels.job_id="{job.job.id}"'


def messages(entries: Any) -> list[str]:
    return [entry.payload["message"] for entry in entries]


def test_the_client_lists_a_job_page_by_page(client: Any, make_job: MakeJob) -> None:
    job = make_job("paged")
    start = job.job.created_us + SECOND
    job.say([(start + n, f"step {n}") for n in range(100)])
    expected = ["Job queued.", *(f"step {n}" for n in range(100))]
    assert messages(client.list_entries(filter_=about(job))) == expected
    for size in (1, 7, 1000):
        asked = {"filter_": about(job), "page_size": size}
        assert messages(client.list_entries(**asked, order_by=google_logging.ASCENDING)) == expected
        assert messages(client.list_entries(**asked, order_by=google_logging.DESCENDING)) == expected[::-1]
    latest = client.list_entries(filter_=about(job), order_by=google_logging.DESCENDING, max_results=3)
    assert messages(latest) == ["step 99", "step 98", "step 97"]


def test_the_client_reads_every_part_of_an_entry(client: Any, make_job: MakeJob) -> None:
    job = make_job("parts")
    job.say(
        [(job.job.created_us + 5, "Überraschung \x00 \x1b[31m <b>")], replica="worker-replica-1", severity="WARNING"
    )
    [entry] = client.list_entries(filter_=f"{about(job)} AND severity>=WARNING")
    assert entry.payload["message"] == "Überraschung \x00 \x1b[31m <b>"
    assert entry.severity == "WARNING"
    assert entry.log_name == f"projects/{PROJECT}/logs/worker-replica-1"
    assert entry.resource.type == "ml_job"
    assert entry.resource.labels == {"job_id": "parts", "project_id": PROJECT, "task_name": "worker-replica-1"}
    assert entry.labels["ml.googleapis.com/task_name"] == "worker-replica-1"
    assert int(entry.timestamp.timestamp() * 1e6 + 0.5) == job.job.created_us + 5


def test_the_client_filters(client: Any, make_job: MakeJob) -> None:
    job = make_job("filtered")
    at = job.job.created_us
    job.say([(at + n * SECOND, f"loss {n}") for n in range(1, 11)])
    job.say([(at + n * SECOND, f"Accuracy {n}") for n in range(11, 21)], replica="worker-replica-0", severity="ERROR")

    def found(extra: str) -> list[str]:
        return messages(client.list_entries(filter_=f"{about(job)} AND {extra}"))

    assert found("accuracy") == [f"Accuracy {n}" for n in range(11, 21)]
    assert found("severity=ERROR AND jsonPayload.message:12") == ["Accuracy 12"]
    assert found('labels."ml.googleapis.com/task_name"="service"') == ["Job queued."]
    assert found('jsonPayload.message=~"^loss (1|2)$"') == ["loss 1", "loss 2"]
    assert found(f'timestamp>="{rfc3339(at + 9 * SECOND)}" -accuracy') == ["loss 9", "loss 10"]
    assert found('(jsonPayload.message="loss 3" OR jsonPayload.message="loss 5")') == ["loss 3", "loss 5"]


def test_all_jobs_of_a_project_are_listed_together(client: Any, make_job: MakeJob) -> None:
    for name in ("together_a", "together_b"):
        job = make_job(name)
        job.say([(job.job.created_us + n * SECOND, f"unmistakable {n} {name}") for n in range(1, 6)])
    entries = list(client.list_entries(filter_="unmistakable", page_size=3))
    assert len(entries) == 10
    assert [e.timestamp for e in entries] == sorted(e.timestamp for e in entries)


@dataclass
class GcloudStream:
    """Polls as `gcloud ai-platform jobs stream-logs` does: what it sends, and what it throws away as seen."""

    call: Callable[..., Any]
    job_id: str
    timestamp: str = "1970-01-01T01:00:00.000000000Z"
    insert_id: str = ""
    several_at_once: bool = False

    def poll(self, until_us: int) -> list[str]:
        if self.several_at_once:
            after = f'((timestamp="{self.timestamp}" AND insertId>"{self.insert_id}") OR timestamp>"{self.timestamp}")'
        else:
            after = f'timestamp>="{self.timestamp}"'
        query = (
            f'(resource.type="ml_job" OR resource.type="cloudml_job") AND resource.labels.job_id="{self.job_id}" '
            f'AND {after} AND timestamp<"{rfc3339(until_us)}"'
        )
        body = {
            "filter": query,
            "orderBy": "timestamp asc",
            "pageSize": 1000,
            "resourceNames": [f"projects/{PROJECT}"],
        }
        answer = self.call("POST", "/v2/entries:list?alt=json", body)
        return [e["jsonPayload"]["message"] for e in answer.get("entries", []) if self._is_new(e)]

    def _is_new(self, entry: dict[str, Any]) -> bool:
        if entry["timestamp"] == self.timestamp:
            self.several_at_once = entry["insertId"] > self.insert_id
        elif entry["timestamp"] > self.timestamp:
            self.several_at_once = False
        else:
            return False
        if entry["timestamp"] == self.timestamp and not self.several_at_once:
            return False
        self.timestamp, self.insert_id = entry["timestamp"], entry["insertId"]
        return True


def test_gcloud_streams_a_growing_log_without_loss_or_repetition(server: RunningServer, make_job: MakeJob) -> None:
    job = make_job("streamed")
    stream = GcloudStream(server.call, "streamed")
    written, seen = ["Job queued."], []
    clock = job.job.created_us + SECOND
    for turn in range(12):
        lines = [(clock + n, f"turn {turn} line {n}") for n in range(1, turn * 30)]
        torn = json.dumps({"t": clock + 5000, "r": "master-replica-0", "s": "INFO", "m": f"torn {turn}"}).encode()
        job.say(lines)
        if turn % 3 == 0:
            job.tell(f"event {turn}", clock + 5000)  # at the very moment of a line
            written += [*(text for _, text in lines), f"event {turn}", f"torn {turn}"]
        else:
            written += [*(text for _, text in lines), f"torn {turn}"]
        job.append(torn[:30])
        seen += stream.poll(clock + turn)  # up to the middle of what was written
        seen += stream.poll(clock + 5000)
        job.append(torn[30:] + b"\n")
        seen += stream.poll(clock + 5001)
        seen += stream.poll(clock + 5001)
        clock += 10_000
    assert seen == written


def test_a_poll_of_gcloud_gets_a_thousand_and_goes_on(server: RunningServer, make_job: MakeJob) -> None:
    job = make_job("many")
    job.say([(job.job.created_us + n, f"{n}") for n in range(1, 2500)])
    stream = GcloudStream(server.call, "many")
    polls = [stream.poll(now_us()) for _ in range(5)]
    assert [line for poll in polls for line in poll] == ["Job queued.", *(f"{n}" for n in range(1, 2500))]
    assert len(polls[0]) == 1000


def test_gclouds_task_name_filter(server: RunningServer, make_job: MakeJob) -> None:
    job = make_job("tasks")
    job.say([(job.job.created_us + 1, "from ps")], replica="ps-replica-0")
    query = (
        'resource.type="ml_job" AND resource.labels.job_id="tasks" AND '
        '(resource.labels.task_name="ps-replica-0" OR labels.task_name="ps-replica-0")'
    )
    body = {"filter": query, "resourceNames": [f"projects/{PROJECT}"]}
    [entry] = server.call("POST", "/v2/entries:list", body)["entries"]
    assert entry["jsonPayload"]["message"] == "from ps"


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"resourceNames": ["projects/logged-project"], "filter": "severity>=LOUD"}, 400, "at character 11"),
        ({"resourceNames": ["projects/logged-project"], "orderBy": "insertId"}, 400, "timestamp desc"),
        ({"resourceNames": ["projects/logged-project"], "pageToken": "x"}, 400, "page token"),
        ({"resourceNames": ["projects/logged-project"], "pageSize": -1}, 400, "pageSize"),
        ({"resourceNames": ["projects/logged-project"], "colour": 1}, 400, "Unknown field 'colour'"),
        ({"resourceNames": "projects/logged-project"}, 400, "list"),
        ({"resourceNames": ["organizations/1"]}, 400, "projects/my-project"),
        ({}, 400, "resource name"),
    ],
)
def test_a_bad_query_is_explained(server: RunningServer, body: Any, status: int, says: str) -> None:
    code, answer = Caller(server.url)("POST", "/v2/entries:list", token=server.token, body=body)
    assert (code, answer["error"]["code"]) == (status, status)
    assert says in answer["error"]["message"]


def test_no_entries_is_an_empty_answer(server: RunningServer) -> None:
    body = {"resourceNames": ["projects/no-such-project"], "filter": 'resource.labels.job_id="nope"'}
    assert server.call("POST", "/v2/entries:list", body) == {}


def test_following_a_job_by_cursor(server: RunningServer, make_job: MakeJob) -> None:
    job = make_job("followed")
    at = job.job.created_us
    job.say([(at + 1, "one"), (at + 2, "two")])
    path = f"/trainshed/v1/projects/{PROJECT}/jobs/followed/logs"
    first = server.call("GET", f"{path}?tail=1")
    assert first["ended"] is True
    assert first["entries"] == [
        {
            "time": rfc3339(at + 2),
            "insertId": f"{at + 2:018d}-0001-{first['entries'][0]['insertId'][-12:]}",
            "replica": "master-replica-0",
            "trial": "",
            "severity": "INFO",
            "message": "two",
        }
    ]
    job.say([(at + 3, "three")])
    later = server.call("GET", f"{path}?cursor={first['cursor']}&waitSeconds=5")
    assert [e["message"] for e in later["entries"]] == ["three"]
    whole = server.call("GET", f"{path}?grep=%5Et&replica=master-replica-0&since=1h")
    assert [e["message"] for e in whole["entries"]] == ["two", "three"]


@pytest.mark.parametrize(
    "query", ["tail=-1", "tail=x", "cursor=x", "waitSeconds=21", "waitSeconds=nan", "since=x", "grep=(", "a=b"]
)
def test_a_bad_request_to_follow_is_explained(server: RunningServer, make_job: MakeJob, query: str) -> None:
    path = f"/trainshed/v1/projects/{PROJECT}/jobs/anything/logs?{query}"
    status, answer = Caller(server.url)("GET", path, token=server.token)
    assert status == 400, answer
    assert Caller(server.url)("GET", path.partition("?")[0], token=server.token)[0] == 404
