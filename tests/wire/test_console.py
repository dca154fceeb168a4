"""The console's page and files as bytes on the wire."""

from __future__ import annotations

import gzip
import http.client
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import pytest

from trainshed.testing.processes.servers import RunningServer


def get(
    server: RunningServer, path: str, headers: Mapping[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=60)
    try:
        connection.request("GET", path, headers=dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def test_the_page_is_public_and_guarded(server: RunningServer) -> None:
    status, headers, body = get(server, "/")
    assert status == 200
    assert body.startswith(b"<!doctype html>")
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["cache-control"] == "no-cache"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


def test_every_file_that_the_page_names_is_there_for_good(server: RunningServer) -> None:
    _, _, body = get(server, "/")
    names = re.findall(r'(?:src|href)="(/console/[^"]+)"', body.decode())
    assert any(name.endswith(".js") for name in names)
    for name in names:
        status, headers, _ = get(server, name)
        assert status == 200, name
        assert "immutable" in headers["cache-control"]
        assert "content-security-policy" in headers


def test_a_file_is_sent_packed_to_who_can_unpack_it_and_not_sent_twice(server: RunningServer) -> None:
    _, plain, body = get(server, "/")
    _, packed, small = get(server, "/", {"accept-encoding": "br, gzip"})
    assert "content-encoding" not in plain
    assert packed["content-encoding"] == "gzip"
    assert gzip.decompress(small) == body
    status, headers, nothing = get(server, "/", {"if-none-match": plain["etag"]})
    assert (status, nothing) == (304, b"")
    assert headers["etag"] == plain["etag"]


@pytest.mark.parametrize(
    "path", ["/console/", "/console/none.js", "/console/../files.py", "/console/%2e%2e/files.py", "/console/js/"]
)
def test_what_is_no_file_of_the_console_is_not_there(server: RunningServer, path: str) -> None:
    assert get(server, path)[0] == 404


def test_a_page_of_another_site_may_link_to_the_console_and_nothing_else(server: RunningServer) -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert get(server, "/", link)[0] == 200
    assert get(server, "/", link | {"sec-fetch-dest": "iframe"})[0] == 403
    assert get(server, "/", link | {"sec-fetch-mode": "no-cors"})[0] == 403
    assert get(server, "/healthz", link)[0] == 403
    assert get(server, "/console/enter?code=x", link)[0] == 401
    assert get(server, "/console/enter?code=x", link | {"sec-fetch-dest": "iframe"})[0] == 403
