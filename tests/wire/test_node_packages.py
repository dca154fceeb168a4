"""Packages fetched by another machine's code from a real server, over its TLS port."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainshed.artifacts import staging
from trainshed.artifacts.staging import Package
from trainshed.node.remote.fetch import FetchError, fetch_all
from trainshed.testing.clusters.gangs import fetch_token_of
from trainshed.testing.processes.servers import RunningServer, ask, files_of, stand_in
from trainshed.testing.workloads.submitter import Submitter

CONTENT = os.urandom(2_500_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
WAITING = """
import os, time
while not os.path.exists("go"):
    time.sleep(0.05)
"""


class Sender:
    """A running job with a package put aside, and the token that fetches it."""

    def __init__(self, server: RunningServer, job: str, scratch: Path) -> None:
        self.jobs = Submitter(server, f"wire-{job}", scratch)
        self.job = job
        self.jobs.submit(job, WAITING)
        self.jobs.wait(job, {"RUNNING"})
        path = scratch / "package.whl"
        path.write_bytes(CONTENT)
        uri = f"gs://{self.jobs.bucket}/package.whl"
        staging.stage_package(self.jobs.attempt(job), Package(uri=uri, path=path, sha256=SHA256))
        self.path = f"/trainshed/v1/projects/{self.jobs.project}/jobs/{job}/packages/{SHA256}"
        self.package = {
            "uri": uri,
            "sha256": SHA256,
            "size": len(CONTENT),
            "url": server.tls_url + self.path,
        }
        self.kit = {"ca": server.authority.read_text(), "token": fetch_token_of(server, self.jobs.project, job)}

    def fetch(self, folder: Path, **kit: Any) -> bytes:
        [found] = fetch_all([self.package], {**self.kit, **kit}, str(folder), lambda line: None)
        return Path(found["path"]).read_bytes()

    def end(self) -> None:
        (self.jobs.attempt(self.job) / "work" / "go").touch()
        self.jobs.wait(self.job)


@pytest.fixture(scope="module")
def sender(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sender]:
    made = Sender(server, "sender", tmp_path_factory.mktemp("sender"))
    yield made
    made.end()


def test_a_package_arrives(sender: Sender, tmp_path: Path) -> None:
    assert sender.fetch(tmp_path) == CONTENT


def test_any_part_of_it_can_be_asked_for(sender: Sender, server: RunningServer) -> None:
    def part(**headers: str) -> tuple[int, bytes]:
        answer = ask(
            server.url, "GET", sender.path, headers={"authorization": f"Bearer {sender.kit['token']}"} | headers
        )
        return answer.status, answer.body

    assert part() == (200, CONTENT)
    assert part(range="bytes=2000000-") == (206, CONTENT[2_000_000:])
    assert part(range="bytes=0-9") == (206, CONTENT[:10])
    assert part(range=f"bytes={len(CONTENT)}-")[0] == 416


def test_another_jobs_fetch_token_gets_nothing(sender: Sender, server: RunningServer, tmp_path: Path) -> None:
    other = fetch_token_of(server, sender.jobs.project, "other")  # a job that is not there
    with pytest.raises(FetchError, match="unknown, expired or revoked"):
        sender.fetch(tmp_path, token=other)


def test_what_was_not_put_aside_is_not_there(sender: Sender, server: RunningServer) -> None:
    headers = {"authorization": f"Bearer {sender.kit['token']}"}
    base = sender.path.removesuffix(SHA256)
    for name in ("0" * 64, "..%2Fspec.json", "%2e%2e", SHA256.upper(), f".{SHA256}"):
        assert ask(server.url, "GET", base + name, headers=headers).status == 404


def test_it_ends_with_the_job_and_is_in_no_log(server: RunningServer, tmp_path: Path) -> None:
    sender = Sender(server, "ending", tmp_path / "scratch")
    assert sender.fetch(tmp_path / "one") == CONTENT
    sender.end()
    with pytest.raises(FetchError, match="unknown, expired or revoked"):
        sender.fetch(tmp_path / "two")
    searched = set()
    for path, content in files_of(server.home):
        assert sender.kit["token"].encode() not in content, path
        searched.add(path)
    assert {server.log, sender.jobs.attempt("ending") / "log.jsonl"} <= searched


def test_a_server_that_is_away_is_waited_for(own_server: RunningServer, tmp_path: Path) -> None:
    sender = Sender(own_server, "patient", tmp_path / "scratch")
    own_server.kill()
    found: list[bytes] = []
    fetching = threading.Thread(target=lambda: found.append(sender.fetch(tmp_path / "cache")))
    fetching.start()
    with stand_in(own_server.tls_url) as asked:
        asked.accept()[0].close()
    assert found == []
    own_server.start()
    fetching.join(180)
    assert found == [CONTENT]
