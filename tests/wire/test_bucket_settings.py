"""Versioning, holds and retention, as google-cloud-storage and gsutil's JSON API use them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import google.cloud.storage as storage
import pytest
from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.auth.credentials import Credentials
from google.oauth2.credentials import Credentials as TokenCredentials

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer, ask

PROJECT = "wire-settings"


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[Any]:
    credentials: Credentials = TokenCredentials(token=server.token)  # type: ignore[no-untyped-call]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            patch.delenv(name, raising=False)
        options = ClientOptions(api_endpoint=server.url)
        made = storage.Client(project=PROJECT, credentials=credentials, client_options=options)
        yield made
        made.close()


@pytest.fixture
def bucket(client: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    made = client.create_bucket(f"set-{abs(hash(request.node.name)) % 10**9}")
    yield made
    made.reload()
    made.default_event_based_hold, made.retention_period = False, None
    made.patch()
    for blob in client.list_blobs(made, versions=True):
        blob.temporary_hold = blob.event_based_hold = False
        blob.patch()
        blob.delete()
    made.delete()


def test_versions_are_listed_read_restored_and_deleted(client: Any, bucket: Any) -> None:
    bucket.versioning_enabled = True
    bucket.patch()
    assert client.get_bucket(bucket.name).versioning_enabled
    blob = bucket.blob("dir/a.txt")
    blob.upload_from_string("one")
    first = blob.generation
    blob.upload_from_string("two")
    second = blob.generation
    bucket.blob("dir/a.txt").delete()  # of no generation; `blob.delete()` would name the one that it wrote
    assert [each.name for each in client.list_blobs(bucket)] == []
    listed = list(client.list_blobs(bucket, versions=True, prefix="dir/"))
    assert [(each.name, each.generation) for each in listed] == [("dir/a.txt", first), ("dir/a.txt", second)]
    assert all(each.time_deleted for each in listed)
    assert bucket.blob("dir/a.txt", generation=first).download_as_text() == "one"
    with pytest.raises(exceptions.NotFound):
        bucket.blob("dir/a.txt").download_as_text()
    restored = bucket.copy_blob(bucket.blob("dir/a.txt"), bucket, "dir/a.txt", source_generation=first)
    assert (bucket.blob("dir/a.txt").download_as_text(), restored.generation > second) == ("one", True)
    bucket.blob("dir/a.txt", generation=first).delete()
    left = [each.generation for each in client.list_blobs(bucket, versions=True)]
    assert left == [second, restored.generation]
    with pytest.raises(exceptions.Conflict, match="not empty"):
        bucket.delete()
    pages = client.list_blobs(bucket, versions=True, page_size=1).pages
    assert [each.generation for page in pages for each in page] == left


def test_holds_keep_objects(client: Any, bucket: Any) -> None:
    blob = bucket.blob("evidence")
    blob.upload_from_string("x")
    blob.temporary_hold = True
    blob.patch()
    with pytest.raises(exceptions.Forbidden, match="Temporary hold"):
        bucket.blob("evidence").delete()
    with pytest.raises(exceptions.Forbidden, match="Temporary hold"):
        bucket.blob("evidence").upload_from_string("y")
    assert bucket.get_blob("evidence").temporary_hold is True
    blob.temporary_hold = False
    blob.patch()
    blob.delete()
    bucket.default_event_based_hold = True
    bucket.patch()
    blob = bucket.blob("later")
    blob.upload_from_string("x")
    assert bucket.get_blob("later").event_based_hold is True
    with pytest.raises(exceptions.Forbidden, match="Event-Based hold"):
        bucket.blob("later").delete()


def test_a_retention_policy_keeps_objects_until_their_time(client: Any, bucket: Any) -> None:
    bucket.retention_period = 3600
    bucket.patch()
    found = client.get_bucket(bucket.name)
    assert (found.retention_period, found.retention_policy_locked) == (3600, None)
    assert found.retention_policy_effective_time is not None
    blob = bucket.blob("kept")
    blob.upload_from_string("x")
    stored = bucket.get_blob("kept")
    assert (stored.retention_expiration_time - stored.time_created).total_seconds() == 3600
    with pytest.raises(exceptions.Forbidden, match="retention policy"):
        blob.delete()
    with pytest.raises(exceptions.Forbidden, match="retention policy"):
        bucket.rename_blob(blob, "elsewhere")
    bucket.blob("elsewhere").reload()
    bucket.retention_period = None
    bucket.patch()
    blob.delete()


def test_a_locked_policy_only_grows(client: Any) -> None:
    bucket = client.create_bucket("set-locked-policy")
    bucket.retention_period = 10
    bucket.patch()
    bucket.lock_retention_policy()
    assert client.get_bucket(bucket.name).retention_policy_locked is True
    for seconds in (None, 9):
        bucket.reload()
        bucket.retention_period = seconds
        with pytest.raises(exceptions.Forbidden, match="locked"):
            bucket.patch()
    bucket.reload()
    bucket.retention_period = 20
    bucket.patch()
    found = client.get_bucket(bucket.name)
    assert (found.retention_period, found.retention_policy_locked) == (20, True)
    bucket.delete()


def test_lifecycle_rules_are_applied_and_spare_what_is_held(client: Any, bucket: Any) -> None:
    bucket.versioning_enabled = True
    bucket.patch()
    for name in ("logs/old", "logs/old", "logs/old", "logs/held", "data"):
        bucket.blob(name).upload_from_string("x")
    held = bucket.blob("logs/held")
    held.temporary_hold = True
    held.patch()
    bucket.add_lifecycle_delete_rule(number_of_newer_versions=2)
    bucket.add_lifecycle_delete_rule(age=0, is_live=True, matches_prefix=["logs/"])
    bucket.add_lifecycle_set_storage_class_rule("NEARLINE", age=0, matches_prefix=["data"])
    bucket.patch()
    assert len(list(client.get_bucket(bucket.name).lifecycle_rules)) == 3

    def left() -> list[tuple[str, str, bool]]:
        found = client.list_blobs(bucket, versions=True)
        return [(each.name, each.storage_class, each.time_deleted is None) for each in found]

    expected = [("data", "NEARLINE", True), ("logs/held", "STANDARD", True)] + [("logs/old", "STANDARD", False)] * 2
    eventually(left, expected.__eq__)
    bucket.clear_lifecycle_rules()
    bucket.patch()
    assert list(client.get_bucket(bucket.name).lifecycle_rules) == []


def test_lifecycle_rules_end_uploads_in_parts(server: RunningServer, client: Any, bucket: Any) -> None:
    token = {"authorization": f"Bearer {server.token}"}
    for name in ("tmp/given-up", "kept"):
        assert ask(server.url, "POST", f"/{bucket.name}/{name}?uploads", body=b"", headers=token).status == 200

    def left() -> list[str]:
        listed = ask(server.url, "GET", f"/{bucket.name}?uploads", headers=token).body.decode()
        return [name for name in ("tmp/given-up", "kept") if f"<Key>{name}</Key>" in listed]

    assert left() == ["tmp/given-up", "kept"]
    bucket.add_lifecycle_abort_incomplete_multipart_upload_rule(age=0, matches_prefix=["tmp/"])
    bucket.patch()
    eventually(left, ["kept"].__eq__)


def test_pages_of_other_sites_may_do_what_the_bucket_s_rules_say(server: RunningServer, client: Any) -> None:
    bucket = client.create_bucket("set-cors")
    bucket.blob("a.txt").upload_from_string("x")
    path, page = "/storage/v1/b/set-cors/o/a.txt?alt=media", {"origin": "https://app.example"}
    token = {"authorization": f"Bearer {server.token}"}
    asked = page | {"access-control-request-method": "GET", "access-control-request-headers": "authorization"}
    assert ask(server.url, "OPTIONS", path, headers=asked).status == 403
    assert ask(server.url, "GET", path, headers=page | token).status == 403
    bucket.cors = [{"origin": ["https://app.example"], "method": ["GET"], "responseHeader": ["Authorization"]}]
    bucket.patch()
    assert client.get_bucket("set-cors").cors == bucket.cors
    preflight = ask(server.url, "OPTIONS", path, headers=asked)
    assert (preflight.status, preflight.body) == (200, b"")
    assert preflight.headers["access-control-allow-origin"] == "https://app.example"
    read = ask(server.url, "GET", path, headers=page | token)
    assert (read.status, read.body) == (200, b"x")
    assert read.headers["access-control-allow-origin"] == "https://app.example"
    refused = [
        ask(server.url, "GET", path, headers=page),  # the rules give no access
        ask(server.url, "GET", path, headers=token | {"origin": "https://other.example"}),
        ask(server.url, "DELETE", path, headers=page | token),
        ask(server.url, "GET", path, headers=page | token | {"cookie": "trainshed=x"}),
        ask(server.url, "GET", "/storage/v1/b/set-none/o/a.txt", headers=page | token),
        ask(server.url, "GET", "/v1/projects/p/jobs", headers=page | token),
        ask(server.url, "OPTIONS", path, headers=asked | {"access-control-request-method": "PUT"}),
        ask(server.url, "OPTIONS", path, headers=asked | {"access-control-request-headers": "x-other"}),
        ask(server.url, "OPTIONS", "/v1/projects/p/jobs", headers=asked),
    ]
    assert [answer.status for answer in refused] == [401] + [403] * 8
    bucket.delete(force=True)


@pytest.mark.parametrize(
    "settings",
    [
        {"versioning": True},
        {"versioning": {"enabled": "yes"}},
        {"retentionPolicy": {"retentionPeriod": "-1"}},
        {"retentionPolicy": {"retentionPeriod": "9999999999"}},
        {"retentionPolicy": {"period": "1"}},
        {"defaultEventBasedHold": "true"},
        {"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {}}]}},
        {"cors": [{"origin": "*"}]},
    ],
    ids=str,
)
def test_settings_of_another_form_are_refused(server: RunningServer, settings: dict[str, Any]) -> None:
    headers = {"authorization": f"Bearer {server.token}"}
    body = {"name": "set-refused", **settings}
    answer = ask(server.url, "POST", f"/storage/v1/b?project={PROJECT}", body=body, headers=headers)
    assert (answer.status, answer.json["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert next(iter(settings)) in str(answer.json) or "retention" in str(answer.json)
