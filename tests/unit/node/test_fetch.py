"""Packages on their way to another machine: whole and unchanged, or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from trainshed.certificates import Certificates, ensure_certificates
from trainshed.node.remote import fetch
from trainshed.node.remote.fetch import FetchError, fetch_all

CONTENT = os.urandom(300_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()
TOKEN = "ts_only_for_packages"


class Shop:
    """A TLS server whose next answers are scripted; without a script it sends what it is asked for."""

    def __init__(self, certificates: Certificates) -> None:
        self.certificates = certificates
        self.asked: list[tuple[str, str, str | None]] = []  #: path, token, range
        self.script: list[Callable[[BaseHTTPRequestHandler], None]] = []
        shop = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                range_ = self.headers.get("Range")
                shop.asked.append((self.path, self.headers.get("Authorization", ""), range_))
                shop.script.pop(0)(self) if shop.script else send(self, range_)

            def log_message(self, *args: Any) -> None:
                pass

        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificates.chain, certificates.key)

        class Server(ThreadingHTTPServer):
            def finish_request(self, request: Any, client_address: Any) -> None:
                with suppress(OSError), context.wrap_socket(request, server_side=True) as secure:
                    Handler(secure, client_address, self)

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def package(self, **changes: Any) -> dict[str, Any]:
        url = f"https://127.0.0.1:{self._server.server_port}/packages/{DIGEST}"
        return {"uri": "gs://b/trainer.tar.gz", "sha256": DIGEST, "size": len(CONTENT), "url": url, **changes}

    def fetch(self, folder: Path, said: list[str] | None = None, **changes: Any) -> Path:
        kit = {"ca": self.certificates.authority.read_text(), "token": TOKEN}
        say = (said if said is not None else []).append
        [found] = fetch_all([self.package(**changes)], kit, str(folder), say)
        assert (found["uri"], found["sha256"]) == ("gs://b/trainer.tar.gz", DIGEST)
        return Path(found["path"])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def send(handler: BaseHTTPRequestHandler, range_: str | None, content: bytes = CONTENT, cut: int | None = None) -> None:
    start = int(range_.removeprefix("bytes=").removesuffix("-")) if range_ else 0
    handler.send_response(206 if range_ else 200)
    if range_:
        handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    handler.send_header("Content-Length", str(len(content) - start))
    handler.end_headers()
    handler.wfile.write(content[start:cut])


def refuse(status: int, body: bytes = b"", **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return ensure_certificates(tmp_path_factory.mktemp("shop") / "certificates", hosts=("127.0.0.1",))


@pytest.fixture
def shop(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setattr(fetch, "_RETRY_INTERVALS_S", (0.01,))
    opened = Shop(certificates)
    yield opened
    opened.close()


def test_a_package_comes_whole_and_is_taken_from_there_the_next_time(shop: Shop, tmp_path: Path) -> None:
    said: list[str] = []
    path = shop.fetch(tmp_path, said)
    assert path.read_bytes() == CONTENT
    assert path == tmp_path / DIGEST / "trainer.tar.gz"
    assert path.stat().st_mode & 0o777 == 0o600
    assert said == ["Downloading the package: gs://b/trainer.tar.gz"]
    assert shop.asked == [(f"/packages/{DIGEST}", f"Bearer {TOKEN}", None)]
    assert shop.fetch(tmp_path) == path
    assert len(shop.asked) == 1


def test_what_was_spoilt_on_the_disk_is_fetched_anew(shop: Shop, tmp_path: Path) -> None:
    path = shop.fetch(tmp_path)
    path.write_bytes(CONTENT[:-1])
    assert shop.fetch(tmp_path).read_bytes() == CONTENT


def test_a_broken_connection_costs_only_what_was_missing(shop: Shop, tmp_path: Path) -> None:
    shop.script = [
        refuse(503),
        lambda handler: send(handler, None, cut=100_000),
        refuse(502),
        lambda handler: send(handler, handler.headers["Range"], cut=250_000),
    ]
    assert shop.fetch(tmp_path).read_bytes() == CONTENT
    assert [range_ for _, _, range_ in shop.asked] == [None, None, "bytes=100000-", "bytes=100000-", "bytes=250000-"]


def test_another_content_is_not_used(shop: Shop, tmp_path: Path) -> None:
    shop.script = [lambda handler: send(handler, None, content=b"x" * len(CONTENT))]
    with pytest.raises(FetchError, match="another content"):
        shop.fetch(tmp_path)
    assert [*tmp_path.rglob("*")] == [tmp_path / DIGEST]


def test_no_more_is_read_than_the_package_has(shop: Shop, tmp_path: Path) -> None:
    shop.script = [lambda handler: send(handler, None, content=CONTENT + b"more")]
    assert shop.fetch(tmp_path).read_bytes() == CONTENT


def test_a_refusal_is_told_at_once_in_the_servers_words(shop: Shop, tmp_path: Path) -> None:
    shop.script = [refuse(403, json.dumps({"error": {"message": "This is another job."}}).encode())]
    with pytest.raises(FetchError, match=r"gs://b/trainer\.tar\.gz can't be fetched: This is another job\."):
        shop.fetch(tmp_path)
    assert len(shop.asked) == 1
    assert [*tmp_path.rglob("*")] == [tmp_path / DIGEST]


def test_nobody_else_is_sent_the_token(shop: Shop, certificates: Certificates, tmp_path: Path) -> None:
    other = Shop(certificates)
    try:
        shop.script = [refuse(302, Location=other.package()["url"])]
        with pytest.raises(FetchError, match="status 302"):
            shop.fetch(tmp_path)
        assert other.asked == []
    finally:
        other.close()


def test_a_server_that_is_not_ours_is_asked_nothing(shop: Shop, tmp_path: Path) -> None:
    kit = {"ca": ensure_certificates(tmp_path / "other", hosts=("x",)).authority.read_text(), "token": TOKEN}
    with pytest.raises(FetchError, match="node_host"):
        fetch_all([shop.package()], kit, str(tmp_path / "cache"), print)
    assert shop.asked == []


def test_one_that_never_answers_is_given_up_with_a_sentence(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "STALL_TIMEOUT_S", 0.1)
    package = shop.package()
    shop.script = [refuse(503)] * 1000
    with pytest.raises(FetchError, match="has not answered for 0 s") as told:
        fetch_all([package], {"ca": shop.certificates.authority.read_text(), "token": TOKEN}, str(tmp_path), print)
    assert TOKEN not in str(told.value)


def test_a_name_that_is_none_is_not_taken_for_a_path(shop: Shop, tmp_path: Path) -> None:
    kit = {"ca": shop.certificates.authority.read_text(), "token": TOKEN}
    for uri, name in (("gs://b/..", "package"), ("gs://b/a/", "package")):
        [found] = fetch_all([shop.package(uri=uri)], kit, str(tmp_path), lambda line: None)
        assert Path(found["path"]) == tmp_path / DIGEST / name
