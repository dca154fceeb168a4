"""A response is lost and the create comes again: there is one job, model, version or object."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from trainshed.testing.processes.servers import RunningServer, ask
from trainshed.testing.workloads.deployer import Deployer
from trainshed.testing.workloads.submitter import Submitter


@contextmanager
def losing_responses(server: RunningServer) -> Iterator[str]:
    """A proxy that passes requests on, waits for the first bytes of the response and closes instead."""
    upstream = urlsplit(server.url)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client, socket.create_connection((str(upstream.hostname), int(upstream.port or 0))) as there:
                    client.settimeout(0.02)
                    there.settimeout(0.02)
                    while True:
                        with suppress(TimeoutError):
                            there.sendall(client.recv(1 << 16))
                        with suppress(TimeoutError):
                            there.recv(1)
                            break

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def lost_then_repeated(server: RunningServer, method: str, path: str, body: Any) -> int:
    """Send a request whose response is lost, and the same one again. Returns the status of the second response."""
    headers = {"authorization": f"Bearer {server.token}", "host": urlsplit(server.url).netloc}
    with losing_responses(server) as url, pytest.raises((OSError, http.client.HTTPException)):
        ask(url, method, path, body=body, headers=headers)
    return ask(server.url, method, path, body=body, headers=headers).status


@pytest.mark.fault("F12")
def test_a_create_that_is_repeated_after_a_lost_response_makes_nothing_twice(
    server: RunningServer, tmp_path: Path
) -> None:
    jobs = Submitter(server, "lost-answers", tmp_path / "jobs")
    first = jobs.submit("first", "print('once')")
    jobs.wait("first")
    body = {"jobId": "second", "trainingInput": first["trainingInput"]}
    path = "/v1/projects/lost-answers/jobs"
    assert lost_then_repeated(server, "POST", path, body) == 409
    assert jobs.wait("second")["state"] == "SUCCEEDED"
    assert jobs.lines("second").count("once") == 1
    assert sorted(job["jobId"] for job in server.call("GET", path)["jobs"]) == ["first", "second"]

    models = "/v1/projects/lost-answers/models"
    assert lost_then_repeated(server, "POST", models, {"name": "lost"}) == 409
    assert [each["name"].rpartition("/")[2] for each in server.call("GET", models)["models"]] == ["lost"]

    upload = f"/upload/storage/v1/b/{jobs.bucket}/o?uploadType=media&name=lost&ifGenerationMatch=0"
    assert lost_then_repeated(server, "POST", upload, b"data") == 412
    listed = server.call("GET", f"/storage/v1/b/{jobs.bucket}/o?prefix=lost")["items"]
    assert [each["name"] for each in listed] == ["lost"]


@pytest.mark.fault("F12")
def test_a_version_whose_response_was_lost_is_created_once(server: RunningServer, tmp_path: Path) -> None:
    deployer = Deployer(server, "lost-versions", tmp_path)
    uri = deployer.upload("model/weights.txt", b"no model").rpartition("/")[0]
    path = f"{deployer.path}/versions"
    assert lost_then_repeated(server, "POST", path, {"name": "v1", "deploymentUri": uri}) == 409
    assert len(server.call("GET", path)["versions"]) == 1
    operations = server.call("GET", "/v1/projects/lost-versions/operations")["operations"]
    assert len(operations) == 1
