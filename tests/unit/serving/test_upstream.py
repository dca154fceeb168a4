"""What a container's answers are to who asked it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from trainshed.serving.container.upstream import UPSTREAM_ERRORS, Upstream, UpstreamResponse, as_answer
from trainshed.serving.frames import unpack_raw
from trainshed.testing.processes.resources import held_port


def test_good_answers_are_given_back_as_they_came() -> None:
    body = b'{"predictions": [1, NaN]}'
    assert as_answer(UpstreamResponse(200, "application/json; charset=utf-8", body), raw=False) == (200, body)
    assert as_answer(UpstreamResponse(201, "", b'{"predictions": []}'), raw=False) == (200, b'{"predictions": []}')


def test_raw_answers_keep_their_type() -> None:
    status, body = as_answer(UpstreamResponse(200, "image/png", b"\x89PNG"), raw=True)
    assert (status, unpack_raw(body)) == (200, ("image/png", b"\x89PNG"))
    _, body = as_answer(UpstreamResponse(200, "", b"x"), raw=True)
    assert unpack_raw(body) == ("application/octet-stream", b"x")


def test_what_is_no_json_is_no_prediction() -> None:
    status, body = as_answer(UpstreamResponse(200, "text/html", b"<p>hello"), raw=False)
    assert status == 500
    assert "rawPredict" in json.loads(body)["error"]["message"]


@pytest.mark.parametrize("raw", [True, False])
def test_errors_keep_their_status_and_their_words(raw: bool) -> None:
    own = b'{"error": "no such column"}'
    assert as_answer(UpstreamResponse(422, "application/json", own), raw=raw) == (422, own)
    status, body = as_answer(UpstreamResponse(503, "text/plain", b"still loading"), raw=raw)
    assert status == 503
    assert json.loads(body)["error"] == {
        "code": 503,
        "message": "Prediction failed: The container answered with status 503: still loading",
        "status": "UNAVAILABLE",
    }


def test_a_redirect_is_no_answer() -> None:
    status, body = as_answer(UpstreamResponse(302, "", b""), raw=False)
    assert status == 500
    assert "302" in json.loads(body)["error"]["message"]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[str, str, bytes]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.seen.append((self.path, self.headers.get("content-type", ""), body))
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if body == b"last":  # closes without having said so
            self.close_connection = True

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    Handler.seen.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_a_connection_that_was_closed_while_idle_is_opened_again(port: int) -> None:
    upstream = Upstream(port, timeout_s=60)
    for word in (b"first", b"last", b"again", b""):
        assert upstream.post("/p", word, "text/plain").body == word
    upstream.close()
    assert Handler.seen == [("/p", "text/plain", word) for word in (b"first", b"last", b"again", b"")]


def test_one_that_nobody_listens_on_is_lost() -> None:
    with held_port() as port, pytest.raises(UPSTREAM_ERRORS):
        Upstream(port, timeout_s=60).post("/p", b"", "")
