"""A bucket in a cloud that is silent: everybody is told why, all else works, and it heals."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainshed.testing.eventually import eventually
from trainshed.testing.fakes.s3_server import BUCKET, S3Server, s3_server
from trainshed.testing.processes.servers import HttpAnswer, RunningServer, ask

SECRET = "canary-of-the-secret-key"
KEPT = "/storage/v1/b/kept/o"
CALLERS = 60  #: more than the server has threads for


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_silent_cloud_holds_up_nothing_else(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(f'[buckets.kept]\nurl = "s3://{BUCKET}"\nproject = "vision"\n')
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as silent:  # which takes connections and never answers
        port = silent.getsockname()[1]
        env = {**S3Server(port).env, "AWS_SECRET_ACCESS_KEY": SECRET}
        server = RunningServer(home, environment=env).start()

        def call(method: str, path: str, body: object = None) -> HttpAnswer:
            return ask(server.url, method, path, body=body, headers={"authorization": f"Bearer {server.token}"})

        def timed(number: int) -> tuple[float, HttpAnswer]:
            begun = time.monotonic()
            answer = call("GET", f"{KEPT}/a-{number}")
            return time.monotonic() - begun, answer

        assert call("POST", "/storage/v1/b?project=vision", {"name": "plain"}).status == 200
        with ThreadPoolExecutor(CALLERS) as pool:
            first = sorted(pool.map(timed, range(CALLERS)), key=lambda each: each[0])
            second = sorted(pool.map(timed, range(CALLERS)), key=lambda each: each[0])
        told = [answer for _, answer in (*first, *second)]
        assert {answer.status for answer in told} == {503}
        assert all(b"where gs://kept is kept, can't be used now" in answer.body for answer in told)
        assert second[-2][0] < first[-1][0] / 2  # one at most has tried again
        assert call("GET", "/storage/v1/b/plain/o").status == 200
    with s3_server(port):
        eventually(lambda: call("GET", KEPT).status, lambda status: status == 200, within_s=60)
    assert not [answer for answer in told if SECRET.encode() in answer.body]
    assert SECRET not in server.log.read_text()
    assert server.close() == 0
