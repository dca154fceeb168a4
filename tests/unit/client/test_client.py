"""The client against a server that misbehaves: connections that break, answers that say no, bytes that get lost."""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from trainshed.client import ApiError, Client, ConnectionLostError, Storage
from trainshed.client.discovery import connect
from trainshed.client.storage import CHUNK_BYTES, crc32c, encode_checksum
from trainshed.client.transport import MAX_ATTEMPTS
from trainshed.config import ClientSettings, Home
from trainshed.errors import CannotProceedError, DataLossError


class Shaky:
    """Objects in a dict behind HTTP. `faults` are used up one a request that carries an object's bytes.

    A fault is "cut" (the connection dies at once), "half" (half of the bytes pass, then it dies), "lost" (all is done,
    but the answer never comes), "bad" (a bit flips), "quota" (a limit) or a status to answer with.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.sessions: dict[str, bytearray] = {}
        self.faults: list[str | int] = []
        self.requests: list[str] = []
        self.tokens: list[str] = []

    def serve(self, handler: _Handler) -> None:
        url = urlsplit(handler.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        self.requests.append(f"{handler.command} {handler.headers.get('content-range') or url.path}")
        self.tokens.append(handler.headers.get("authorization", ""))
        if url.path == "/page":
            handler.answer_raw(200, b"<html>")
        elif url.path == "/echo":
            self._echo(handler)
        elif query.get("uploadType") == "resumable":
            handler.body()
            self.sessions[query["name"]] = bytearray()
            handler.answer(200, {}, location=f"http://elsewhere.example/session/{query['name']}")
        elif url.path.startswith("/session/"):
            self._chunk(handler, url.path.removeprefix("/session/"))
        elif query.get("alt") == "media":
            self._media(handler)
        else:
            handler.answer(204, None)

    def _fault(self) -> str | int | None:
        return self.faults.pop(0) if self.faults else None

    def _echo(self, handler: _Handler) -> None:
        body = handler.body()
        fault = self._fault()
        if fault == "cut":
            handler.die()
        elif isinstance(fault, int):
            handler.answer(fault, {"error": {"code": fault, "message": "Not now.", "status": "UNAVAILABLE"}})
        elif fault == "quota":
            details = [{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []}]
            handler.answer(429, {"error": {"code": 429, "message": "Used up.", "details": details}})
        else:
            handler.answer(200, json.loads(body or b"{}"))

    def _chunk(self, handler: _Handler, name: str) -> None:
        """`bytes 0-9/20` and `bytes */20`, as the protocol has them."""
        kept = self.sessions[name]
        span, total = handler.headers["content-range"].removeprefix("bytes ").split("/")
        fault = self._fault() if span != "*" else None
        body = handler.body(half=fault == "half")
        if isinstance(fault, int):
            handler.answer(fault, {"error": {"code": fault, "message": "Not now.", "status": "UNAVAILABLE"}})
            return
        if span != "*" and fault != "cut":
            assert int(span.split("-")[0]) == len(kept), "a gap, or bytes sent twice"
            kept += bytes([body[0] ^ 1]) + body[1:] if fault == "bad" else body
        if fault in ("cut", "half", "lost"):
            handler.die()
        elif total != "*" and len(kept) == int(total):
            self.objects[name] = bytes(kept)
            handler.answer(200, self.describe(name))
        else:
            handler.answer(308, None, **({"range": f"bytes=0-{len(kept) - 1}"} if kept else {}))

    def _media(self, handler: _Handler) -> None:
        data = self.objects["x"]
        wanted = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("range", ""))
        start = int(wanted[1]) if wanted else 0
        fault = self._fault()
        if isinstance(fault, int):
            handler.answer(fault, {"error": {"code": fault, "message": "Not now.", "status": "UNAVAILABLE"}})
            return
        handler.send_response(206 if wanted else 200)
        handler.send_header("content-length", str(len(data) - start))
        handler.end_headers()
        data = bytes([data[0] ^ 1]) + data[1:] if fault == "bad" else data
        handler.wfile.write(data[start : start + (len(data) - start) // 2] if fault == "half" else data[start:])
        if fault == "half":
            handler.die()

    def describe(self, name: str) -> dict[str, Any]:
        checksum = crc32c()
        checksum.update(self.objects[name])
        return {
            "bucket": "b",
            "name": name,
            "size": str(len(self.objects[name])),
            "generation": "1",
            "crc32c": encode_checksum(checksum),
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    shaky: Shaky

    def body(self, *, half: bool = False) -> bytes:
        length = int(self.headers.get("content-length") or 0)
        return self.rfile.read(length // 2 if half else length)

    def answer(self, status: int, body: Any, **headers: str) -> None:
        self.answer_raw(status, b"" if body is None else json.dumps(body).encode(), **headers)

    def answer_raw(self, status: int, raw: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def die(self) -> None:
        self.close_connection = True

    def do_GET(self) -> None:
        self.shaky.serve(self)

    do_POST = do_PUT = do_DELETE = do_GET

    def log_message(self, *words: object) -> None:
        return None


@pytest.fixture
def shaky() -> Shaky:
    return Shaky()


@pytest.fixture
def url(shaky: Shaky) -> Iterator[str]:
    handler = type("Handler", (_Handler,), {"shaky": shaky})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def client(url: str, pauses: list[float]) -> Iterator[Client]:
    client = Client(url, token="secret", sleep=pauses.append)
    yield client
    client.close()


@pytest.fixture
def storage(client: Client) -> Storage:
    return Storage(client)


def test_a_request_carries_the_token_and_gives_back_json(client: Client, shaky: Shaky) -> None:
    assert client.call("POST", "/echo", body={"a": "ü"}) == {"a": "ü"}
    assert shaky.tokens == ["Bearer secret"]


@pytest.mark.parametrize("faults", [[503, 429, 500], ["cut"], ["cut", 502, "cut"]])
def test_a_passing_failure_is_tried_again_with_growing_pauses(
    client: Client, shaky: Shaky, pauses: list[float], faults: list[str | int]
) -> None:
    shaky.faults = list(faults)
    assert client.call("GET", "/echo") == {}
    assert len(shaky.requests) == len(faults) + 1
    assert len(pauses) == len(faults)
    assert pauses == sorted(pauses)


def test_a_request_that_may_have_been_done_is_not_sent_twice(client: Client, shaky: Shaky) -> None:
    shaky.faults = ["cut"]
    with pytest.raises(ConnectionLostError, match="does not answer"):
        client.call("POST", "/echo", body={})
    assert len(shaky.requests) == 1


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_limit_that_is_reached_is_not_tried_again(client: Client, shaky: Shaky, method: str) -> None:
    shaky.faults = ["quota"]
    with pytest.raises(ApiError, match="Used up") as caught:
        client.call(method, "/echo", body={})
    assert (caught.value.is_quota, len(shaky.requests)) == (True, 1)


def test_a_post_that_was_not_done_is_sent_again(client: Client, shaky: Shaky) -> None:
    shaky.faults = [503]
    assert client.call("POST", "/echo", body={"a": 1}) == {"a": 1}


@pytest.mark.parametrize("status", [400, 403, 404, 409, 501])
def test_a_refusal_is_not_asked_for_again(client: Client, shaky: Shaky, pauses: list[float], status: int) -> None:
    shaky.faults = [status]
    with pytest.raises(ApiError, match="Not now") as caught:
        client.call("GET", "/echo")
    assert (caught.value.code, caught.value.status) == (status, "UNAVAILABLE")
    assert pauses == []


def test_trying_again_has_an_end(client: Client, shaky: Shaky, pauses: list[float]) -> None:
    shaky.faults = [503] * 100
    with pytest.raises(ApiError):
        client.call("GET", "/echo")
    assert len(shaky.requests) == MAX_ATTEMPTS
    assert len(pauses) == MAX_ATTEMPTS - 1


def test_a_server_that_is_not_there_is_said_to_be_so(url: str, pauses: list[float]) -> None:
    client = Client("http://127.0.0.1:1", sleep=pauses.append)
    with pytest.raises(ConnectionLostError, match=r"http://127\.0\.0\.1:1 does not answer: connection refused"):
        client.call("POST", "/echo", body={})
    assert len(pauses) == MAX_ATTEMPTS - 1  # nothing was sent, so even this was tried again


def test_a_server_of_another_kind_is_said_to_be_one(client: Client) -> None:
    with pytest.raises(CannotProceedError, match="is not a Trainshed server"):
        client.call("GET", "/page")


@pytest.mark.parametrize("text", ["", "127.0.0.1:80", "ftp://x", "http://"])
def test_what_is_no_url_is_refused(text: str) -> None:
    with pytest.raises(CannotProceedError, match="is not the URL of a server"):
        Client(text)


BIG = bytes(range(256)) * (5 * CHUNK_BYTES // 512)  #: two and a half chunks


@pytest.mark.parametrize(
    "faults",
    [[], ["half"], ["cut"], ["lost"], [503, "half", "cut"], ["lost", "lost", "lost"], ["half", "half", 429, "lost"]],
)
@pytest.mark.parametrize("size", [len(BIG), None], ids=["file", "stream"])
def test_an_upload_goes_on_where_it_broke_off(
    storage: Storage, shaky: Shaky, faults: list[str | int], size: int | None
) -> None:
    shaky.faults = list(faults)
    seen: list[int] = []
    answer = storage.upload(io.BytesIO(BIG), ("b", "x"), content_type="a/b", size=size, progress=seen.append)
    assert shaky.objects["x"] == BIG
    assert answer["size"] == str(len(BIG))
    assert sum(seen) == len(BIG)
    assert shaky.faults == []


def test_a_stream_that_ends_with_a_chunk_is_whole(storage: Storage, shaky: Shaky) -> None:
    data = BIG[: 2 * CHUNK_BYTES]
    storage.upload(io.BytesIO(data), ("b", "x"), content_type="a/b", size=None)
    assert shaky.objects["x"] == data


def test_an_upload_that_arrives_damaged_is_removed_again(storage: Storage, shaky: Shaky) -> None:
    shaky.faults = ["bad"]
    with pytest.raises(DataLossError, match="gs://b/x arrived damaged and was removed"):
        storage.upload(io.BytesIO(BIG), ("b", "x"), content_type="a/b", size=len(BIG))
    assert shaky.requests[-1] == "DELETE /storage/v1/b/b/o/x"


def test_an_upload_gives_up_in_the_end(storage: Storage, shaky: Shaky) -> None:
    shaky.faults = ["cut"] * 100
    with pytest.raises(ConnectionLostError):
        storage.upload(io.BytesIO(BIG), ("b", "x"), content_type="a/b", size=len(BIG))


@pytest.mark.parametrize("faults", [[], ["half"], ["half", "half", "half"], [503, "half", 429]])
def test_a_download_goes_on_where_it_broke_off(storage: Storage, shaky: Shaky, faults: list[str | int]) -> None:
    shaky.objects["x"] = BIG
    shaky.faults = list(faults)
    sink, seen = io.BytesIO(), list[int]()
    storage.download(shaky.describe("x"), sink, progress=seen.append)
    assert sink.getvalue() == BIG
    assert sum(seen) == len(BIG)
    assert len(shaky.requests) == len(faults) + 1


def test_a_download_that_arrives_damaged_is_an_error(storage: Storage, shaky: Shaky) -> None:
    shaky.objects["x"] = BIG
    shaky.faults = ["bad"]
    with pytest.raises(DataLossError, match="arrived damaged"):
        storage.download(shaky.describe("x"), io.BytesIO())


@pytest.fixture
def settings(tmp_path: Any) -> Callable[..., ClientSettings]:
    home = Home(tmp_path)
    home.token.write_text("owner\n")

    def make(url: str, token: str | None = None) -> ClientSettings:
        return ClientSettings(home=home, project="p-one", url=url, token=token)

    return make


def test_the_owners_token_is_sent_to_this_machine_only(
    settings: Callable[..., ClientSettings], url: str, shaky: Shaky
) -> None:
    for given in (None, "mine"):
        client = connect(settings(url, given))
        client.call("GET", "/echo")
        client.close()
    assert shaky.tokens == ["Bearer owner", "Bearer mine"]
    for name in ("trainshed.example", "127.0.0.1.example", "localhost.example", "10.0.0.1"):
        elsewhere = connect(settings(f"http://{name}:8470"))
        assert "owner" not in repr(vars(elsewhere)), name


def test_a_token_that_says_for_which_server_it_is_goes_there_and_nowhere_else(
    settings: Callable[..., ClientSettings],
) -> None:
    there = "https://10.0.0.1:8471"
    made = settings(there)
    made.home.token_for.write_text(f"{there}\n")
    assert "owner" in repr(vars(connect(made)))
    for url in ("https://10.0.0.1:8472", "http://10.0.0.1:8471", "https://10.0.0.1.example:8471"):
        assert "owner" not in repr(vars(connect(settings(url)))), url
