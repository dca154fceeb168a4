"""The Cloud Storage JSON API as bytes on the wire: what the clients we test with don't show."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from trainshed.testing.processes.servers import HttpAnswer, RunningServer, ask

BUCKET = "wire-api"


class Storage:
    def __init__(self, server: RunningServer, token: str | None = None) -> None:
        self._url = server.url
        self._token = token or server.token

    def __call__(
        self, method: str, path: str, body: bytes | Mapping[str, Any] | None = None, **headers: str
    ) -> HttpAnswer:
        sent = {"authorization": f"Bearer {self._token}"} | {k.replace("_", "-"): v for k, v in headers.items()}
        return ask(self._url, method, path, body=body, headers=sent)

    def put(self, name: str, data: bytes, query: str = "", **headers: str) -> HttpAnswer:
        path = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={quote(name, safe='')}{query}"
        return self("POST", path, body=data, **headers)

    def get(self, name: str, **headers: str) -> HttpAnswer:
        return self("GET", f"/storage/v1/b/{BUCKET}/o/{quote(name, safe='')}?alt=media", body=None, **headers)


@pytest.fixture(scope="module")
def storage(server: RunningServer) -> Iterator[Storage]:
    made = Storage(server)
    assert made("POST", "/storage/v1/b?project=wire-api-project", {"name": BUCKET}).status == 200
    yield made


def resumable(storage: Storage, name: str, query: str = "", body: Mapping[str, Any] | None = None) -> str:
    """Begin an upload; the path of its session."""
    path = f"/resumable/upload/storage/v1/b/{BUCKET}/o?uploadType=resumable&name={quote(name, safe='')}{query}"
    location = storage("POST", path, body or {}).headers["location"]
    parts = urlsplit(location)
    return f"{parts.path}?{parts.query}"


def test_an_object_has_all_that_clients_look_at(storage: Storage) -> None:
    body = storage.put("looked/at.txt", b"123456789", content_type="text/plain").json
    assert body["kind"] == "storage#object"
    assert (body["bucket"], body["name"], body["size"]) == (BUCKET, "looked/at.txt", "9")
    assert (body["md5Hash"], body["crc32c"]) == ("JfnnlDI7RTiF9RgfG2JNCw==", "4waSgw==")
    assert body["mediaLink"].endswith(
        f"/download/storage/v1/b/{BUCKET}/o/looked%2Fat.txt?generation={body['generation']}&alt=media"
    )
    for key in ("etag", "generation", "metageneration", "timeCreated", "updated", "contentType", "storageClass"):
        assert body[key]


@pytest.mark.fault("F67")
def test_media_is_never_shown_by_a_browser(storage: Storage) -> None:
    storage.put("page.html", b"<script>alert(1)</script>", content_type="text/html")
    headers = storage.get("page.html").headers
    assert headers["content-disposition"] == "attachment"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert headers["x-goog-hash"].startswith("crc32c=")


@pytest.mark.fault("F47")
@pytest.mark.parametrize(
    ("asked", "status", "data"),
    [
        ("bytes=0-3", 206, b"0123"),
        ("bytes=8-", 206, b"89"),
        ("bytes=-3", 206, b"789"),
        ("bytes=-100", 206, b"0123456789"),
        ("bytes=5-100", 206, b"56789"),
        ("bytes=0-67108863", 206, b"0123456789"),
        ("bytes=10-", 416, None),
        ("bytes=-0", 416, None),
        ("bytes=5-2", 200, b"0123456789"),
        ("bytes=0-1,4-5", 200, b"0123456789"),
        ("bytes=" + ",".join(f"{n}-{n}" for n in range(5000)), 200, b"0123456789"),
        ("bytes=99999999999999999999-", 200, b"0123456789"),
        ("lines=0-1", 200, b"0123456789"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_ranges(storage: Storage, asked: str, status: int, data: bytes | None) -> None:
    storage.put("digits", b"0123456789")
    answer = storage.get("digits", range=asked)
    assert answer.status == status
    if status == 416:
        assert answer.headers["content-range"] == "bytes */10"
    else:
        assert answer.body == data


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("quoted", ["'{}'", '"{}"', "{}"])
@pytest.mark.parametrize(
    "data", [b"", b"x", b"\r\nends in a line\r\n", b"\n--===not=the=one", bytes(range(256)) * 9000]
)
def test_multipart_in_every_dialect(storage: Storage, line_end: str, quoted: str, data: bytes) -> None:
    boundary = "===============0123=="
    lines = [
        f"--{boundary}",
        "Content-Type: application/json",
        "",
        json.dumps({"size": str(len(data)), "metadata": {"a": "b"}}),
        f"--{boundary}",
        "Content-Type: application/x-tar",
        "Content-Transfer-Encoding: binary",
        "",
        "",
    ]
    body = line_end.join(lines).encode() + data + f"{line_end}--{boundary}--".encode()
    path = f"/upload/storage/v1/b/{BUCKET}/o?alt=json&name=parts&uploadType=multipart"
    kind = f"multipart/related; boundary={quoted.format(boundary)}"
    answer = storage("POST", path, body, content_type=kind)
    assert answer.status == 200, answer.body
    assert (answer.json["contentType"], answer.json["metadata"]) == ("application/x-tar", {"a": "b"})
    assert storage.get("parts").body == data
    cut = storage("POST", path.replace("parts", "cut"), body[: -len(boundary) - 4], content_type=kind)
    assert cut.status == 400
    assert storage.get("cut").status == 404


def test_a_resumable_upload_in_pieces_with_questions_between(storage: Storage) -> None:
    session = resumable(storage, "in pieces", body={"metadata": {"k": "v"}})
    data = bytes(range(256)) * 4096
    assert "range" not in storage("PUT", session, b"", content_range="bytes */*").headers
    first = storage("PUT", session, data[:262144], content_range=f"bytes 0-262143/{len(data)}")
    assert (first.status, first.headers["range"]) == (308, "bytes=0-262143")
    asked = storage("PUT", session, b"", content_range=f"bytes */{len(data)}")
    assert (asked.status, asked.headers["range"]) == (308, "bytes=0-262143")
    ahead = storage("PUT", session, b"x", content_range=f"bytes 999999-999999/{len(data)}")
    assert ahead.status == 400
    overlapping = storage("POST", session, data[262000:], content_range=f"bytes 262000-{len(data) - 1}/{len(data)}")
    assert overlapping.status == 200, overlapping.body
    assert storage.get("in pieces").body == data
    again = storage("PUT", session, b"", content_range=f"bytes */{len(data)}")
    assert (again.status, again.json["generation"]) == (200, overlapping.json["generation"])
    assert again.json["metadata"] == {"k": "v"}


def test_a_resumable_upload_is_cancelled_refused_or_empty(storage: Storage) -> None:
    session = resumable(storage, "cancelled")
    assert storage("DELETE", session).status == 499
    assert storage("PUT", session, b"x").status == 404
    session = resumable(storage, "whole")
    assert storage("PUT", session, b"in one go").status == 200
    assert storage.get("whole").body == b"in one go"
    session = resumable(storage, "nothing")
    assert storage("PUT", session, b"", content_range="bytes */0").status == 200
    session = resumable(storage, "whole", "&ifGenerationMatch=0")
    assert storage("PUT", session, b"other").status == 412
    session = resumable(storage, "whole")
    refused = storage("PUT", session, b"other", x_goog_hash="crc32c=AAAAAA==")
    assert (refused.status, storage.get("whole").body) == (400, b"in one go")
    assert storage("PUT", resumable(storage, "x"), b"x", content_range="bytes 5").status == 400


@pytest.mark.fault("F44")
@pytest.mark.parametrize("name", ["..", "../x", "a/../b", "a//b", "/a", "a\0b", "a\nb", "x" * 1025, "y" * 256])
def test_names_that_are_refused(storage: Storage, name: str) -> None:
    assert storage.put(name, b"x").status == 400
    assert storage.get(name).status == 400


@pytest.mark.fault("F44")
@pytest.mark.parametrize(
    "name", ["%2e%2e%2f", "%252e", "a;b", "a\\b", "é", "e\u0301", "dot.", "space ", "a+b c", "?#&="]
)
def test_names_that_come_back_as_they_went_in(storage: Storage, name: str) -> None:
    assert storage.put(f"names/{name}", b"x").json["name"] == f"names/{name}"
    assert storage.get(f"names/{name}").body == b"x"
    listed = storage("GET", f"/storage/v1/b/{BUCKET}/o?prefix={quote(f'names/{name}')}").json
    assert [item["name"] for item in listed["items"]] == [f"names/{name}"]


def test_a_name_that_is_not_utf8_is_refused(storage: Storage) -> None:
    path = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=%ff"
    assert storage("POST", path, b"x").status == 400
    assert storage("GET", f"/storage/v1/b/{BUCKET}/o/%ff").status == 400


def test_a_content_type_can_not_smuggle_a_header(storage: Storage) -> None:
    path = f"/storage/v1/b/{BUCKET}/o/plain"
    storage.put("plain", b"x")
    answer = storage("PATCH", path, {"contentType": "text/plain\r\nset-cookie: a=b"})
    assert answer.status == 400
    assert "set-cookie" not in storage.get("plain").headers


def test_fields_that_mean_nothing_here_are_named(storage: Storage) -> None:
    storage.put("plain", b"x")
    path = f"/storage/v1/b/{BUCKET}/o/plain"
    assert "'nonsense'" in storage("PATCH", path, {"nonsense": 1}).json["error"]["message"]
    locked = storage("PATCH", path, {"retention": {"mode": "Locked", "retainUntilTime": "2099-01-01T00:00:00Z"}})
    assert (locked.status, "retention" in locked.json["error"]["message"]) == (400, True)
    assert storage("PATCH", path, {"temporaryHold": False}).status == 200
    website = storage("PATCH", f"/storage/v1/b/{BUCKET}", {"website": {"mainPageSuffix": "index.html"}})
    assert website.status == 400
    assert storage("GET", path, x_goog_encryption_key="k").status == 400


def test_access_lists_are_fixed_and_the_answer_says_so(storage: Storage) -> None:
    path = f"/storage/v1/b/{BUCKET}?projection=full"
    before = storage("GET", path).json
    answer = storage("PATCH", path, {"acl": [{"entity": "user-someone@example.com", "role": "READER"}]})
    assert answer.headers["warning"].startswith("299 trainshed")
    assert answer.json == before


def test_nothing_is_made_public_and_no_setting_is_lost_in_silence(storage: Storage) -> None:
    storage.put("private", b"x")
    bucket, public = f"/storage/v1/b/{BUCKET}", [{"entity": "allUsers", "role": "READER"}]
    refused = [
        storage("PATCH", bucket, {"acl": public}),
        storage("PATCH", bucket, {"defaultObjectAcl": public}),
        storage("PATCH", bucket, {"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}}),
        storage("PATCH", bucket, {"iamConfiguration": {"publicAccessPrevention": "enforced"}}),
        storage("PATCH", bucket, {"softDeletePolicy": {"retentionDurationSeconds": "604800"}}),
        storage("PATCH", f"{bucket}/o/private", {"acl": public}),
        storage("PATCH", f"{bucket}/o/private?predefinedAcl=publicRead", {}),
        storage.put("open", b"x", "&predefinedAcl=publicRead"),
        storage("PUT", f"{bucket}/iam", {"bindings": []}),
        storage("PUT", f"{bucket}/o/private/iam", {"bindings": []}),
        *(
            storage(method, f"{bucket}/{path}", {"entity": "allUsers", "role": "READER"})
            for path in ("acl", "defaultObjectAcl", "o/private/acl")
            for method, path in (("POST", path), *((verb, f"{path}/allUsers") for verb in ("PUT", "PATCH", "DELETE")))
        ),
    ]
    assert {answer.status for answer in refused} == {400}
    assert storage("GET", f"{bucket}/o/open").status == 404
    kept = storage("GET", bucket).json["iamConfiguration"]
    assert storage("PATCH", bucket, {"iamConfiguration": kept}).status == 200
    owners = storage("GET", f"{bucket}/acl").json["items"][0]["entity"]
    assert storage("GET", f"{bucket}/acl/{owners}").json["role"] == "OWNER"
    assert storage("GET", f"{bucket}/o/private/acl/allUsers").status == 404


def test_what_is_not_kept_is_refused(storage: Storage) -> None:
    bucket = f"/storage/v1/b/{BUCKET}"
    assert storage("POST", "/storage/v1/b?project=p&enableObjectRetention=true", {"name": "never-made"}).status == 400
    assert storage("GET", f"{bucket}/o?filter=contexts.a:*").status == 400
    assert [storage("PATCH", bucket, {"rpo": rpo}).status for rpo in ("ASYNC_TURBO", "DEFAULT")] == [400, 200]
    contexts = {"contexts": {"custom": {"a": {"value": "b"}}}}
    assert storage("POST", f"/upload{bucket}/o?uploadType=resumable&name=x", contexts).status == 400


def test_a_glob_selects(storage: Storage) -> None:
    for name in ("glob/a.csv", "glob/b.csv", "glob/c.txt", "glob/deep/d.csv"):
        storage.put(name, b"x")

    def names(pattern: str, more: str = "") -> list[str]:
        found, token = [], ""
        while True:
            page = storage("GET", f"/storage/v1/b/{BUCKET}/o?matchGlob={quote(pattern)}{more}&pageToken={token}").json
            found += [item["name"].removeprefix("glob/") for item in page.get("items", ())]
            if not (token := page.get("nextPageToken", "")):
                return found

    for more in ("", "&maxResults=1", "&prefix=glob/"):
        assert names("glob/*.csv", more) == ["a.csv", "b.csv"]
        assert names("glob/**.csv", more) == ["a.csv", "b.csv", "deep/d.csv"]
        assert names("glob/[!a].{csv,txt}", more) == ["b.csv", "c.txt"]
        assert names("glob/c.txt", more) == ["c.txt"]
        assert names("**/c.txt", more) == ["c.txt"]
        assert names("none/*", more) == []
    many = storage("GET", f"/storage/v1/b/{BUCKET}/o?matchGlob={quote('{a,b}' * 7)}")
    assert (many.status, "at most 100" in many.json["error"]["message"]) == (400, True)


def test_what_is_stored_with_gzip_is_unpacked_for_clients_without_it(storage: Storage) -> None:
    text = b"0123456789abcdef" * 100_000
    packed = gzip.compress(text[:800_000]) + gzip.compress(text[800_000:])
    storage.put("packed.txt", packed, "&contentEncoding=gzip")
    for headers in ({}, {"accept_encoding": "identity"}, {"accept_encoding": "gzip;q=0"}, {"range": "bytes=0-9"}):
        answer = storage.get("packed.txt", **headers)
        assert (answer.status, answer.body == text) == (200, True)
        assert "content-encoding" not in answer.headers
        assert answer.headers["x-goog-stored-content-encoding"] == "gzip"
    raw = storage.get("packed.txt", accept_encoding="br, gzip")
    assert (raw.body == packed, raw.headers["content-encoding"]) == (True, "gzip")
    storage("PATCH", f"/storage/v1/b/{BUCKET}/o/packed.txt", {"cacheControl": "no-transform"})
    assert storage.get("packed.txt").body == packed
    storage.put("plain.txt", b"never packed", "&contentEncoding=gzip")
    assert storage.get("plain.txt").body == b"never packed"


def test_an_upload_goes_on_by_its_url_alone(storage: Storage, server: RunningServer) -> None:
    started = storage("POST", f"/upload/storage/v1/b/{BUCKET}/o?uploadType=resumable&name=by-url", {})
    path = started.headers["location"].removeprefix(server.url)
    upload = started.headers["x-guploader-uploadid"]
    first = ask(server.url, "PUT", path, body=b"0" * 262144, headers={"content-range": "bytes 0-262143/262146"})
    assert first.status == 308
    wrong = path.replace(upload, "0" * 32)
    assert ask(server.url, "PUT", wrong, body=b"123", headers={"content-range": "bytes 0-2/3"}).status == 401
    bad = {"content-range": "bytes 262144-262145/262146", "authorization": "Bearer wrong"}
    assert ask(server.url, "PUT", path, body=b"12", headers=bad).status == 401
    other = path.replace(f"/b/{BUCKET}/", "/b/another-bucket/")
    assert ask(server.url, "PUT", other, body=b"12", headers={}).status == 401
    assert ask(server.url, "GET", f"/storage/v1/b/{BUCKET}/o/by-url?upload_id={upload}").status == 401
    last = ask(server.url, "PUT", path, body=b"12", headers={"content-range": "bytes 262144-262145/262146"})
    assert (last.status, last.json["size"]) == (200, "262146")
    record = server.call("GET", "/trainshed/v1/audit")
    assert upload not in json.dumps(record)
    logs = [file for file in Path(server.home).glob("*.log*") if file.is_file()]
    assert logs
    assert not [file for file in logs if upload.encode() in file.read_bytes()]


def test_conditions_and_etags(storage: Storage) -> None:
    info = storage.put("conditional", b"x").json
    path = f"/storage/v1/b/{BUCKET}/o/conditional"
    assert storage("GET", f"{path}?ifGenerationNotMatch={info['generation']}").status == 304
    assert storage("GET", f"{path}?ifMetagenerationMatch=2").status == 412
    assert storage("GET", path, if_none_match=f'"{info["etag"]}"').status == 304
    reads = [("GET", f"{path}?alt=media"), ("GET", f"/download{path}?alt=media"), ("HEAD", f"/download{path}")]
    assert {storage(*read).headers["etag"] for read in reads} == {info["etag"]}  # without quotes: clients compare it
    assert storage("PATCH", f"{path}?ifMetagenerationMatch=1", {"metadata": {"a": "b"}}).json["metageneration"] == "2"
    assert storage("PATCH", path, {"metadata": {"a": "c"}}, if_match=info["etag"]).status == 412
    assert storage("DELETE", f"{path}?ifGenerationMatch=1").status == 412
    assert storage("DELETE", f"{path}?generation=1").status == 404
    assert storage("DELETE", f"{path}?generation={info['generation']}").status == 204
    assert storage.put("conditional", b"x", "&ifGenerationNotMatch=0").status == 412
    assert storage("GET", f"{path}?ifGenerationMatch=x").status == 400


def test_layout_for_clients_that_ask(storage: Storage) -> None:
    body = storage("GET", f"/storage/v1/b/{BUCKET}/storageLayout").json
    assert (body["bucket"], body["hierarchicalNamespace"]) == (BUCKET, {"enabled": False})


def test_a_batch_gives_each_part_its_own_answer_and_rights(server: RunningServer, storage: Storage) -> None:
    storage.put("batched", b"x")
    other = server.call("POST", "/trainshed/v1/tokens", {"user": "eve", "project": "other-project", "role": "editor"})
    parts = []
    for number, token in enumerate((None, other["token"], "wrong")):
        head = f"--b\nContent-Type: application/http\nContent-ID: <id+{number}>\n\n"
        line = f"GET /storage/v1/b/{BUCKET}/o/batched HTTP/1.1\n"
        parts.append(head + line + (f"Authorization: Bearer {token}\n" if token else "") + "\n\n")
    body = ("".join(parts) + "--b--\n").encode()
    answer = storage("POST", "/batch/storage/v1", body, content_type='multipart/mixed; boundary="b"')
    text = answer.body.decode()
    assert [line.split()[1] for line in text.splitlines() if line.startswith("HTTP/1.1 ")] == ["200", "404", "401"]
    assert "<response-id+0>" in text
    assert in_batch(storage, "GET /trainshed/v1/tokens HTTP/1.1")[0][0] == 400


def in_batch(storage: Storage, *requests: str) -> list[tuple[int, str]]:
    """The status and the rest of each part's answer. Texts are sent as Latin-1."""
    body = "".join(f"--b\r\nContent-Type: application/http\r\n\r\n{one}\r\n" for one in requests) + "--b--\r\n"
    kind = "multipart/mixed; boundary=b"
    answer = storage("POST", "/batch/storage/v1", body.encode("latin-1"), content_type=kind)
    assert answer.status == 200, answer.body
    separator = answer.headers["content-type"].partition("=")[2]  # gcsfs takes it so, and knows no quotes
    parts = answer.body.decode().split(f"--{separator}")[1:-1]
    texts = [part.partition("HTTP/1.1 ")[2] for part in parts]
    return [(int(text[:3]), text) for text in texts]


@pytest.mark.parametrize("query", ["alt=media", "al%74=media", "alt=%6dedia", "alt=json&alt=media", "a=b&alt=media&c"])
def test_a_batch_gives_no_bytes_of_objects_however_it_is_asked(storage: Storage, query: str) -> None:
    storage.put("batched", b"the bytes")
    ((status, text),) = in_batch(storage, f"GET /storage/v1/b/{BUCKET}/o/batched?{query} HTTP/1.1")
    assert (status, "the bytes" in text) == (400, False)


@pytest.mark.parametrize(
    "wrong",
    [
        "GET http://[ HTTP/1.1",
        "GET //[x/storage/v1/b HTTP/1.1",
        "GET /storage/v1/b/\xff HTTP/1.1",
        "GET /storage/v1/b/x?y=\xff HTTP/1.1",
        "nonsense",
        "",
        f"GET /storage/v1/b/{BUCKET} HTTP/1.1\r\nOrigin: http://[\r\n\r\n",
        f"PATCH /storage/v1/b/{BUCKET} HTTP/1.1\r\nContent-Length: \xb2\r\n\r\n{{}}",
        f"PATCH /storage/v1/b/{BUCKET} HTTP/1.1\r\nContent-Length: {'9' * 5000}\r\n\r\n{{}}",
        f"PATCH /storage/v1/b/{BUCKET} HTTP/1.1\r\nContent-Length: -1\r\n\r\n{{}}",
    ],
    ids=lambda text: text[:60] or "empty",
)
def test_a_part_that_makes_no_sense_is_its_own_error(storage: Storage, wrong: str) -> None:
    good = f"GET /storage/v1/b/{BUCKET} HTTP/1.1"
    assert [status for status, _ in in_batch(storage, good, wrong, good)] == [200, 400, 200]


def test_a_batch_has_at_most_a_hundred_parts(storage: Storage) -> None:
    one = f"GET /storage/v1/b/{BUCKET}/o/absent HTTP/1.1"
    assert [status for status, _ in in_batch(storage, *[one] * 100)] == [404] * 100
    body = ("".join(f"--b\r\n\r\n{one}\r\n" for _ in range(101)) + "--b--").encode()
    assert storage("POST", "/batch/storage/v1", body, content_type="multipart/mixed; boundary=b").status == 413


def test_a_batch_with_very_large_answers_stops_and_says_so(server: RunningServer, storage: Storage) -> None:
    bucket = "wire-batch-large"
    assert storage("POST", "/storage/v1/b?project=wire-api-project", {"name": bucket}).status == 200
    folder = server.home / "buckets" / bucket / ("x" * 255) / ("y" * 255) / ("z" * 255)
    folder.mkdir(parents=True)
    for number in range(1000):
        (folder / f"{number:0200}").touch()
    one = f"GET /storage/v1/b/{bucket}/o?fields=items(name,id,selfLink,mediaLink) HTTP/1.1"
    answers = in_batch(storage, *[one] * 16)
    statuses = [status for status, _ in answers]
    assert statuses == sorted(statuses)
    assert set(statuses) == {200, 413}
    assert "another batch" in answers[-1][1]
    assert sum(len(text) for _, text in answers) < (32 << 20) + 2 * len(answers[0][1])


@pytest.mark.parametrize("value", [{}, {"a": 1}, [1], 5, True, 1.5, "x" * 100_000, "GOLD"], ids=lambda v: str(v)[:9])
def test_a_storage_class_is_one_of_those_that_there_are(storage: Storage, value: Any) -> None:
    for method, path, body in (
        ("PATCH", f"/storage/v1/b/{BUCKET}", {"storageClass": value}),
        ("PUT", f"/storage/v1/b/{BUCKET}", {"storageClass": value}),
        ("POST", "/storage/v1/b?project=wire-api-project", {"name": "wire-classes", "storageClass": value}),
    ):
        answer = storage(method, path, body)
        assert (answer.status, "storageClass" in answer.json["error"]["message"]) == (400, True)
        assert len(answer.body) < 2000
    assert storage("GET", f"/storage/v1/b/{BUCKET}").json["storageClass"] == "STANDARD"


def test_a_storage_class_is_kept(storage: Storage) -> None:
    body = {"name": "wire-nearline", "storageClass": "nearline", "location": "europe-west1"}
    made = storage("POST", "/storage/v1/b?project=wire-api-project", body).json
    assert (made["storageClass"], made["location"]) == ("NEARLINE", "EUROPE-WEST1")
    changed = storage("PATCH", "/storage/v1/b/wire-nearline", {"storageClass": "COLDLINE"}).json
    assert changed["storageClass"] == "COLDLINE"


@pytest.mark.parametrize(
    "location", ["a" * 41, "a" * 100_000, "a b", "a\r\nb", "ü", 5, ["US"], {}], ids=lambda v: str(v)[:9]
)
def test_a_location_is_a_short_word(storage: Storage, location: Any) -> None:
    answer = storage("POST", "/storage/v1/b?project=wire-api-project", {"name": "wire-place", "location": location})
    assert (answer.status, "location" in answer.json["error"]["message"]) == (400, True)
    assert storage("GET", "/storage/v1/b/wire-place").status == 404


@pytest.mark.parametrize("value", [[1], "abc", 5, True, [], ""], ids=repr)
def test_parts_of_a_compose_of_the_wrong_kind_are_named(storage: Storage, value: Any) -> None:
    storage.put("piece", b"x")
    path = f"/storage/v1/b/{BUCKET}/o/composed/compose"
    for field, body in (
        ("destination", {"destination": value, "sourceObjects": [{"name": "piece"}]}),
        ("objectPreconditions", {"sourceObjects": [{"name": "piece", "objectPreconditions": value}]}),
    ):
        answer = storage("POST", path, body)
        assert (answer.status, field in answer.json["error"]["message"]) == (400, True)
    assert storage("POST", path, {"destination": None, "sourceObjects": [{"name": "piece"}]}).status == 200


def test_a_compose_deletes_its_sources_if_it_is_to(storage: Storage) -> None:
    for name in ("first", "second", "held"):
        storage.put(name, name.encode())
    held = f"/storage/v1/b/{BUCKET}/o/held"
    assert storage("PATCH", held, {"temporaryHold": True}).status == 200

    def compose(delete: Any, *names: str) -> int:
        body = {"deleteSourceObjects": delete, "sourceObjects": [{"name": name} for name in names]}
        return storage("POST", f"/storage/v1/b/{BUCKET}/o/first/compose", body).status

    def there() -> list[str]:
        listed = storage("GET", f"/storage/v1/b/{BUCKET}/o").json["items"]
        return [item["name"] for item in listed if item["name"] in ("first", "second", "held")]

    assert (compose("yes", "first", "second"), compose(True, "second", "held")) == (400, 403)
    assert there() == ["first", "held", "second"]
    assert compose(True, "first", "second", "second") == 200
    assert there() == ["first", "held"]  # the destination stays, though it was a source
    assert storage("GET", f"/storage/v1/b/{BUCKET}/o/first?alt=media").body == b"firstsecondsecond"
    assert storage("PATCH", held, {"temporaryHold": False}).status == 200


@pytest.mark.fault("F63")
def test_another_project_sees_no_bucket_to_copy_from_or_to(server: RunningServer, storage: Storage) -> None:
    storage.put("mine", b"x")
    token = server.call("POST", "/trainshed/v1/tokens", {"user": "eve", "project": "eves-project", "role": "owner"})
    eve = Storage(server, token["token"])
    assert eve("POST", "/storage/v1/b?project=eves-project", {"name": "eves-bucket"}).status == 200
    copies = [
        f"/storage/v1/b/{BUCKET}/o/mine/copyTo/b/eves-bucket/o/stolen",
        f"/storage/v1/b/{BUCKET}/o/mine/rewriteTo/b/eves-bucket/o/stolen",
    ]
    eve("POST", "/upload/storage/v1/b/eves-bucket/o?uploadType=media&name=planted", b"x")
    for verb in ("copyTo", "rewriteTo"):
        copies.append(f"/storage/v1/b/eves-bucket/o/planted/{verb}/b/{BUCKET}/o/planted")
    absent = eve("POST", "/storage/v1/b/eves-bucket/o/planted/copyTo/b/no-such-bucket/o/x", {})
    assert absent.status == 404
    assert [eve("POST", path, {}).status for path in copies] == [404] * 4
    session = resumable(storage, "session")
    assert eve("PUT", session, b"x").status == 404
    assert eve("PUT", session.replace(BUCKET, "eves-bucket"), b"x").status == 404
    assert storage.get("planted").status == 404
