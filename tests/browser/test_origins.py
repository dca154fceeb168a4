"""Signed in in a real Chromium: what our own page can do, and what a page of another port, or an upload, can't."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from trainshed.testing.processes import browsers
from trainshed.testing.processes.servers import RunningServer

PROJECT, BUCKET = "origins-project", "origins-bucket"


@pytest.fixture(scope="module")
def bucket(server: RunningServer) -> str:
    server.call("POST", f"/storage/v1/b?project={PROJECT}", {"name": BUCKET})
    return BUCKET


@pytest.fixture
def page(chromium: Browser, server: RunningServer, bucket: str) -> Iterator[Page]:
    """A window that came in by a link."""
    context = browsers.patient(chromium)
    made = context.new_page()
    made.goto(server.call("POST", "/trainshed/v1/session:link", {"project": PROJECT})["url"])
    yield made
    context.close()


def fetched(page: Page, url: str, how: dict[str, Any] | None = None) -> Any:
    """The status, or the kind of answer, or "refused"."""
    program = "([url, how]) => fetch(url, how).then((answer) => answer.status || answer.type, () => 'refused')"
    return page.evaluate(program, [url, how or {}])


def test_a_link_signs_in_and_leaves_no_code_behind(page: Page, server: RunningServer) -> None:
    page.wait_for_url(f"{server.url}/#/p/{PROJECT}**")
    assert fetched(page, "/trainshed/v1/session") == 200
    assert page.evaluate("document.cookie") == ""
    assert "code=" not in page.url
    assert page.evaluate("document.referrer") == ""


def test_the_file_that_the_command_line_opens_signs_in(
    chromium: Browser, server: RunningServer, bucket: str, tmp_path: Path
) -> None:
    seen, browser = tmp_path / "seen", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    browser.chmod(0o700)
    env = server.env() | {"BROWSER": f"{browser} %s"}
    subprocess.run(
        [sys.executable, "-m", "trainshed.cli", "console", "--project", PROJECT], env=env, check=True, timeout=240
    )
    context = browsers.patient(chromium)
    try:
        page = context.new_page()
        page.goto(seen.read_text().strip())
        page.wait_for_url(f"{server.url}/#/p/{PROJECT}**")
        assert fetched(page, "/trainshed/v1/session") == 200
        assert page.evaluate("document.referrer") == ""
    finally:
        context.close()


def test_our_own_page_changes_things_with_its_header_alone(page: Page) -> None:
    change = {"method": "POST", "body": '{"name": "origins-second"}'}
    where = f"/storage/v1/b?project={PROJECT}"
    assert fetched(page, where, change) == 403
    assert fetched(page, where, change | {"headers": {"x-trainshed-console": "1"}}) == 200


class _Elsewhere(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title>")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  its name there
        return None


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """A page of another port of the same host: its requests are same-site, so the browser sends our cookie along."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}/"
        running.shutdown()
        thread.join()


def test_a_page_of_another_port_gets_and_changes_nothing(page: Page, server: RunningServer, elsewhere: str) -> None:
    page.goto(elsewhere)
    with_cookie = {"credentials": "include"}
    header = {"headers": {"x-trainshed-console": "1"}}
    before = server.call("GET", f"/storage/v1/b?project={PROJECT}")
    change = with_cookie | {"method": "POST", "body": '{"name": "origins-third"}'}
    session, buckets = f"{server.url}/trainshed/v1/session", f"{server.url}/storage/v1/b?project={PROJECT}"
    assert fetched(page, session, with_cookie) == "refused"
    assert fetched(page, session, with_cookie | {"mode": "no-cors"}) == "refused"
    assert fetched(page, session, with_cookie | header) == "refused"
    assert fetched(page, buckets, change) == "refused"
    assert fetched(page, buckets, change | header) == "refused"
    assert fetched(page, buckets, change | {"mode": "no-cors"}) == "refused"
    assert server.call("GET", f"/storage/v1/b?project={PROJECT}") == before
    page.evaluate(
        "(url) => new Promise((done) => { const f = document.createElement('iframe'); f.onload = done;"
        " f.src = url; document.body.append(f); })",
        f"{server.url}/",
    )
    browsers.until(page, lambda: any(frame.url.startswith(server.url) for frame in page.frames))
    [framed] = [frame for frame in page.frames if frame.url.startswith(server.url)]
    assert "Pages of other sites may not call this server" in framed.content()
    page.evaluate("(url) => { location.href = url }", f"{server.url}/#/p/{PROJECT}")  # a link may lead to the console
    page.wait_for_url(f"{server.url}/#/p/{PROJECT}**")
    assert fetched(page, "/trainshed/v1/session") == 200


def test_no_upload_is_a_script_of_our_page(page: Page) -> None:
    headers = {"x-trainshed-console": "1", "content-type": "text/javascript"}
    upload = {"method": "POST", "body": "window.ran = true", "headers": headers}
    assert fetched(page, f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=upload.js", upload) == 200
    loaded = page.evaluate(
        """(url) => new Promise((done) => {
          const script = document.createElement("script");
          script.onload = () => done("ran");
          script.onerror = () => done("refused");
          script.src = url;
          document.head.append(script);
        })""",
        f"/download/storage/v1/b/{BUCKET}/o/upload.js?alt=media",
    )
    assert (loaded, page.evaluate("window.ran")) == ("refused", None)


@pytest.mark.parametrize("kind", ["text/html", "image/svg+xml", "application/xhtml+xml", "text/plain", "image/png"])
def test_an_upload_runs_no_script(page: Page, server: RunningServer, kind: str) -> None:
    code = (
        '<svg xmlns="http://www.w3.org/2000/svg"><script>fetch("/storage/v1/b?project=origins-project", '
        '{method: "POST", headers: {"x-trainshed-console": "1"}, body: JSON.stringify({name: "origins-stolen"})})'
        "</script></svg>"
    )
    upload = {"method": "POST", "body": code, "headers": {"x-trainshed-console": "1", "content-type": kind}}
    assert fetched(page, f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=upload", upload) == 200
    asked: list[str] = []
    page.context.on("request", lambda request: asked.append(request.method))
    where = f"/download/storage/v1/b/{BUCKET}/o/upload?alt=media"
    page.evaluate(
        "(url) => { const f = document.createElement('iframe'); f.src = url; document.body.append(f); }", where
    )
    page.evaluate("(url) => { window.open(url) }", where)
    browsers.until(page, lambda: asked.count("GET") >= 2)  # the frame and the window
    page.wait_for_timeout(1000)
    assert "POST" not in asked
    names = [each["name"] for each in server.call("GET", f"/storage/v1/b?project={PROJECT}")["items"]]
    assert "origins-stolen" not in names
