"""google-cloud-storage, unmodified, with a token and this server as its endpoint."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import Any

import google.cloud.storage as storage
import pytest
from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.auth.credentials import Credentials
from google.oauth2.credentials import Credentials as TokenCredentials

from trainshed.testing.processes.servers import RunningServer

PROJECT = "wire-storage"


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[Any]:
    credentials: Credentials = TokenCredentials(token=server.token)  # type: ignore[no-untyped-call]
    options = ClientOptions(api_endpoint=server.url)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            patch.delenv(name, raising=False)
        made = storage.Client(project=PROJECT, credentials=credentials, client_options=options)
        yield made
        made.close()


@pytest.fixture
def bucket(client: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    made = client.create_bucket(f"gcs-{abs(hash(request.node.name)) % 10**9}")
    yield made
    made.delete(force=True)


def test_buckets_are_made_listed_labelled_and_deleted(client: Any) -> None:
    made = client.create_bucket("gcs-one-bucket", location="europe-west1")
    try:
        with pytest.raises(exceptions.Conflict):
            client.create_bucket("gcs-one-bucket")
        assert made.location == "EUROPE-WEST1"
        assert "gcs-one-bucket" in [found.name for found in client.list_buckets()]
        made.labels = {"team": "vision"}
        made.patch()
        assert client.get_bucket("gcs-one-bucket").labels == {"team": "vision"}
        made.blob("x").upload_from_string("x")
        with pytest.raises(exceptions.Conflict, match="not empty"):
            made.delete()
        made.blob("x").delete()
    finally:
        made.delete()
    assert client.lookup_bucket("gcs-one-bucket") is None


def test_text_goes_in_and_comes_out(bucket: Any) -> None:
    blob = bucket.blob("a folder/héllo+%2F.txt")
    blob.upload_from_string("grüße", content_type="text/plain")
    assert blob.download_as_text() == "grüße"
    assert blob.size == len("grüße".encode())
    assert blob.content_type == "text/plain"
    assert [found.name for found in bucket.list_blobs()] == ["a folder/héllo+%2F.txt"]


def test_a_storage_class_is_changed_by_a_rewrite(bucket: Any) -> None:
    blob = bucket.blob("class")
    blob.upload_from_string("x", content_type="text/x-odd")
    blob.update_storage_class("NEARLINE")
    blob.reload()
    assert (blob.storage_class, blob.content_type) == ("NEARLINE", "text/x-odd")


def test_ranges(bucket: Any) -> None:
    data = os.urandom(3_000_000)
    blob = bucket.blob("numbers")
    blob.upload_from_string(data)
    assert blob.download_as_bytes(start=10, end=19) == data[10:20]
    assert blob.download_as_bytes(start=2_999_990) == data[-10:]
    assert blob.download_as_bytes() == data
    with pytest.raises(exceptions.RequestRangeNotSatisfiable):
        blob.download_as_bytes(start=3_000_000)


def test_a_resumable_upload_in_chunks(bucket: Any) -> None:
    data = os.urandom(1_300_000)
    blob = bucket.blob("chunked", chunk_size=262_144)
    blob.upload_from_file(io.BytesIO(data), checksum="md5")
    assert bucket.blob("chunked", chunk_size=262_144).download_as_bytes() == data
    streamed = bucket.blob("streamed", chunk_size=262_144)
    with streamed.open("wb", chunk_size=262_144) as file:
        file.write(data)
    assert streamed.download_as_bytes() == data
    empty = bucket.blob("empty", chunk_size=262_144)
    empty.upload_from_file(io.BytesIO(b""))
    assert empty.download_as_bytes() == b""


def test_preconditions(bucket: Any) -> None:
    blob = bucket.blob("once")
    blob.upload_from_string("first", if_generation_match=0)
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("once").upload_from_string("second", if_generation_match=0)
    bucket.blob("once").upload_from_string("second", if_generation_match=blob.generation)
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("once").delete(if_generation_match=blob.generation)
    assert bucket.blob("once").download_as_text() == "second"
    with pytest.raises(exceptions.NotFound):
        bucket.blob("once", generation=blob.generation).download_as_text()


def test_metadata_is_patched_and_kept(bucket: Any) -> None:
    blob = bucket.blob("described")
    blob.metadata = {"colour": "blue", "shape": "round"}
    blob.cache_control = "no-store"
    blob.upload_from_string("x")
    generation = blob.generation
    blob.metadata = {"colour": "red", "shape": None}
    blob.content_language = "de"
    blob.patch()
    found = bucket.get_blob("described")
    assert found.metadata == {"colour": "red"}
    assert (found.content_language, found.cache_control) == ("de", "no-store")
    assert (found.generation, found.metageneration) == (generation, 2)
    assert found.download_as_text() == "x"


def test_copy_rewrite_rename_and_compose(bucket: Any, client: Any) -> None:
    blob = bucket.blob("one")
    blob.metadata = {"kept": "yes"}
    blob.upload_from_string("1", content_type="text/plain")
    bucket.blob("two").upload_from_string("22")
    copied = bucket.copy_blob(blob, bucket, "copied")
    assert copied.download_as_text() == "1"
    rewritten = bucket.blob("rewritten")
    token, done, total = rewritten.rewrite(blob)
    assert (token, done, total) == (None, 1, 1)
    rewritten.reload()
    assert (rewritten.metadata, rewritten.content_type) == ({"kept": "yes"}, "text/plain")
    bucket.rename_blob(rewritten, "renamed")
    assert bucket.get_blob("rewritten") is None
    whole = bucket.blob("whole")
    whole.content_type = "text/csv"
    whole.compose([blob, bucket.blob("two"), bucket.blob("renamed")])
    assert whole.download_as_text() == "1221"
    assert (whole.component_count, whole.content_type) == (3, "text/csv")


def test_a_batch(bucket: Any, client: Any) -> None:
    blobs = [bucket.blob(f"many/{number}") for number in range(5)]
    for blob in blobs:
        blob.upload_from_string("x")
    with client.batch():
        for blob in blobs[:3]:
            blob.metadata = {"batch": "yes"}
            blob.patch()
    assert [found.metadata for found in bucket.list_blobs()] == [{"batch": "yes"}] * 3 + [None] * 2
    with client.batch():
        for blob in blobs:
            blob.delete()
    assert list(bucket.list_blobs()) == []
    with pytest.raises(exceptions.NotFound), client.batch():
        blobs[0].delete()


def test_listing_by_prefix_delimiter_and_page(bucket: Any) -> None:
    for name in ("a-b", "a.b", "a/b", "a/c/d", "ab"):
        bucket.blob(name).upload_from_string("")
    found = bucket.list_blobs(delimiter="/")
    assert [blob.name for blob in found] == ["a-b", "a.b", "ab"]
    assert found.prefixes == {"a/"}
    assert [blob.name for blob in bucket.list_blobs(prefix="a/", page_size=1)] == ["a/b", "a/c/d"]
    assert [blob.name for blob in bucket.list_blobs(start_offset="a.", end_offset="a/c")] == ["a.b", "a/b"]


def test_wrong_bytes_are_refused(bucket: Any) -> None:
    blob = bucket.blob("wrong")
    blob.md5_hash = "1B2M2Y8AsgTpgAmY7PhCfg=="
    with pytest.raises(exceptions.BadRequest, match="md5Hash"):
        blob.upload_from_string("not empty")
    assert bucket.get_blob("wrong") is None


def test_gzip_is_stored_as_it_is(bucket: Any) -> None:
    import gzip

    packed = gzip.compress(b"hello" * 100)
    blob = bucket.blob("packed")
    blob.content_encoding = "gzip"
    blob.upload_from_string(packed, content_type="text/plain")
    assert blob.download_as_bytes(raw_download=True) == packed
    assert blob.download_as_bytes() == b"hello" * 100


def test_permissions_are_those_of_the_token_and_nothing_becomes_public(bucket: Any) -> None:
    assert bucket.test_iam_permissions(["storage.objects.get", "storage.objects.create"]) == [
        "storage.objects.get",
        "storage.objects.create",
    ]
    blob = bucket.blob("shown")
    blob.upload_from_string("x")
    with pytest.raises(exceptions.BadRequest, match="made public"):
        blob.make_public()
    assert blob.download_as_text() == "x"
    assert bucket.get_iam_policy().bindings
