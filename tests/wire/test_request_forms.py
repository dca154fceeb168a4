"""Forms of requests that Google's clients use: compressed bodies, overridden methods, tokens in the URL."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from trainshed.testing.processes.servers import HttpAnswer, RunningServer, ask

PROJECT = "request-forms"
MODELS = f"/v1/projects/{PROJECT}/models"
JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}


def send(server: RunningServer, method: str, path: str, body: Any = None, **headers: str) -> HttpAnswer:
    credentials = {"authorization": f"Bearer {server.token}"}
    named: Mapping[str, str] = {name.replace("_", "-"): value for name, value in headers.items()}
    return ask(server.url, method, path, body=body, headers={**credentials, **named})


def create(server: RunningServer, name: str, **headers: str) -> HttpAnswer:
    return send(server, "POST", MODELS, gzip.compress(json.dumps({"name": name}).encode()), **headers)


def test_a_compressed_body_is_unpacked(server: RunningServer) -> None:
    assert create(server, "packed", content_encoding="gzip").status == 200
    assert send(server, "GET", f"{MODELS}/packed").status == 200


@pytest.mark.parametrize(
    ("body", "coding", "status", "words"),
    [
        (b"no gzip", "gzip", 400, "is not what its Content-Encoding"),
        (gzip.compress(b'{"name": "cut"}')[:-4], "gzip", 400, "cut off"),
        (gzip.compress(b'{"name": "more"}') + b"x", "gzip", 400, "something follows"),
        (gzip.compress(b" " * (11 << 20)), "gzip", 413, "larger than"),
        (zlib.compress(b"{}"), "deflate", 400, "Send it as it is, or with gzip"),
    ],
    ids=["none", "cut", "more", "bomb", "deflate"],  # the bytes of gzip hold the time
)
def test_a_wrong_one_is_refused(server: RunningServer, body: bytes, coding: str, status: int, words: str) -> None:
    answer = send(server, "POST", MODELS, body, content_encoding=coding)
    assert answer.status == status
    assert words in answer.json["error"]["message"]


def test_a_post_stands_for_another_method(server: RunningServer) -> None:
    assert create(server, "overridden", content_encoding="gzip").status == 200
    model = f"{MODELS}/overridden"
    assert send(server, "POST", model, x_http_method_override="GET").json["name"].endswith("/overridden")
    patched = send(
        server, "POST", f"{model}?updateMask=description", {"description": "d"}, x_http_method_override="patch"
    )
    assert patched.status == 200
    assert send(server, "POST", model, x_http_method_override="DELETE").status == 200
    assert send(server, "GET", model).status == 404


def test_a_long_query_comes_as_the_body_of_a_get(server: RunningServer) -> None:
    for name in ("long_1", "long_2"):
        assert create(server, name, content_encoding="gzip").status == 200
    query = f"filter=name:long_1&pageSize=7&quotaUser={'x' * 3000}".encode()
    headers = {"x-http-method-override": "GET", "authorization": f"Bearer {server.token}", **FORM}
    answer = ask(server.url, "POST", MODELS, body=query, headers=headers)
    assert [model["name"].rpartition("/")[2] for model in answer.json["models"]] == ["long_1"]


def test_only_a_post_can_be_another_method(server: RunningServer) -> None:
    assert send(server, "GET", f"{MODELS}/none", x_http_method_override="DELETE").status == 400
    assert send(server, "POST", f"{MODELS}/none", x_http_method_override="CONNECT").status == 400


def test_a_token_in_the_url_is_valid_and_in_no_log(server: RunningServer) -> None:
    assert ask(server.url, "GET", f"{MODELS}?access_token={server.token}").status == 200
    assert ask(server.url, "GET", f"{MODELS}?oauth_token={server.token}").status == 200
    assert ask(server.url, "GET", f"{MODELS}?access_token=wrong").status == 401
    wrong = {"authorization": "Bearer wrong"}
    assert ask(server.url, "GET", f"{MODELS}?access_token={server.token}", headers=wrong).status == 401
    logs = [path for path in Path(server.home).glob("*.log*") if path.is_file()]
    assert logs
    assert not [path for path in logs if server.token.encode() in path.read_bytes()]


def test_fields_select_parts_of_a_response(server: RunningServer) -> None:
    assert create(server, "partial", content_encoding="gzip").status == 200
    assert list(send(server, "GET", f"{MODELS}/partial").json) == ["name", "regions", "etag"]
    name = f"projects/{PROJECT}/models/partial"
    assert send(server, "GET", f"{MODELS}/partial?fields=name").json == {"name": name}
    listed = send(server, "GET", f"{MODELS}?filter=name:partial&fields=models(name,etag)").json
    assert [list(model) for model in listed["models"]] == [["name", "etag"]]
    refused = send(server, "GET", f"{MODELS}?fields=models(name")
    assert (refused.status, refused.json["error"]["details"][0]["fieldViolations"][0]["field"]) == (400, "fields")


def test_the_content_of_an_object_is_whole_whatever_fields_says(server: RunningServer) -> None:
    bucket = f"{PROJECT}-objects"
    assert send(server, "POST", f"/storage/v1/b?project={PROJECT}&fields=name", {"name": bucket}).json == {
        "name": bucket
    }
    upload = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name=a.json&fields=name,size"
    assert send(server, "POST", upload, b'{"x": 1}', **JSON).json == {"name": "a.json", "size": "8"}
    item = f"/storage/v1/b/{bucket}/o/a.json"
    assert send(server, "GET", f"{item}?alt=media&fields=name").body == b'{"x": 1}'
    assert send(server, "GET", f"/download{item}?alt=media&fields=name").body == b'{"x": 1}'
    assert send(server, "GET", f"{item}?fields=name").json == {"name": "a.json"}


def test_a_project_has_a_number_too(server: RunningServer) -> None:
    assert create(server, "numbered", content_encoding="gzip").status == 200
    number = send(server, "GET", f"/v1/projects/{PROJECT}:getConfig").json["serviceAccountProject"]
    found = send(server, "GET", f"/v1/projects/{number}/models/numbered")
    assert found.json["name"] == f"projects/{PROJECT}/models/numbered"
    assert send(server, "GET", f"/v1/projects/{number}:getConfig").json["serviceAccountProject"] == number
    assert send(server, "GET", f"/storage/v1/b?project={number}").status == 200
    assert send(server, "POST", "/v2/entries:list", {"resourceNames": [f"projects/{number}"]}).status == 200
    assert send(server, "POST", "/v2/entries:list", {"projectIds": ["999999999999"]}).status == 404
    assert send(server, "GET", "/v1/projects/999999999999/models").status == 404
    made = server.call("POST", "/trainshed/v1/tokens", {"user": "eve", "project": "elsewhere-1", "role": "owner"})
    theirs = {"authorization": f"Bearer {made['token']}"}
    mine, none = (
        ask(server.url, "GET", f"/v1/projects/{other}/models", headers=theirs) for other in (number, "999999999999")
    )
    assert (mine.status, none.status) == (403, 403)  # whether there is such a project or not
    assert mine.body.replace(number.encode(), b"999999999999") == none.body


def test_v1beta1_is_v1(server: RunningServer) -> None:
    assert create(server, "beta", content_encoding="gzip").status == 200
    assert send(server, "GET", f"/v1beta1/projects/{PROJECT}/models/beta").json["name"].endswith("/models/beta")
    assert send(server, "GET", f"/v1/v1beta1/projects/{PROJECT}/models/beta").status == 404
