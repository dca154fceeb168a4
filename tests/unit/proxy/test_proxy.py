"""Requests rewritten with one framing, names mapped to paths, and what a replica's environment is made of."""

from __future__ import annotations

import json
from pathlib import Path

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.certificates import ensure_certificates, write_bundle
from trainshed.config import Settings
from trainshed.control.jobs.credentials import LocalCredentials, environment
from trainshed.engines.base import AttemptSpec, Replica
from trainshed.errors import CannotProceedError, InvalidArgumentError
from trainshed.proxy.client_config import ServerEndpoints, config_files
from trainshed.proxy.connect_proxy import machine_egress
from trainshed.proxy.google_hosts import rewrite_path, served_name
from trainshed.proxy.interception import MachineEnvironment
from trainshed.proxy.request_normalizer import RequestNormalizer

WWW = "www.googleapis.com"
HOST = b"Host: www.googleapis.com\r\n"


class Parsed:
    """The requests that a strict parser finds in a stream."""

    def __init__(self, data: bytes) -> None:
        self.requests: list[tuple[bytes, bytes, dict[bytes, bytes], bytes]] = []
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._url, self._body, self._headers = b"", b"", dict[bytes, bytes]()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        assert name not in self._headers
        self._headers[name] = value

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self.requests.append((self._parser.get_method(), self._url, self._headers, self._body))


def test_the_requests_of_tensorflow_that_strict_servers_refuse() -> None:
    begin = (
        b"POST /upload/storage/v1/b/mine/o?uploadType=resumable&name=x HTTP/1.1\r\n" + HOST + b"Accept: */*\r\n"
        b"Authorization: Bearer t\r\nContent-Length: 0\r\nTransfer-Encoding: identity\r\nExpect: 100-continue\r\n\r\n"
    )
    put = (
        b"PUT /upload/storage/v1/b/mine/o?upload_id=1 HTTP/1.1\r\n" + HOST + b"Content-Range: bytes 0-8/9\r\n"
        b"Transfer-Encoding: chunked\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
        b"4\r\nabcd\r\n5\r\nefghi\r\n0\r\n\r\n"
    )
    first, second = Parsed(RequestNormalizer(WWW).feed(begin + put)).requests
    assert first[:2] == (b"POST", b"/upload/storage/v1/b/mine/o?uploadType=resumable&name=x")
    assert first[2] == {
        b"host": b"www.googleapis.com",
        b"accept": b"*/*",
        b"authorization": b"Bearer t",
        b"expect": b"100-continue",
        b"content-length": b"0",
    }
    assert second[3] == b"abcdefghi"
    assert second[2][b"transfer-encoding"] == b"chunked"
    assert b"content-length" not in second[2]


REQUESTS = st.lists(
    st.tuples(st.sampled_from(["none", "length", "chunked", "both"]), st.lists(st.binary(min_size=1, max_size=40))),
    min_size=1,
    max_size=4,
)


def written(kind: str, pieces: list[bytes]) -> tuple[bytes, bytes]:
    """A request and the body it has."""
    body = b"".join(pieces)
    head = b"PUT /storage/v1/b HTTP/1.1\r\n" + HOST
    chunks = b"".join(b"%X\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\nX-Trailer: 1\r\n\r\n"
    match kind:
        case "none":
            return head + b"\r\n", b""
        case "length":
            return head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body), body
        case "chunked":
            return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks, body
        case _:
            return head + b"Content-Length: 3\r\nTransfer-Encoding: Chunked\r\n\r\n" + chunks, body


@given(REQUESTS, st.lists(st.integers(1, 60), min_size=1))
def test_however_the_stream_is_cut_a_strict_parser_finds_the_same_requests(
    requests: list[tuple[str, list[bytes]]], cuts: list[int]
) -> None:
    texts = [written(kind, pieces) for kind, pieces in requests]
    stream = b"".join(text for text, _ in texts)
    cleaner, out, at, turn = RequestNormalizer(WWW), b"", 0, 0
    while at < len(stream):
        step = cuts[turn % len(cuts)]
        out += cleaner.feed(stream[at : at + step])
        at, turn = at + step, turn + 1
    found = Parsed(out).requests
    assert [body for *_, body in found] == [body for _, body in texts]
    assert all(len({b"content-length", b"transfer-encoding"} & set(headers)) <= 1 for _, _, headers, _ in found)


GET = b"GET / HTTP/1.1\r\n" + HOST
PUT = b"PUT /storage/v1/b HTTP/1.1\r\n" + HOST

#: streams whose end of a request two readers may see in two places, and plain garbage
UNCLEAR = {
    "two lengths": PUT + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "a list of lengths": PUT + b"Content-Length: 3, 4\r\n\r\nabc",
    "a signed length": PUT + b"Content-Length: +3\r\n\r\nabc",
    "a negative length": PUT + b"Content-Length: -1\r\n\r\n",
    "a length in hex": PUT + b"Content-Length: 0x3\r\n\r\nabc",
    "an empty length": PUT + b"Content-Length:\r\n\r\n",
    "a huge length": PUT + b"Content-Length: 99999999999999999999\r\n\r\n",
    "two encodings": PUT + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "a list of encodings": PUT + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": PUT + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "an unknown encoding": PUT + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "an encoding with a vertical tab": PUT + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": PUT + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": PUT.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a folded header": GET + b"X: 1\r\n Transfer-Encoding: chunked\r\n\r\n",
    "a bare line feed in a header": GET + b"X: 1\nTransfer-Encoding: chunked\r\n\r\n",
    "a bare carriage return": GET + b"X: 1\rContent-Length: 5\r\n\r\n",
    "a NUL": GET + b"X: \x00\r\n\r\n",
    "a header without a name": GET + b": 1\r\n\r\n",
    "a header without a colon": GET + b"X\r\n\r\n",
    "a chunk without a size": PUT + b"Transfer-Encoding: chunked\r\n\r\n\r\nabc\r\n0\r\n\r\n",
    "a signed chunk": PUT + b"Transfer-Encoding: chunked\r\n\r\n-1\r\nabc\r\n0\r\n\r\n",
    "a chunk with 0x": PUT + b"Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
    "a chunk with an extension": PUT + b"Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\n\r\n",
    "a chunk that ends in a line feed": PUT + b"Transfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\n" + b"x" * 200,
    "a chunk longer than it says": PUT + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
    "a huge chunk": PUT + b"Transfer-Encoding: chunked\r\n\r\n" + b"F" * 16 + b"\r\n",
    "a bad trailer": PUT + b"Transfer-Encoding: chunked\r\n\r\n0\r\nGET / HTTP/1.1\r\n\r\n",
    "endless trailers": PUT + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: 1\r\n" * 101,
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": GET + HOST + b"\r\n",
    "another host": b"GET / HTTP/1.1\r\nHost: storage.googleapis.com\r\n\r\n",
    "a host of someone else": b"GET / HTTP/1.1\r\nHost: www.googleapis.com.evil.example\r\n\r\n",
    "an absolute address": b"GET http://127.0.0.1/trainshed/v1 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a space in the path": b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n",
    "a path of other bytes": b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n",
    "another version": b"GET / HTTP/2.0\r\n" + HOST + b"\r\n",
    "no version": b"GET /\r\n" + HOST + b"\r\n",
    "small letters in the method": b"get / HTTP/1.1\r\n" + HOST + b"\r\n",
    "an empty line first": b"\r\n\r\n" + GET + b"\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "too many headers": GET + b"X: 1\r\n" * 101 + b"\r\n",
    "an endless head": GET + b"X: " + b"x" * 70_000,
}


@pytest.mark.parametrize("name", UNCLEAR)
def test_what_is_unclear_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError):
        RequestNormalizer(WWW).feed(UNCLEAR[name])


def test_what_concerns_the_connection_alone_is_not_passed_on() -> None:
    hop = b"Connection: close, X\r\nUpgrade: websocket\r\nProxy-Authorization: Basic x\r\nTE: trailers\r\n"
    [(_, _, headers, _)] = Parsed(RequestNormalizer(WWW).feed(GET + hop + b"\r\n")).requests
    assert headers == {b"host": b"www.googleapis.com", b"connection": b"close"}


@pytest.mark.parametrize(
    ("name", "asked", "wanted"),
    [
        (WWW, "/storage/v1/b/x/o?prefix=a", "/storage/v1/b/x/o?prefix=a"),
        (WWW, "/oauth2/v3/token", "/token"),
        (WWW, "/oauth2/v4/token", "/token"),
        ("oauth2.googleapis.com", "/token", "/token"),
        ("storage.googleapis.com", "/b1/a%2Fb.txt", "/xml/v1/b/b1/o/a%2Fb.txt"),
        ("storage.googleapis.com", "/b1/a/b.txt?generation=1", "/xml/v1/b/b1/o/a%2Fb.txt?generation=1"),
        ("storage.googleapis.com", "/b1/storage/v1/x", "/xml/v1/b/b1/o/storage%2Fv1%2Fx"),
        ("storage.googleapis.com", "/storage/v1/b/x", "/storage/v1/b/x"),
        ("storage.googleapis.com", "/upload/storage/v1/b/x/o", "/upload/storage/v1/b/x/o"),
        ("storage.googleapis.com", "/batch/storage/v1", "/batch/storage/v1"),
        ("storage.googleapis.com", "/b1?prefix=a", "/xml/v1/b/b1?prefix=a"),
        ("storage.googleapis.com", "/b1/", "/xml/v1/b/b1"),
        ("storage.googleapis.com", "/", "/"),
        ("storage.googleapis.com", "/$discovery/rest?version=v1", "/$discovery/rest?version=v1"),
        ("storage.googleapis.com", "/cloud-ml/discovery/ml_v1_discovery.json", "/discovery/v1/apis/ml/v1/rest"),
        (
            "storage.googleapis.com",
            "/caip-optimizer-public/api/ml_public_google_rest_v1.json",
            "/discovery/v1/apis/ml/v1/rest",
        ),
        ("ml.googleapis.com", "/v1/projects/p/jobs", "/v1/projects/p/jobs"),
    ],
)
def test_where_a_path_leads(name: str, asked: str, wanted: str) -> None:
    assert rewrite_path(name, asked) == wanted


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("Storage.GoogleAPIs.com", "storage.googleapis.com"),
        ("us-central1-ml.googleapis.com", "ml.googleapis.com"),
        ("pypi.org", None),
        ("googleapis.com", None),
        ("compute.googleapis.com", None),
        ("storage.googleapis.com.evil.example", None),
        ("my-bucket_1.storage.googleapis.com", "storage.googleapis.com"),
        ("my.bucket.storage.googleapis.com", None),
        ("evil.example.storage.googleapis.com.example", None),
        ("a.us-central1-ml.googleapis.com", None),
    ],
)
def test_which_hosts_are_ours(host: str, name: str | None) -> None:
    assert served_name(host) == name


@pytest.mark.parametrize(
    ("host", "through"),
    [("pypi.org", True), ("a.corp", False), ("corp", False), ("acorp", True), ("10.0.0.1", False)],
)
def test_the_machines_own_proxy_and_its_exceptions(host: str, through: bool) -> None:
    egress = machine_egress("http://me:p%40ss@gate.corp:3128", ".corp, 10.0.0.1")
    assert egress.proxy_for(host) == (("gate.corp", 3128) if through else None)
    assert machine_egress("", "").proxy_for(host) is None
    assert machine_egress("gate:1", "*").proxy_for(host) is None


@pytest.mark.parametrize("proxy", ["https://gate:1", "http://:1", "socks5://gate:1", "http://gate:x"])
def test_a_proxy_that_can_not_be_used_stops_the_server(proxy: str) -> None:
    with pytest.raises(CannotProceedError, match="GS_IN_TRAINERS"):
        machine_egress(proxy, "")


def test_real_credentials_make_gs_the_real_one(tmp_path: Path) -> None:
    nothing = MachineEnvironment.read({"HOME": str(tmp_path)})
    variable = MachineEnvironment.read({"HOME": str(tmp_path), "GOOGLE_APPLICATION_CREDENTIALS": "/key.json"})
    (tmp_path / ".config" / "gcloud").mkdir(parents=True)
    (tmp_path / ".config" / "gcloud" / "application_default_credentials.json").touch()
    login = MachineEnvironment.read({"HOME": str(tmp_path)})
    answers = {
        setting: [
            Settings(gs_in_trainers=setting).serves_gs(has_google_credentials=machine.has_google_credentials)
            for machine in (nothing, variable, login)
        ]
        for setting in ("auto", "trainshed", "google")
    }
    assert answers == {"auto": [True, False, False], "trainshed": [True] * 3, "google": [False] * 3}
    with pytest.raises(CannotProceedError, match="auto, trainshed or google"):
        Settings(gs_in_trainers="real")


def test_a_bundle_holds_what_the_machine_trusts_and_our_authority(tmp_path: Path) -> None:
    made = ensure_certificates(tmp_path / "certificates", hosts=("*.googleapis.com",), leaf="google")
    own = tmp_path / "corporate.pem"
    own.write_text("CORPORATE\n")
    both = write_bundle(made, (own, tmp_path / "absent.pem")).read_text()
    assert both == f"CORPORATE\n\n{made.authority.read_text()}"
    system = write_bundle(made, ())
    assert system.read_text().endswith(made.authority.read_text())
    assert system.read_text().count("BEGIN CERTIFICATE") > 1
    assert ensure_certificates(tmp_path / "certificates", hosts=("localhost",)).authority == made.authority


REACH = ServerEndpoints(
    url="http://127.0.0.1:1",
    tls_url="https://127.0.0.1:2",
    proxy_url="http://127.0.0.1:3",
    bundle=Path("/state/bundle.pem"),
    bypass="corp.example,*,.googleapis.com,com",
)


def launch(folder: Path) -> AttemptSpec:
    config = {"cluster": {"master": ["node-1:2222"], "worker": ["node-2:2222", "node-1:2223"]}}
    replica = Replica(
        name="master-replica-0", type="master", index=0, primary=True, env={"TF_CONFIG": json.dumps(config)}
    )
    return AttemptSpec(
        project="p-one",
        job="j",
        attempt=1,
        folder=folder,
        python=Path("/python"),
        module="m",
        args=(),
        packages=(),
        site=Path("/site"),
        replicas=(replica,),
        env={"MINE": "1", "https_proxy": "http://chosen:1"},
        grace_s=1,
        max_running_s=60,
        log_limit_bytes=1,
    )


def test_the_cluster_is_never_proxied_and_google_always() -> None:
    made = environment(REACH, launch(Path("/attempt")))
    assert made["no_proxy"] == made["NO_PROXY"] == "localhost,127.0.0.1,::1,node-1,node-2,corp.example"


def test_the_token_is_in_files_of_this_user_alone(tmp_path: Path) -> None:
    issued: list[tuple[str, str, float]] = []

    def issue(project: str, job: str, *, ttl_s: float) -> str:
        issued.append((project, job, ttl_s))
        return "ts_secret"

    given = launch(tmp_path / "attempt")
    made = LocalCredentials(REACH, issue=issue).inject(given)
    assert issued == [("p-one", "j", 86_460)]
    assert "ts_secret" not in repr(made)
    assert (made.env["MINE"], made.env["https_proxy"]) == ("1", "http://chosen:1")
    folder = tmp_path / "attempt" / "credentials"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == dict.fromkeys(
        config_files(REACH, project="p-one", folder=folder, token=""), 0o600
    )
    assert json.loads(Path(made.env["GOOGLE_APPLICATION_CREDENTIALS"]).read_text())["refresh_token"] == "ts_secret"
