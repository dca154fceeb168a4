"""Buckets that no project here has: reads go to mirrors, then to Google's storage, here to a fake of it."""

from __future__ import annotations

import hashlib
import io
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from trainshed.certificates import ensure_certificates
from trainshed.cli import main
from trainshed.testing.fakes.public_storage import PublicStorage, serve_public_storage
from trainshed.testing.processes.servers import Caller, RunningServer, ask

OBJECT = "/cloud-samples-data/ml-engine/census data.csv"
ROWS = b"age,income\n39,50000\n"
MNIST = "/tensorflow/tf-keras-datasets/mnist.npz"


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PublicStorage]:
    certificates = ensure_certificates(tmp_path_factory.mktemp("google"), hosts=("storage.googleapis.com",))
    with serve_public_storage({OBJECT: ROWS}, certificates) as storage:
        yield storage


@pytest.fixture(scope="module")
def online(storage: PublicStorage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    environment = {"https_proxy": storage.proxy_url, "no_proxy": "", "SSL_CERT_FILE": str(storage.authority)}
    server = RunningServer(tmp_path_factory.mktemp("online"), {"public_data": True}, environment=environment).start()
    server.call("POST", "/storage/v1/b?project=theirs", {"name": "their-data"})
    yield server
    server.close()


def fetch(server: RunningServer, path: str, method: str = "GET") -> tuple[int, bytes]:
    """Read a public URL as a program in a job does: through the proxy, with the server's authority, without a token."""
    endpoints = server.info["endpoints"]
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({"https": endpoints["proxy_url"]}),
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=endpoints["bundle"])),
    )
    url = f"https://storage.googleapis.com{path.replace(' ', '%20')}"
    try:
        with opener.open(urllib.request.Request(url, method=method), timeout=30) as response:
            return response.status, response.read() if method == "GET" else str(response.headers).encode()
    except urllib.error.HTTPError as exc:
        return exc.code, exc.read()


def test_a_public_object_is_read_without_credentials(online: RunningServer, storage: PublicStorage) -> None:
    storage.seen.clear()
    assert fetch(online, OBJECT) == (200, ROWS)
    status, headers = fetch(online, OBJECT, "HEAD")
    assert status == 200
    assert b"content-length: 20" in headers.lower()
    assert b"set-cookie" not in headers.lower()
    assert [method for method, _, _ in storage.seen] == ["GET", "HEAD"]


def test_an_object_here_answers_head_with_its_headers_alone(server: RunningServer) -> None:
    server.call("POST", "/storage/v1/b?project=trainshed", {"name": "head-of-an-object"})
    server.call("POST", "/upload/storage/v1/b/head-of-an-object/o?uploadType=media&name=a.csv", b"rows")
    answer = ask(
        server.url,
        "HEAD",
        "/download/storage/v1/b/head-of-an-object/o/a.csv",
        headers={"authorization": f"Bearer {server.token}"},
    )
    assert (answer.status, answer.headers["content-length"], answer.body) == (200, "4", b"")


def test_no_credential_leaves_the_machine(online: RunningServer, storage: PublicStorage) -> None:
    storage.seen.clear()
    caller, resource = Caller(online.url), "/storage/v1/b/cloud-samples-data/o/ml-engine%2Fcensus%20data.csv"
    status, body = caller("GET", f"{resource}?fields=name&userProject=mine&key=SECRET", token=online.token)
    assert (status, body["name"]) == (200, "ml-engine/census data.csv")
    assert body["mediaLink"].startswith(online.url)  # a client follows it with its token
    headers = {"range": "bytes=4-9", "cookie2": "SECRET"}
    download = f"/download{resource}?alt=media&access_token={online.token}"
    assert caller("GET", download, headers=headers) == (206, ROWS[4:10])
    assert len(storage.seen) == 2
    sent = json.dumps([(path, dict(headers)) for _, path, headers in storage.seen])
    assert online.token not in sent
    assert "SECRET" not in sent
    assert "userProject" not in sent


def test_a_refusal_says_how_to_bring_the_data_in(online: RunningServer) -> None:
    for status, body in (
        fetch(online, "/someones-data/a.csv"),
        Caller(online.url)("GET", "/storage/v1/b/someones-data/o", token=online.token),
    ):
        assert status == 404
        assert b"trainshed buckets mb gs://someones-data" in (
            body if isinstance(body, bytes) else json.dumps(body).encode()
        )


def test_other_projects_writes_and_browsers_ask_nobody(online: RunningServer, storage: PublicStorage) -> None:
    created = {"user": "ada", "project": "mine", "role": "editor"}
    token = online.call("POST", "/trainshed/v1/tokens", created)["token"]
    storage.seen.clear()
    assert fetch(online, "/their-data/a.csv")[0] == 401
    caller = Caller(online.url)
    status, body = caller("GET", "/storage/v1/b/their-data/o/a.csv", token=token)
    assert (status, body["error"]["message"]) == (404, "The specified bucket does not exist: their-data")
    for method, path in (
        ("POST", "/upload/storage/v1/b/cloud-samples-data/o?uploadType=media&name=x"),
        ("PATCH", "/storage/v1/b/cloud-samples-data"),
        ("DELETE", "/storage/v1/b/cloud-samples-data/o/x"),
        ("GET", "/storage/v1/b/cloud-samples-data/iam"),
    ):
        assert caller(method, path, token=token, body={} if method != "GET" else None)[0] == 404
    assert caller("GET", "/storage/v1/b/cloud-samples-data", headers={"cookie": "trainshed=x"})[0] == 401
    looped = {"via": "1.0 trainshed"}
    assert caller("GET", "/storage/v1/b/cloud-samples-data/o", token=token, headers=looped)[0] == 404
    for name in ("..", "a%0Apublic_data.read", "A", "a%2Fb"):
        assert caller("GET", f"/storage/v1/b/{name}/o", token=token)[0] in (400, 404), name
    assert storage.seen == []


def test_mnist_of_keras_comes_from_the_samples(online: RunningServer, storage: PublicStorage) -> None:
    storage.seen.clear()
    status, archive = fetch(online, MNIST)
    assert status == 200
    arrays = np.load(io.BytesIO(archive))
    assert {name: arrays[name].shape for name in arrays} == {
        "x_test": (10_000, 28, 28),
        "x_train": (60_000, 28, 28),
        "y_train": (60_000,),
        "y_test": (10_000,),
    }
    assert arrays["y_train"][:5].tolist() == [5, 0, 4, 1, 9]
    assert hashlib.md5(arrays["x_test"].tobytes()).hexdigest() == "240610fa99e73bfa49df8e7fc24d3206"
    assert storage.seen == []
    assert "mirror.read uri=gs://tensorflow/tf-keras-datasets/mnist.npz" in online.log.read_text()


def test_owners_add_and_remove_mirrors(online: RunningServer, storage: PublicStorage, tmp_path: Path) -> None:
    source = tmp_path / "imdb.npz"
    source.write_bytes(b"reviews")
    env, runner = online.env(), CliRunner()

    def run(*words: str) -> str:
        done = runner.invoke(main, words, env=env)
        assert done.exit_code == 0, done.output
        return done.output

    run("buckets", "mb", "gs://own-data")
    run("buckets", "cp", str(source), "gs://own-data/imdb.npz")
    run(
        "mirror",
        "add",
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/imdb.npz",
        "gs://own-data/imdb.npz",
    )
    storage.seen.clear()
    assert fetch(online, "/tensorflow/tf-keras-datasets/imdb.npz") == (200, b"reviews")
    listed = {each["uri"]: each["builtIn"] for each in json.loads(run("mirror", "list", "--format", "json"))}
    assert listed["gs://tensorflow/tf-keras-datasets/imdb.npz"] is False
    assert listed["gs://tensorflow/tf-keras-datasets/mnist.npz"] is True
    run("mirror", "remove", "gs://tensorflow/tf-keras-datasets/imdb.npz", "--quiet")
    assert fetch(online, "/tensorflow/tf-keras-datasets/imdb.npz")[0] == 404
    assert [path for _, path, _ in storage.seen] == ["/tensorflow/tf-keras-datasets/imdb.npz"]
    built_in = runner.invoke(main, ["mirror", "remove", "gs://tensorflow/tf-keras-datasets/mnist.npz", "-q"], env=env)
    assert built_in.exit_code == 1
    assert "built in" in built_in.output
    methods = [entry["method"] for entry in online.call("GET", "/trainshed/v1/audit?method=mirrors")["entries"]]
    assert {"mirrors.create", "mirrors.remove"} <= set(methods)


def test_a_server_that_asks_nobody_answers_as_if_there_were_no_public_data(server: RunningServer) -> None:
    assert fetch(server, "/cloud-samples-data/a.csv")[0] == 401
    status, body = Caller(server.url)("GET", "/storage/v1/b/cloud-samples-data/o", token=server.token)
    assert (status, body["error"]["message"]) == (404, "The specified bucket does not exist: cloud-samples-data")
    assert fetch(server, MNIST, "HEAD")[0] == 200
