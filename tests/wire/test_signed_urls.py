"""Signed URLs and token exchange with keys of service accounts, as Google's libraries make them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import google.auth.transport.requests
import google.cloud.storage as storage
import pytest
from google.api_core.client_options import ClientOptions
from google.oauth2 import service_account

from trainshed.testing.processes.servers import HttpAnswer, RunningServer, ask

PROJECT, BUCKET = "wire-signed", "wire-signed-bucket"
SCOPES = ["https://www.googleapis.com/auth/devstorage.read_write"]


def own(server: RunningServer, method: str, path: str, body: Any = None) -> HttpAnswer:
    return ask(server.url, method, path, body=body, headers={"authorization": f"Bearer {server.token}"})


def credentials_of(key_file: Any) -> Any:
    load: Any = service_account.Credentials.from_service_account_info
    return load(key_file, scopes=SCOPES)


def refresh(credentials: Any) -> None:
    request: Any = google.auth.transport.requests.Request
    credentials.refresh(request())


def new_key(server: RunningServer, user: str, role: str = "editor") -> Any:
    body = {"user": user, "project": PROJECT, "role": role}
    answer = own(server, "POST", "/trainshed/v1/tokens:createKey", body)
    assert answer.status == 200, answer.body
    return answer.json


@pytest.fixture(scope="module")
def account(server: RunningServer) -> str:
    made = own(server, "POST", "/trainshed/v1/users", {"name": "signer", "kind": "service-account"})
    assert made.status == 200, made.body
    return "signer"


@pytest.fixture
def key(server: RunningServer, account: str) -> Iterator[Any]:
    made = new_key(server, account)
    yield made
    own(server, "POST", f"/trainshed/v1/tokens/{made['id']}:revoke", {})


@pytest.fixture
def bucket(server: RunningServer, key: Any) -> Iterator[Any]:
    credentials = credentials_of(key["keyFile"])
    with pytest.MonkeyPatch.context() as patch:
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            patch.delenv(name, raising=False)
        options = ClientOptions(api_endpoint=server.url)
        client = storage.Client(project=PROJECT, credentials=credentials, client_options=options)
        made = client.create_bucket(BUCKET)
        yield made
        made.delete(force=True)
        client.close()


def sign(server: RunningServer, blob: Any, version: str, **choices: Any) -> str:
    choices.setdefault("expiration", timedelta(minutes=5))
    url = blob.generate_signed_url(version=version, api_access_endpoint=server.url, **choices)
    parts = urlsplit(str(url))
    return f"{parts.path}?{parts.query}"


def test_a_key_gets_tokens_that_end_with_it(server: RunningServer, key: Any, bucket: Any) -> None:
    assert key["keyFile"]["client_email"] == f"signer@{PROJECT}.iam.gserviceaccount.com"
    assert bucket.exists()  # the client exchanged what the key signed
    credentials = credentials_of(key["keyFile"])
    refresh(credentials)
    bearer = {"authorization": f"Bearer {credentials.token}"}
    unnamed = credentials_of({**key["keyFile"], "private_key_id": None})  # as Google's library for Node asks
    refresh(unnamed)
    assert (
        ask(server.url, "GET", f"/storage/v1/b/{BUCKET}", headers={"authorization": f"Bearer {unnamed.token}"}).status
        == 200
    )
    path = f"/storage/v1/b/{BUCKET}"
    assert ask(server.url, "GET", path, headers=bearer).status == 200
    assert ask(server.url, "GET", "/storage/v1/b?project=wire-other", headers=bearer).status == 403
    own(server, "POST", f"/trainshed/v1/tokens/{key['id']}:revoke", {})
    assert ask(server.url, "GET", path, headers=bearer).status == 401
    with pytest.raises(google.auth.exceptions.RefreshError, match="invalid_grant"):
        refresh(credentials)
    replacement = new_key(server, "signer")
    bucket.client._credentials = credentials_of(replacement["keyFile"])
    bucket.client._http_internal = None


@pytest.mark.parametrize("version", ["v4", "v2"])
def test_what_a_url_is_signed_for_needs_no_token(server: RunningServer, bucket: Any, version: str) -> None:
    blob = bucket.blob("a folder/größe+&=~.txt")
    put = sign(server, blob, version, method="PUT", content_type="text/x-odd")
    stored = ask(server.url, "PUT", put, body=b"hello", headers={"content-type": "text/x-odd"})
    assert (stored.status, stored.body) == (200, b"")
    blob.reload()
    assert (blob.content_type, str(blob.generation)) == ("text/x-odd", stored.headers["x-goog-generation"])
    read = ask(server.url, "GET", sign(server, blob, version))
    assert (read.status, read.body) == (200, b"hello")
    chosen = sign(server, blob, version, generation=blob.generation)
    assert ask(server.url, "GET", chosen).body == b"hello"
    assert ask(server.url, "HEAD", sign(server, blob, version, method="HEAD")).headers["content-length"] == "5"
    assert ask(server.url, "DELETE", sign(server, blob, version, method="DELETE")).status == 204
    assert not blob.exists()


def with_other_signature(path: str) -> str:
    """Change the first character of a signature, so that it is still in its form."""
    parts = urlsplit(path)
    pairs = parse_qsl(parts.query)
    changed = [(name, _other(text) if name in ("Signature", "X-Goog-Signature") else text) for name, text in pairs]
    return f"{parts.path}?{urlencode(changed)}"


def _other(signature: str) -> str:
    return ("1" if signature.startswith("0") else "0") + signature[1:]


@pytest.mark.parametrize("version", ["v4", "v2"])
def test_anything_else_is_refused_without_a_word_of_the_signature(
    server: RunningServer, key: Any, bucket: Any, version: str
) -> None:
    blob = bucket.blob("secret.txt")
    blob.upload_from_string("x")
    bucket.blob("other.txt").upload_from_string("y")
    path = sign(server, blob, version)
    signature = parse_qs(urlsplit(path).query)["X-Goog-Signature" if version == "v4" else "Signature"][0]
    expired = sign(server, blob, version, expiration=timedelta(seconds=0)) if version == "v2" else ""
    other = new_key(server, "signer")
    forged = credentials_of({**other["keyFile"], "client_email": f"nobody@{PROJECT}.iam.gserviceaccount.com"})
    answers = [
        ask(server.url, "GET", path.replace("secret.txt", "other.txt")),
        ask(server.url, "DELETE", path),
        ask(server.url, "PUT", path, body=b"z"),
        ask(server.url, "GET", with_other_signature(path)),
        ask(server.url, "GET", path.replace("signer%40", "someone%40")),
        ask(server.url, "GET", sign(server, blob, version, credentials=forged)),
        *([ask(server.url, "GET", expired)] if expired else []),
    ]
    assert [answer.status for answer in answers] == [403] * len(answers)
    for answer in answers:
        assert signature[:16].encode() not in answer.body
    listed = f"/storage/v1/b/{BUCKET}/o?{urlsplit(path).query}"
    assert ask(server.url, "GET", listed).status == 401
    assert ask(server.url, "GET", path).body == b"x"
    own(server, "POST", f"/trainshed/v1/tokens/{other['id']}:revoke", {})
    own(server, "POST", "/trainshed/v1/users/signer:disable", {})
    assert ask(server.url, "GET", path).status == 403
    own(server, "POST", "/trainshed/v1/users/signer:enable", {})
    assert ask(server.url, "GET", path).body == b"x"
    written = [file for file in server.home.glob("*") if file.is_file()]  # the log, and the database with its record
    assert {"server.log", "state.db"} <= {file.name for file in written}
    for file in written:
        assert signature[:16].encode() not in file.read_bytes(), file


def test_a_url_for_an_upload_copies_nothing(server: RunningServer, bucket: Any) -> None:
    bucket.blob("secret.txt").upload_from_string("x")
    put = sign(server, bucket.blob("drop.txt"), "v4", method="PUT")
    copied = ask(server.url, "PUT", put, headers={"x-goog-copy-source": f"/{BUCKET}/secret.txt"})
    assert (copied.status, b"x-goog-copy-source" in copied.body) == (400, True)
    assert not bucket.blob("drop.txt").exists()


def test_a_viewer_s_key_signs_no_writes(server: RunningServer, account: str, bucket: Any) -> None:
    bucket.blob("seen.txt").upload_from_string("x")
    viewer = new_key(server, account, role="viewer")
    credentials = credentials_of(viewer["keyFile"])
    blob = bucket.blob("seen.txt")
    read = sign(server, blob, "v4", credentials=credentials)
    write = sign(server, blob, "v4", credentials=credentials, method="PUT")
    assert ask(server.url, "GET", read).body == b"x"
    assert ask(server.url, "PUT", write, body=b"y").status == 403
    own(server, "POST", f"/trainshed/v1/tokens/{viewer['id']}:revoke", {})


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"user": "nobody", "project": PROJECT}, 400),
        ({"user": "signer", "project": "*"}, 400),
        ({"user": "a@b", "project": PROJECT}, 400),
        ({"user": "signer", "project": PROJECT, "role": "job"}, 400),
    ],
    ids=str,
)
def test_keys_are_made_for_service_accounts_of_one_project(
    server: RunningServer, account: str, body: Any, status: int
) -> None:
    assert own(server, "POST", "/trainshed/v1/tokens:createKey", body).status == status


def test_the_command_writes_a_file_that_google_auth_reads(server: RunningServer, account: str, tmp_path: Path) -> None:
    file = tmp_path / "key.json"
    command = (str(Path(sys.executable).parent / "trainshed"), "auth", "keys", "create", account, str(file))
    subprocess.run([*command, "--project", PROJECT], env=server.env(), check=True, timeout=60)
    assert file.stat().st_mode & 0o777 == 0o600
    credentials = credentials_of(json.loads(file.read_text()))
    refresh(credentials)
    assert credentials.valid
    made = json.loads(file.read_text())
    own(server, "POST", f"/trainshed/v1/tokens/{made['private_key_id']}:revoke", {})
