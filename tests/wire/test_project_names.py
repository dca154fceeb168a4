"""Projects with a domain in their id, as organisations have: in paths, queries and bodies, encoded or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import google.cloud.storage as storage
import pytest
from google.oauth2.credentials import Credentials

from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.processes.shells import Shell
from trainshed.testing.workloads.submitter import Submitter

PROJECT = "example.com:wire-names"


@pytest.mark.parametrize("name", [PROJECT, quote(PROJECT, safe=""), PROJECT.replace(".", "%2E")])
def test_paths_name_it(server: RunningServer, name: str) -> None:
    number = server.call("GET", f"/v1/projects/{name}:getConfig")["serviceAccountProject"]
    assert server.call("GET", f"/v1/projects/{PROJECT}:getConfig")["serviceAccountProject"] == number
    model = f"named_{len(name)}_{name.count('.')}"
    created = server.call("POST", f"/v1/projects/{name}/models", {"name": model})
    assert created["name"] == f"projects/{PROJECT}/models/{model}"
    listed = server.call("GET", f"/v1/projects/{number}/models")["models"]
    assert created["name"] in [each["name"] for each in listed]
    status, answer = Caller(server.url)("POST", f"/v1/projects/{name}:predict", token=server.token, body={})
    assert status in (400, 404), answer
    assert server.call("GET", f"/trainshed/v1/projects/{name}/studies") == {"studies": []}
    assert server.call("GET", f"/v2/projects/{name}/logs")["logNames"][0].startswith(f"projects/{PROJECT}/logs/")


def test_the_storage_client_names_it(server: RunningServer) -> None:
    credentials: Any = Credentials(server.token)  # type: ignore[no-untyped-call]
    client = storage.Client(project=PROJECT, credentials=credentials, client_options={"api_endpoint": server.url})
    bucket = client.create_bucket("wire-names-by-client")
    bucket.blob("a.txt").upload_from_string("text")
    assert [each.name for each in client.list_buckets()] == ["wire-names-by-client"]
    by_other = Caller(server.url)("GET", "/storage/v1/b?project=example.com:wire-others", token=server.token)
    assert by_other[1].get("items", []) == []


def test_jobs_run_in_it(server: RunningServer, tmp_path: Path) -> None:
    """The packages of a job are on PYTHONPATH, whose entries end at a colon."""
    jobs = Submitter(server, PROJECT, tmp_path)
    jobs.submit("named", "import trainer\nprint('package', trainer.__name__)\n")
    assert jobs.wait("named")["state"] == "SUCCEEDED"
    query = {"resourceNames": [f"projects/{PROJECT}"], "filter": 'resource.labels.job_id="named"', "pageSize": 1000}
    entries = server.call("POST", "/v2/entries:list", query)["entries"]
    assert "package trainer" in [entry["jsonPayload"]["message"] for entry in entries]
    shell = Shell(server, tmp_path, PROJECT)
    assert "named" in shell("jobs", "list")[0]
    assert "package trainer" in shell("jobs", "logs", "named")[0]
    assert PROJECT in shell("shell", "--runtime-version", "none", "-c", "gcloud config get-value project")[0]
    assert "logs/master-replica-0" in shell("shell", "--runtime-version", "none", "-c", "gcloud logging logs list")[0]


@pytest.mark.parametrize(
    "name",
    [
        "example:wire-names",
        "Example.com:wire-names",
        ".com:wire-names",
        "example.com:",
        "a.b:c:wire-names",
        "example.com:1",
    ],
)
def test_other_colons_are_refused(server: RunningServer, name: str) -> None:
    status, answer = Caller(server.url)("GET", f"/v1/projects/{name}/models", token=server.token)
    assert status == 400, answer
    assert "example.com:my-project" in answer["error"]["message"]
