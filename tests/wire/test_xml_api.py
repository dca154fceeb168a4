"""The XML API of Cloud Storage: what google-cloud-storage and plain HTTP clients do with it."""

from __future__ import annotations

import http.client
import os
import re
import ssl
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import google.cloud.storage as storage
import pytest
from google.api_core.client_options import ClientOptions
from google.auth.credentials import Credentials
from google.cloud.storage import transfer_manager
from google.oauth2 import service_account
from google.oauth2.credentials import Credentials as TokenCredentials

from trainshed.testing.processes.servers import HttpAnswer, RunningServer, ask

PROJECT, BUCKET = "wire-xml", "wire-xml-bucket"
PART = 5 << 20


def xml(server: RunningServer, method: str, path: str, body: Any = None, **headers: str) -> HttpAnswer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ask(server.url, method, path, body=body, headers={"authorization": f"Bearer {server.token}", **named})


def texts(answer: HttpAnswer, name: str) -> list[str]:
    """The texts of all elements of a name, whatever their namespace."""
    found = ElementTree.fromstring(answer.body.decode()).iter()
    return [each.text or "" for each in found if each.tag.rpartition("}")[2] == name]


@pytest.fixture(scope="module")
def bucket(server: RunningServer) -> Iterator[Any]:
    assert xml(server, "PUT", f"/{BUCKET}", x_goog_project_id=PROJECT).status == 200
    credentials: Credentials = TokenCredentials(token=server.token)  # type: ignore[no-untyped-call]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            patch.delenv(name, raising=False)
        options = ClientOptions(api_endpoint=server.url)
        client = storage.Client(project=PROJECT, credentials=credentials, client_options=options)
        yield client.bucket(BUCKET)
        client.bucket(BUCKET).delete(force=True)
        client.close()
    assert xml(server, "HEAD", f"/{BUCKET}").status == 404


def test_objects_are_those_of_the_json_api(server: RunningServer, bucket: Any) -> None:
    put = xml(server, "PUT", f"/{BUCKET}/a/b%20c.txt", b"hello", content_type="text/x-odd", x_goog_meta_team="vision")
    assert (put.status, put.body) == (200, b"")
    blob = bucket.get_blob("a/b c.txt")
    assert (blob.content_type, blob.metadata) == ("text/x-odd", {"team": "vision"})
    assert str(blob.generation) == put.headers["x-goog-generation"]
    assert xml(server, "GET", f"/{BUCKET}/a/b%20c.txt", range="bytes=1-2").body == b"el"
    assert xml(server, "HEAD", f"/{BUCKET}/a/b%20c.txt").headers["x-goog-hash"].endswith(blob.md5_hash)
    copied = xml(server, "PUT", f"/{BUCKET}/copy", x_goog_copy_source=f"/{BUCKET}/a/b%20c.txt")
    assert texts(copied, "ETag") == [copied.headers["etag"]]
    assert bucket.get_blob("copy").metadata == {"team": "vision"}
    refused = xml(server, "PUT", f"/{BUCKET}/copy", b"x", x_goog_if_generation_match="0")
    assert (refused.status, texts(refused, "Code")) == (412, ["PreconditionFailed"])
    assert xml(server, "DELETE", f"/{BUCKET}/copy").status == 204


def test_a_bucket_has_a_host_of_its_own(server: RunningServer, bucket: Any) -> None:
    """Through the proxy, with a certificate for that name."""
    bucket.blob("own/host.txt").upload_from_string("hello")
    port = int((server.home / "proxy-port").read_text())
    trusted = ssl.create_default_context(cafile=server.authority)
    for host, path in (
        (f"{BUCKET}.storage.googleapis.com", "/own/host.txt"),
        ("storage.googleapis.com", f"/{BUCKET}/own/host.txt"),
    ):
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=trusted, timeout=60)
        connection.set_tunnel(host, 443)
        seen = []
        for asked in (path, path.removesuffix("/own/host.txt") + "/?prefix=own/", "/storage/v1/b/absent"):
            connection.request("GET", asked, headers={"Authorization": f"Bearer {server.token}"})
            answer = connection.getresponse()
            seen.append((answer.status, answer.read()))
        connection.close()
        assert seen[0] == (200, b"hello")
        assert seen[1][0] == 200 and b"<Key>own/host.txt</Key>" in seen[1][1]
        assert seen[2][0] == 404 and seen[2][1].startswith(b"{")


def test_lists(server: RunningServer, bucket: Any) -> None:
    names = ["list/a&<b>", "list/c/d", "list/c/e", "list/f"]
    for name in names:
        bucket.blob(name).upload_from_string(name)
    whole = xml(server, "GET", f"/{BUCKET}?prefix=list/&delimiter=/")
    assert texts(whole, "Key") == ["list/a&<b>", "list/f"]
    assert texts(whole, "Prefix") == ["list/", "list/c/"]
    seen: list[str] = []
    marker = ""
    for _ in range(len(names)):
        page = xml(server, "GET", f"/{BUCKET}?prefix=list/&max-keys=1&encoding-type=url&marker={marker}")
        seen += texts(page, "Key")
        marker = "".join(texts(page, "NextMarker"))
    assert seen == ["list/a%26%3Cb%3E", *names[1:]]
    assert marker == ""
    second = xml(server, "GET", f"/{BUCKET}?list-type=2&prefix=list/&max-keys=2")
    assert texts(second, "KeyCount") == ["2"]
    [token] = texts(second, "NextContinuationToken")
    rest = xml(server, "GET", f"/{BUCKET}?list-type=2&prefix=list/&continuation-token={token}")
    assert texts(rest, "Key") == names[2:]
    bad = xml(server, "GET", f"/{BUCKET}?list-type=2&continuation-token=no")
    assert (bad.status, texts(bad, "Code")) == (400, ["InvalidArgument"])


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", f"/{BUCKET}/absent", 404, "NoSuchKey"),
        ("GET", "/wire-xml-no-bucket", 404, "NoSuchBucket"),
        ("GET", f"/{BUCKET}/x?uploadId=0123", 404, "NoSuchUpload"),
        ("GET", f"/{BUCKET}?cors", 400, "InvalidArgument"),
        ("PUT", f"/{BUCKET}?acl", 400, "InvalidArgument"),
        ("PUT", f"/{BUCKET}/x?acl", 400, "InvalidArgument"),
        ("PUT", f"/{BUCKET}/x?tagging", 400, "InvalidArgument"),
        ("POST", f"/{BUCKET}/x", 400, "InvalidArgument"),
        ("PUT", f"/{BUCKET}", 409, "BucketAlreadyExists"),
    ],
)
def test_errors_are_xml(server: RunningServer, bucket: Any, method: str, path: str, status: int, code: str) -> None:
    answer = xml(server, method, path, x_goog_project_id=PROJECT)
    assert (answer.status, texts(answer, "Code")) == (status, [code])
    assert answer.headers["content-type"].startswith("application/xml")


@pytest.mark.parametrize("header", ["encryption-key", "encryption-kms-key-name", "object-lock-mode"])
def test_protection_that_is_not_there_is_refused(server: RunningServer, bucket: Any, header: str) -> None:
    given = {f"x_goog_{header.replace('-', '_')}": "x"}
    answers = [
        xml(server, "PUT", f"/{BUCKET}/secret", **given),
        xml(server, "POST", f"/{BUCKET}/secret?uploads", **given),
    ]
    assert [(answer.status, f"x-goog-{header}".encode() in answer.body) for answer in answers] == [(400, True)] * 2
    assert not bucket.blob("secret").exists()


def test_nobody_without_a_credential_is_answered(server: RunningServer, bucket: Any) -> None:
    for method, path in (
        ("GET", f"/{BUCKET}"),
        ("GET", f"/{BUCKET}/x"),
        ("PUT", f"/{BUCKET}/x"),
        ("POST", f"/{BUCKET}/x?uploads"),
    ):
        assert ask(server.url, method, path, body=b"x" if method == "PUT" else None).status == 401


def test_chunks_are_uploaded_at_once(server: RunningServer, bucket: Any, tmp_path: Path) -> None:
    """google-cloud-storage's transfer manager, which uses uploads in parts."""
    file = tmp_path / "large"
    file.write_bytes(os.urandom(2 * PART + 12345))
    blob = bucket.blob("a folder/größe+&.bin")
    blob.content_encoding = "x-odd"  # the client sends it with all requests of the upload
    transfer_manager.upload_chunks_concurrently(
        str(file), blob, chunk_size=PART, max_workers=2, worker_type=transfer_manager.THREAD
    )
    assert blob.download_as_bytes(raw_download=True) == file.read_bytes()
    assert bucket.get_blob(blob.name).content_encoding == "x-odd"
    assert texts(xml(server, "GET", f"/{BUCKET}?uploads"), "UploadId") == []


def begun(server: RunningServer, name: str) -> str:
    answer = xml(server, "POST", f"/{BUCKET}/{name}?uploads", content_type="text/x-parts")
    assert answer.status == 200, answer.body
    return texts(answer, "UploadId")[0]


def completion(*parts: tuple[int, str]) -> bytes:
    body = "".join(f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>" for number, etag in parts)
    return f"<CompleteMultipartUpload>{body}</CompleteMultipartUpload>".encode()


def test_parts_are_replaced_listed_and_checked(server: RunningServer, bucket: Any) -> None:
    upload = begun(server, "parts")
    path = f"/{BUCKET}/parts?uploadId={upload}"
    assert texts(xml(server, "GET", f"/{BUCKET}?uploads&prefix=par"), "UploadId") == [upload]
    last = xml(server, "PUT", f"{path}&partNumber=7", b"end").headers["etag"]
    old = xml(server, "PUT", f"{path}&partNumber=2", b"old").headers["etag"]
    new = xml(server, "PUT", f"{path}&partNumber=2", b"n" * PART).headers["etag"]
    wrong = xml(server, "PUT", f"{path}&partNumber=3", b"x", content_md5="XUFAKrxLKna5cZ2REBfFkg==")
    assert (wrong.status, texts(wrong, "Code")) == (400, ["InvalidArgument"])
    listed = xml(server, "GET", f"{path}&max-parts=1")
    assert (texts(listed, "PartNumber"), texts(listed, "Size")) == (["2"], [str(PART)])
    assert texts(listed, "IsTruncated") == ["true"]
    assert texts(xml(server, "GET", f"{path}&part-number-marker=2"), "ETag") == [last]
    for bad in (
        completion((2, old), (7, last)),
        completion((7, last), (2, new)),
        completion(),
        b"<Other/>",
        b"no xml",
        b'<!DOCTYPE x [<!ENTITY y "z">]><CompleteMultipartUpload>&y;</CompleteMultipartUpload>',
    ):
        assert xml(server, "POST", path, bad).status == 400
    for number in ("0", "10001", "x", ""):
        assert xml(server, "PUT", f"{path}&partNumber={number}", b"x").status == 400
    done = xml(server, "POST", path, completion((2, new), (7, last)))
    assert (done.status, texts(done, "Key")) == (200, ["parts"])
    again = xml(server, "POST", path, completion((2, new), (7, last)))
    assert again.headers["x-goog-generation"] == done.headers["x-goog-generation"]
    blob = bucket.get_blob("parts")
    assert (blob.size, blob.content_type) == (PART + 3, "text/x-parts")


def test_an_upload_is_of_one_object(server: RunningServer, bucket: Any) -> None:
    upload = begun(server, "chosen")
    etag = xml(server, "PUT", f"/{BUCKET}/chosen?uploadId={upload}&partNumber=1", b"x").headers["etag"]
    other = f"/{BUCKET}/bystander?uploadId={upload}"
    answers = [
        xml(server, "PUT", f"{other}&partNumber=2", b"y"),
        xml(server, "GET", other),
        xml(server, "POST", other, completion((1, etag))),
        xml(server, "DELETE", other),
    ]
    assert [answer.status for answer in answers] == [404] * 4
    assert xml(server, "POST", f"/{BUCKET}/chosen?uploadId={upload}", completion((1, etag))).status == 200


def test_an_upload_ends_with_the_project_of_its_bucket(server: RunningServer) -> None:
    """The bucket of then is gone, and another project has one of its name."""
    name = "wire-xml-taken"
    assert xml(server, "PUT", f"/{name}", x_goog_project_id=PROJECT).status == 200
    start = xml(server, "POST", f"/{name}/x", x_goog_resumable="start")
    assert xml(server, "POST", f"/{name}/parts?uploads").status == 200
    assert xml(server, "DELETE", f"/{name}").status == 204
    assert xml(server, "PUT", f"/{name}", x_goog_project_id="wire-xml-other").status == 200
    session = urlsplit(start.headers["location"])
    assert ask(server.url, "PUT", f"{session.path}?{session.query}", body=b"planted").status == 401
    assert xml(server, "HEAD", f"/{name}/x").status == 404
    assert texts(xml(server, "GET", f"/{name}?uploads"), "Key") == []
    assert xml(server, "DELETE", f"/{name}").status == 204


def test_a_small_part_ends_an_upload_and_a_cancelled_one_is_gone(server: RunningServer, bucket: Any) -> None:
    upload = begun(server, "small")
    path = f"/{BUCKET}/small?uploadId={upload}"
    etags = [xml(server, "PUT", f"{path}&partNumber={number}", b"few").headers["etag"] for number in (1, 2)]
    refused = xml(server, "POST", path, completion((1, etags[0]), (2, etags[1])))
    assert refused.status == 400 and b"5 MiB" in refused.body
    assert xml(server, "DELETE", path).status == 204
    assert xml(server, "GET", path).status == 404
    assert not list((server.home / "uploads" / "parts").glob(f"*{upload}*"))


@pytest.fixture(scope="module")
def key_file(server: RunningServer) -> Iterator[Any]:
    ask_own = {"authorization": f"Bearer {server.token}"}
    made = ask(
        server.url,
        "POST",
        "/trainshed/v1/users",
        body={"name": "xml-signer", "kind": "service-account"},
        headers=ask_own,
    )
    assert made.status == 200, made.body
    body = {"user": "xml-signer", "project": PROJECT, "role": "editor"}
    key = ask(server.url, "POST", "/trainshed/v1/tokens:createKey", body=body, headers=ask_own).json
    yield key["keyFile"]
    ask(server.url, "POST", f"/trainshed/v1/tokens/{key['id']}:revoke", body={}, headers=ask_own)


@pytest.mark.parametrize("version", ["v4", "v2"])
def test_a_signed_url_begins_an_upload_whose_url_is_its_credential(
    server: RunningServer, bucket: Any, key_file: Any, version: str
) -> None:
    load: Any = service_account.Credentials.from_service_account_info
    blob = bucket.blob(f"signed folder/{version}.txt")
    url = blob.generate_signed_url(
        version=version,
        method="RESUMABLE",
        expiration=timedelta(minutes=5),
        credentials=load(key_file),
        api_access_endpoint=server.url,
    )
    parts = urlsplit(str(url))
    start = ask(server.url, "POST", f"{parts.path}?{parts.query}", headers={"x-goog-resumable": "start"})
    assert start.status == 201, start.body
    session = urlsplit(start.headers["location"])
    rest = f"{session.path}?{session.query}"
    assert re.fullmatch(r"upload_id=[0-9a-f]{32}", session.query)
    first = ask(server.url, "PUT", rest, body=b"01", headers={"content-range": "bytes 0-1/4"})
    assert (first.status, first.headers["range"]) == (308, "bytes=0-1")
    assert ask(server.url, "PUT", rest, body=b"23", headers={"content-range": "bytes 2-3/4"}).status == 200
    assert blob.download_as_bytes() == b"0123"
    assert ask(server.url, "GET", rest).status == 401
    assert ask(server.url, "PUT", rest.replace("signed%20folder", "other"), body=b"45").status in (401, 404)
    read = blob.generate_signed_url(
        version=version,
        credentials=load(key_file),
        expiration=timedelta(minutes=5),
        api_access_endpoint=server.url,
        response_disposition="attachment; filename=x.txt",
        response_type="text/x-other",
    )
    parts = urlsplit(str(read))
    shown = ask(server.url, "GET", f"{parts.path}?{parts.query}")
    assert (shown.status, shown.body) == (200, b"0123")
    assert shown.headers["content-disposition"] == "attachment; filename=x.txt"
    assert shown.headers["content-type"] == "text/x-other"
