"""Google's client is built from the documents that the server itself gives, and then makes calls."""

from __future__ import annotations

import io
import warnings
from typing import Any

import pytest
from google.oauth2.credentials import Credentials

from trainshed.testing.processes.servers import RunningServer, ask

with warnings.catch_warnings():  # httplib2 still calls pyparsing by its old names
    warnings.simplefilter("ignore", DeprecationWarning)
    from googleapiclient import discovery
    from googleapiclient.errors import HttpError
    from googleapiclient.http import MediaIoBaseUpload

PROJECT = "discovered"
PARENT = f"projects/{PROJECT}"
BY_PATH = "{base}/discovery/v1/apis/{{api}}/{{apiVersion}}/rest"
BY_HOST = "{base}/$discovery/rest?version={{apiVersion}}"


def client(server: RunningServer, name: str, version: str, *, url: str = BY_PATH) -> Any:
    return discovery.build(
        name,
        version,
        credentials=Credentials(server.token),  # type: ignore[no-untyped-call]
        discoveryServiceUrl=url.format(base=server.url),
        static_discovery=False,
        cache_discovery=False,
    )


@pytest.mark.parametrize("url", [BY_PATH, BY_HOST], ids=["path", "host"])
def test_the_ml_client_creates_and_lists(server: RunningServer, url: str) -> None:
    with client(server, "ml", "v1", url=url) as ml:
        models, name = ml.projects().models(), f"by_{'path' if url is BY_PATH else 'host'}"
        assert models.create(parent=PARENT, body={"name": name}).execute()["name"] == f"{PARENT}/models/{name}"
        assert models.create(parent=PARENT, body={"name": f"{name}_2"}).execute()
        request, seen = models.list(parent=PARENT, pageSize=1, filter=f"name:{name}"), []
        while request is not None:
            page = request.execute()
            seen += [model["name"].rpartition("/")[2] for model in page["models"]]
            request = models.list_next(request, page)
        assert sorted(seen) == [name, f"{name}_2"]
        policy = models.getIamPolicy(resource=f"{PARENT}/models/{name}").execute()
        assert "etag" in policy
        with pytest.raises(HttpError, match="404"):
            ml.projects().predict(name=f"{PARENT}/models/none", body={"instances": []}).execute()
        with pytest.raises(HttpError, match="400"):
            ml.projects().jobs().create(parent=PARENT, body={"jobId": "j", "trainingInput": {}}).execute()
        with pytest.raises(TypeError, match="does not match the pattern"):
            ml.projects().jobs().get(name="jobs/j")


def test_the_storage_client_uploads_and_reads(server: RunningServer) -> None:
    with client(server, "storage", "v1") as storage:
        bucket = f"{PROJECT}-bucket"
        assert storage.buckets().insert(project=PROJECT, body={"name": bucket}).execute()["name"] == bucket
        for name, resumable in (("a/simple", False), ("a/resumable", True)):
            media = MediaIoBaseUpload(io.BytesIO(name.encode()), mimetype="text/plain", resumable=resumable)
            storage.objects().insert(bucket=bucket, name=name, media_body=media).execute()
        assert storage.objects().get_media(bucket=bucket, object="a/resumable").execute() == b"a/resumable"
        request, seen = storage.objects().list(bucket=bucket, prefix="a/", maxResults=1), []
        while request is not None:
            page = request.execute()
            seen += [item["name"] for item in page["items"]]
            request = storage.objects().list_next(request, page)
        assert seen == ["a/resumable", "a/simple"]


def test_the_logging_client_lists(server: RunningServer) -> None:
    with client(server, "logging", "v2") as logging:
        assert logging.entries().list(body={"resourceNames": [PARENT]}).execute() == {}


def test_the_root_is_where_the_client_came(server: RunningServer) -> None:
    path = "/discovery/v1/apis/ml/v1/rest"
    assert ask(server.url, "GET", path).json["rootUrl"] == f"{server.url}/"
    for host, asked in (
        ("www.googleapis.com", path),
        ("storage.googleapis.com", path),
        ("ml.googleapis.com", "/$discovery/rest?version=v1"),
    ):
        assert ask(server.url, "GET", asked, headers={"host": host}).json["rootUrl"] == "https://ml.googleapis.com/"
    by_host = ask(server.url, "GET", "/$discovery/rest?version=v2", headers={"host": "logging.googleapis.com"}).json
    assert (by_host["id"], by_host["rootUrl"]) == ("logging:v2", "https://logging.googleapis.com/")


def test_the_list_leads_to_the_documents(server: RunningServer) -> None:
    items = ask(server.url, "GET", "/discovery/v1/apis").json["items"]
    assert [item["id"] for item in items] == ["ml:v1", "storage:v1", "logging:v2"]
    for item in items:
        found = ask(server.url, "GET", item["discoveryRestUrl"].removeprefix(server.url)).json
        assert found["id"] == item["id"]
    missing = ask(server.url, "GET", "/discovery/v1/apis/compute/v1/rest")
    assert (missing.status, "ml v1, storage v1, logging v2" in missing.json["error"]["message"]) == (404, True)
