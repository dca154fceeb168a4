"""The console's cookie on the wire: when it opens a door, and when it must not."""

from __future__ import annotations

import http.client
import json
import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from trainshed.api.app import ROUTES
from trainshed.api.http.routing import Route
from trainshed.domain.iam import Access
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import HttpAnswer, RunningServer, ask

PROJECT, BUCKET = "session-project", "session-bucket"
SESSION = "/trainshed/v1/session"


class Browser:
    """Keeps the cookies that it is given by any port of a host, as browsers do, and says where its pages are from."""

    def __init__(self) -> None:
        self.cookies: dict[str, str] = {}

    def __call__(
        self,
        server: RunningServer,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> HttpAnswer:
        """A request of the console's own script; `headers` overrides, None leaves one out."""
        sent: dict[str, str | None] = {"sec-fetch-site": "same-origin", "x-trainshed-console": "1"}
        if method != "GET":
            sent["origin"] = server.url
        if self.cookies:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        sent |= dict(headers or {})
        kept = {name: value for name, value in sent.items() if value is not None}
        got = ask(server.url, method, path, body=body, headers=kept)
        self._take(got.headers.get("set-cookie", ""))
        return got

    def _take(self, cookie: str) -> None:
        if found := re.match(r"([^=]+)=([^;]*);", cookie):
            if "max-age=0" in cookie.lower():
                self.cookies.pop(found[1], None)
            else:
                self.cookies[found[1]] = found[2]


def signed_in(server: RunningServer, token: str | None = None) -> Browser:
    browser = Browser()
    answer = browser(server, "POST", SESSION, {"token": token or server.token})
    assert answer.status == 200, answer.body
    return browser


def make(server: RunningServer, **given: Any) -> dict[str, Any]:
    body = {"user": "alice", "project": PROJECT, "role": "editor"} | given
    return dict(server.call("POST", "/trainshed/v1/tokens", body))


@pytest.fixture(scope="module")
def bucket(server: RunningServer) -> str:
    server.call("POST", f"/storage/v1/b?project={PROJECT}", {"name": BUCKET})
    return BUCKET


def test_a_token_begins_a_session_and_the_session_says_who_it_is(server: RunningServer, bucket: str) -> None:
    browser = Browser()
    answer = browser(server, "POST", SESSION, {"token": f" {server.token}\n"})
    assert answer.status == 200
    cookie = answer.headers["set-cookie"]
    port = urlsplit(server.url).port
    assert cookie.startswith(f"trainshed-{port}=ts_")
    words = {word.strip().lower() for word in cookie.split(";")[1:]}
    assert {"httponly", "path=/", "samesite=strict", "max-age=1209600"} <= words
    assert "secure" not in words
    assert server.token not in cookie
    assert answer.headers["cache-control"] == "no-store"
    shown = browser(server, "GET", SESSION).json
    assert shown == answer.json
    assert (shown["user"], shown["project"], shown["role"]) == ("owner", "*", "owner")
    assert shown["projects"][0] == "trainshed"
    assert PROJECT in shown["projects"]
    assert (shown["url"], shown["authentication"]) == (server.url, True)


def test_a_token_of_one_project_sees_that_project(server: RunningServer, bucket: str) -> None:
    browser = signed_in(server, make(server, role="viewer")["token"])
    assert browser(server, "GET", SESSION).json["projects"] == [PROJECT]
    assert browser(server, "GET", f"/storage/v1/b?project={PROJECT}").status == 200
    assert browser(server, "GET", "/storage/v1/b?project=session-other").status == 403
    assert browser(server, "POST", f"/storage/v1/b?project={PROJECT}", {"name": "session-second"}).status == 403


def test_over_tls_the_cookie_is_for_tls_alone(server: RunningServer) -> None:
    context = ssl.create_default_context(cafile=str(server.authority))
    connection = http.client.HTTPSConnection(urlsplit(server.tls_url).netloc, timeout=60, context=context)
    connection.request("POST", SESSION, json.dumps({"token": server.token}))
    answer = connection.getresponse()
    cookie = answer.headers["set-cookie"]
    connection.close()
    assert cookie.startswith(f"trainshed-{urlsplit(server.tls_url).port}=")
    assert "; Secure" in cookie


@pytest.mark.parametrize("body", [{}, {"token": ""}, {"token": 7}, {"token": "x", "more": 1}, [1], b"{", None])
def test_what_is_no_token_is_refused(server: RunningServer, body: Any) -> None:
    answer = Browser()(server, "POST", SESSION, body)
    assert answer.status == 400
    assert "set-cookie" not in answer.headers


def test_a_wrong_token_begins_nothing_and_is_not_repeated(own_server: RunningServer) -> None:
    answer = Browser()(own_server, "POST", SESSION, {"token": "ts_secret-but-wrong"})
    assert answer.status == 401
    assert b"ts_secret" not in answer.body
    assert "set-cookie" not in answer.headers
    assert Browser()(own_server, "POST", SESSION, {"token": "x" * 5000}).status == 413
    statuses = [Browser()(own_server, "POST", SESSION, {"token": f"ts_{n}"}).status for n in range(20)]
    assert statuses[0] == 401
    assert statuses[-1] == 429
    assert "ts_secret" not in own_server.log.read_text()


GUARDED = [route for route in ROUTES if route.access is not Access.PUBLIC]


def path_of(route: Route) -> str:
    known = {"project": PROJECT, "bucket": BUCKET, "dbucket": BUCKET}
    return re.sub(r"\{(\w+)\*?\}", lambda m: known.get(m[1], f"no-such-{m[1]}"), route.path) + f"?project={PROJECT}"


@pytest.fixture(scope="module")
def browser(server: RunningServer, bucket: str) -> Iterator[Browser]:
    made = signed_in(server)
    yield made
    assert made(server, "GET", SESSION).status == 200  # nothing that was refused has ended it


def offenders(check: Callable[[Route], bool], routes: Iterable[Route] = GUARDED) -> list[str]:
    """The routes for which a check does not hold."""
    return [f"{route.method} {route.path}" for route in routes if not check(route)]


@pytest.mark.fault("F66")
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
        {"host": "evil.example"},
    ],
    ids=lambda headers: " ".join(f"{name}={value}" for name, value in headers.items()),
)
def test_a_cookie_opens_nothing_to_other_pages(
    server: RunningServer, browser: Browser, headers: dict[str, str]
) -> None:
    def is_closed(route: Route) -> bool:
        return browser(server, route.method, path_of(route), headers=headers).status == 403

    assert offenders(is_closed) == []


@pytest.mark.fault("F66")
@pytest.mark.parametrize("missing", ["origin", "x-trainshed-console"])
def test_a_cookie_changes_nothing_without(server: RunningServer, browser: Browser, missing: str) -> None:
    def is_closed(route: Route) -> bool:
        answer = browser(server, route.method, path_of(route), headers={missing: None})
        return answer.status == 403 and b"own page" in answer.body

    assert offenders(is_closed, (route for route in GUARDED if route.method != "GET")) == []


@pytest.mark.parametrize("cookie", ["trainshed-PORT=ts_wrong", "trainshed-PORT=", "trainshed-PORTx=TOKEN", "junk"])
def test_a_cookie_that_is_none_opens_nothing(server: RunningServer, cookie: str) -> None:
    headers = {"cookie": cookie.replace("PORT", str(urlsplit(server.url).port)).replace("TOKEN", server.token)}

    def is_closed(route: Route) -> bool:
        answer = Browser()(server, route.method, path_of(route), headers=headers)
        return answer.status == 401 and b"ts_wrong" not in answer.body

    assert offenders(is_closed) == []


def test_a_cookie_beside_an_authorization_header_counts_for_nothing(server: RunningServer, browser: Browser) -> None:
    for header in ("Bearer ts_wrong", "", "Basic abc"):
        assert browser(server, "GET", SESSION, headers={"authorization": header}).status == 401


def test_a_page_reads_also_where_browsers_do_not_say_where_it_is_from(server: RunningServer, browser: Browser) -> None:
    """They don't over plain HTTP, but on loopback."""
    answer = browser(server, "GET", SESSION, headers={"sec-fetch-site": None})
    assert answer.status == 200
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"  # so no other page gets it
    assert "access-control-allow-origin" not in answer.headers


def test_signing_out_ends_the_session_for_good(server: RunningServer) -> None:
    browser = signed_in(server)
    kept = dict(browser.cookies)
    assert browser(server, "GET", SESSION).status == 200
    assert browser(server, "DELETE", SESSION).status == 200
    assert browser.cookies == {}
    browser.cookies = kept
    answer = browser(server, "GET", SESSION)
    assert answer.status == 401
    assert b"Sign in again" in answer.body
    assert Browser()(server, "DELETE", SESSION, headers={"authorization": f"Bearer {server.token}"}).status == 400


def test_a_session_ends_with_its_token(server: RunningServer) -> None:
    made = make(server)
    browser = signed_in(server, made["token"])
    assert browser(server, "GET", SESSION).status == 200
    server.call("POST", f"/trainshed/v1/tokens/{made['id']}:revoke", {})
    assert browser(server, "GET", SESSION).status == 401


def test_a_session_ends_no_later_than_its_token(server: RunningServer) -> None:
    browser = Browser()
    for ttl_s in (1, 5, 30):  # on a slow machine one may end before it is used
        token = make(server, ttlSeconds=ttl_s)["token"]
        if (answer := browser(server, "POST", SESSION, {"token": token})).status == 200:
            break
    assert answer.status == 200, answer.body
    eventually(lambda: browser(server, "GET", SESSION).status, lambda status: status != 200)
    assert browser(server, "GET", SESSION).status == 401


def test_two_servers_of_one_machine_leave_each_others_sessions_alone(
    server: RunningServer, own_server: RunningServer
) -> None:
    browser = Browser()
    for each in (server, own_server):
        assert browser(each, "POST", SESSION, {"token": each.token}).status == 200
    assert len(browser.cookies) == 2
    assert browser(server, "GET", SESSION).status == 200
    assert browser(own_server, "DELETE", SESSION).status == 200
    assert browser(own_server, "GET", SESSION).status == 401
    assert browser(server, "GET", SESSION).status == 200


def test_a_session_outlives_the_server(own_server: RunningServer) -> None:
    browser = signed_in(own_server)
    own_server.kill()
    own_server.start()
    assert browser(own_server, "GET", SESSION).status == 200


def link(server: RunningServer, body: Any = None) -> str:
    url = str(server.call("POST", f"{SESSION}:link", body or {})["url"])
    assert url.startswith(f"{server.url}/console/enter?code=")
    return url.removeprefix(server.url)


def test_a_link_signs_in_once(server: RunningServer) -> None:
    path = link(server, {"project": PROJECT})
    navigation = {"sec-fetch-site": "none", "x-trainshed-console": None}
    browser = Browser()
    answer = browser(server, "GET", path, headers=navigation)
    assert (answer.status, answer.headers["location"]) == (303, f"/#/p/{PROJECT}")
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    assert browser(server, "GET", SESSION).json["user"] == "owner"
    again = Browser()(server, "GET", path, headers=navigation)
    assert again.status == 401
    assert again.headers["content-type"].startswith("text/plain")
    assert b"trainshed console" in again.body
    assert "set-cookie" not in again.headers
    assert path.partition("code=")[2] not in server.log.read_text()
    assert path.partition("code=")[2].encode() not in again.body


def test_a_link_is_made_for_a_token_and_not_for_a_session(server: RunningServer, browser: Browser) -> None:
    assert browser(server, "POST", f"{SESSION}:link", {}).status == 401
    assert Browser()(server, "POST", f"{SESSION}:link", {}).status == 401


def test_a_link_names_no_odd_project(server: RunningServer) -> None:
    token = {"authorization": f"Bearer {server.token}"}
    for project in ("//evil.example", "a\r\nb", "../x"):
        assert Browser()(server, "POST", f"{SESSION}:link", {"project": project}, token).status == 400


@pytest.mark.fault("F64")
def test_no_session_reaches_the_log_or_the_disk(server: RunningServer, browser: Browser) -> None:
    [session] = browser.cookies.values()
    assert session not in server.log.read_text()
    for path in server.home.glob("state.db*"):
        assert session.encode() not in path.read_bytes()


def test_without_authentication_the_page_just_works(tmp_path: Path) -> None:
    server = RunningServer(tmp_path / "home", {"authentication": "false"}).start()
    try:
        browser = Browser()
        shown = browser(server, "GET", SESSION).json
        assert (shown["user"], shown["authentication"]) == ("anonymous", False)
        assert browser(server, "POST", SESSION, {"token": "anything"}).status == 200
        assert browser.cookies == {}
        assert browser(server, "POST", "/storage/v1/b?project=open-project", {"name": "open-bucket"}).status == 200
        made = Browser()(server, "POST", f"{SESSION}:link", {"project": "open-project"}).json
        assert made["url"] == f"{server.url}/#/p/open-project"
        assert browser(server, "POST", SESSION, {}, {"origin": "http://evil.example"}).status == 403
    finally:
        server.stop()


@pytest.mark.fault("F67")
@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("image/png", "inline"),
        ("IMAGE/JPEG", "inline"),
        ("image/gif", "inline"),
        ("image/webp", "inline"),
        ("text/plain", "inline"),
        ("text/plain; charset=utf-8", "inline"),
        ("text/plain;a=b, text/html", "attachment"),
        ("image/svg+xml", "attachment"),
        ("text/html", "attachment"),
        ("text/xml", "attachment"),
        ("application/xhtml+xml", "attachment"),
        ("text/javascript", "attachment"),
        ("application/pdf", "attachment"),
        ("application/octet-stream", "attachment"),
    ],
)
def test_nothing_that_was_uploaded_runs_as_the_user(
    server: RunningServer, browser: Browser, kind: str, wanted: str
) -> None:
    upload = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=shown"
    code = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
    assert browser(server, "POST", upload, code, {"content-type": kind}).status == 200
    for path in (f"/storage/v1/b/{BUCKET}/o/shown?alt=media", f"/download/storage/v1/b/{BUCKET}/o/shown?alt=media"):
        answer = browser(server, "GET", path)
        assert answer.body == code
        assert answer.headers["content-disposition"] == wanted
        assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.fault("F67")
def test_no_upload_becomes_a_part_of_a_page(server: RunningServer, browser: Browser) -> None:
    upload = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=part.js"
    assert browser(server, "POST", upload, b"alert(1)", {"content-type": "text/javascript"}).status == 200
    path = f"/download/storage/v1/b/{BUCKET}/o/part.js?alt=media"
    uses = {"script": 403, "style": 403, "serviceworker": 403, "worker": 403, "iframe": 403, "embed": 403}
    uses |= {"empty": 200, "document": 200, "image": 200}
    assert {use: browser(server, "GET", path, headers={"sec-fetch-dest": use}).status for use in uses} == uses


def test_nothing_that_a_session_reads_is_kept_for_others(server: RunningServer, browser: Browser) -> None:
    """Caches know that an Authorization header makes an answer one person's; of cookies they know nothing."""
    upload = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=kept"
    assert browser(server, "POST", upload, b"mine").status == 200
    said = {"cacheControl": "public, max-age=31536000"}
    assert browser(server, "PATCH", f"/storage/v1/b/{BUCKET}/o/kept", said).status == 200
    media = f"/download/storage/v1/b/{BUCKET}/o/kept?alt=media"
    assert browser(server, "GET", media).headers["cache-control"] == "private, no-cache, no-transform"
    for path in (f"/storage/v1/b/{BUCKET}/o/kept", f"/trainshed/v1/projects/{PROJECT}/overview", "/nothing"):
        assert browser(server, "GET", path).headers["cache-control"] == "no-store"
    with_token = {"authorization": f"Bearer {server.token}", "cookie": None}
    assert browser(server, "GET", media, headers=with_token).headers["cache-control"] == said["cacheControl"]


def test_uploads_and_deletes_work_with_a_session(server: RunningServer, browser: Browser) -> None:
    upload = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=folder%2Ffile.bin"
    assert browser(server, "POST", upload, b"\0" * 300_000).status == 200
    assert (
        browser(server, "GET", f"/download/storage/v1/b/{BUCKET}/o/folder%2Ffile.bin?alt=media").body == b"\0" * 300_000
    )
    assert browser(server, "DELETE", f"/storage/v1/b/{BUCKET}/o/folder%2Ffile.bin").status == 204


def test_a_prediction_is_asked_for_with_a_session(server: RunningServer, browser: Browser) -> None:
    path = f"/v1/projects/{PROJECT}/models/none:predict"
    answer = browser(server, "POST", path, {"instances": [1]})
    assert answer.status == 404  # it got as far as the model
    assert b"none" in answer.body
