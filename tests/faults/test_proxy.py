"""The proxy for trainers against everything that is not a well-meaning client, and towards everyone else's servers."""

from __future__ import annotations

import asyncio
import base64
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from trainshed.certificates import ensure_certificates
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import Caller, RunningServer

PROJECT = "faults-proxy"
BUCKET = "faults-proxy-bucket"
WAIT_S = 90


def proxy_port(server: RunningServer) -> int:
    return int((server.home / "proxy-port").read_text())


def connected(server: RunningServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy_port(server)), timeout=WAIT_S)


def everything(connection: socket.socket) -> bytes:
    """All that comes until the other side ends the connection, which it must."""
    parts = []
    with suppress(ConnectionResetError):  # an end too: it had not read all that was sent
        while data := connection.recv(65_536):
            parts.append(data)
    return b"".join(parts)


def tunnel(server: RunningServer, place: str) -> socket.socket:
    connection = connected(server)
    connection.sendall(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
    assert connection.recv(1000) == b"HTTP/1.1 200 Connection established\r\n\r\n"
    return connection


def google(server: RunningServer, name: str = "www.googleapis.com") -> ssl.SSLSocket:
    """A TLS connection to one of Google's names, which turns out to be this server."""
    context = ssl.create_default_context(cafile=server.authority)
    return context.wrap_socket(tunnel(server, f"{name}:443"), server_hostname=name)


def door(server: RunningServer, name: str = "www.googleapis.com") -> ssl.SSLSocket:
    """The same on the server's TLS port, as the relays on other machines lead to it."""
    context = ssl.create_default_context(cafile=server.authority)
    connection = socket.create_connection(("127.0.0.1", urlsplit(server.tls_url).port or 0), timeout=WAIT_S)
    return context.wrap_socket(connection, server_hostname=name)


Way = Callable[..., ssl.SSLSocket]
WAYS: dict[str, Way] = {"proxy": google, "TLS port": door}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    """Both ways by which Google's names lead here."""
    return WAYS[request.param]


@pytest.fixture(scope="module")
def bucket(server: RunningServer) -> str:
    server.call("POST", f"/storage/v1/b?project={PROJECT}", {"name": BUCKET})
    server.call("POST", f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=dir%2Fa.txt", b"0123456789")
    return BUCKET


def request(line: str, *headers: str, host: str = "www.googleapis.com") -> bytes:
    return "\r\n".join([f"{line} HTTP/1.1", f"Host: {host}", *headers, "", ""]).encode()


def test_a_path_of_bucket_and_object_reads_as_google_does(server: RunningServer, bucket: str, way: Way) -> None:
    name = "storage.googleapis.com"
    bearer = f"Authorization: Bearer {server.token}"
    for path, wanted, status in (
        ("dir%2Fa.txt", "bytes=0-67108863", "206"),
        ("dir/a.txt", "bytes=8-20", "206"),
        ("dir%2Fa.txt", "bytes=10-20", "416"),
        ("absent", "bytes=0-1", "404"),
    ):
        with way(server, name) as connection:
            text = request(f"GET /{bucket}/{path}", bearer, f"Range: {wanted}", "Connection: close", host=name)
            connection.sendall(text)
            head, _, body = everything(connection).partition(b"\r\n\r\n")
        assert head.split(b" ")[1].decode() == status
        assert status != "206" or b"0123456789".endswith(body)


def test_a_resumable_upload_comes_back_under_the_name_it_was_begun_at(
    server: RunningServer, bucket: str, way: Way
) -> None:
    bearer = f"Authorization: Bearer {server.token}"
    begin = f"POST /upload/storage/v1/b/{bucket}/o?uploadType=resumable&name=up.bin"
    with way(server) as connection:
        connection.sendall(
            request(begin, bearer, "Content-Length: 0", "Transfer-Encoding: identity", "Connection: close")
        )
        head = everything(connection).partition(b"\r\n\r\n")[0].decode()
    [location] = [line.partition(": ")[2] for line in head.split("\r\n") if line.startswith("Location: ")]
    assert location.startswith(f"https://www.googleapis.com/upload/storage/v1/b/{bucket}/o?")
    put = f"PUT {location.removeprefix('https://www.googleapis.com')}"
    framing = ("Content-Range: bytes 0-8/9", "Transfer-Encoding: chunked", "Content-Length: 9", "Expect: 100-continue")
    with way(server) as connection:
        connection.sendall(request(put, bearer, *framing, "Connection: close"))
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"4\r\nabcd\r\n5\r\nefghi\r\n0\r\n\r\n")
        assert everything(connection).startswith(b"HTTP/1.1 200 ")
    assert (server.home / "buckets" / bucket / "up.bin").read_bytes() == b"abcdefghi"


SMUGGLED = request("DELETE /storage/v1/b/{bucket}/o/dir%2Fa.txt", "Authorization: Bearer {token}")

#: each carries a second request where one reader would see a body, and another one a request: the whole is refused
SMUGGLING = {
    "two lengths": (("Content-Length: 0", "Content-Length: {size}"), b""),
    "lengths in a list": (("Content-Length: 0, {size}",), b""),
    "identity after chunked": (("Transfer-Encoding: chunked", "Transfer-Encoding: identity"), b"0\r\n\r\n"),
    "a hidden encoding": (("Content-Length: {size}", "Transfer-Encoding : chunked"), b""),
    "an encoding on a second line": (("Content-Length: {size}", "X: 1\r\n Transfer-Encoding: chunked"), b""),
    "an encoding behind a line feed": (("Content-Length: {size}", "X: 1\nTransfer-Encoding: chunked"), b""),
    "an encoding behind a tab": (("Content-Length: {size}", "Transfer-Encoding:\x0bchunked"), b""),
    "a chunk with an extension": (("Transfer-Encoding: chunked",), b"0;\r\n\r\n"),
    "a chunk that ends by line feeds": (("Transfer-Encoding: chunked",), b"0\n\n"),
}


@pytest.mark.fault("F61")
@pytest.mark.parametrize("name", SMUGGLING)
def test_no_second_request_comes_in_through_the_body_of_the_first(
    server: RunningServer, bucket: str, name: str, way: Way
) -> None:
    headers, lead = SMUGGLING[name]
    inner = SMUGGLED.replace(b"{bucket}", bucket.encode()).replace(b"{token}", server.token.encode())
    texts = [header.format(size=len(inner)) for header in headers]
    with way(server) as connection:
        connection.sendall(request("GET /storage/v1/b", *texts) + lead + inner)
        assert _statuses(everything(connection)) == ["400"]
    assert (server.home / "buckets" / bucket / "dir" / "a.txt").exists()


def test_with_two_framings_the_chunks_count_for_both_sides(server: RunningServer, bucket: str, way: Way) -> None:
    first = request("GET /storage/v1/b?project=x", "Content-Length: 500", "Transfer-Encoding: chunked")
    second = request(f"GET /storage/v1/b/{bucket}", f"Authorization: Bearer {server.token}", "Connection: close")
    with way(server) as connection:
        connection.sendall(first + b"0\r\n\r\n" + second)
        assert _statuses(everything(connection)) == ["401", "200"]


def _statuses(answers: bytes) -> list[str]:
    return [found.decode() for found in re.findall(rb"HTTP/1\.1 (\d+) ", answers)]


GARBAGE = {
    "nothing": b"\r\n\r\n",
    "bytes": bytes(range(128, 256)) + b"\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c403") + b"\x00" * 200 + b"\r\n\r\n",
    "a plain request": b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
    "a request for the server": b"GET /trainshed/v1/server HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no port": b"CONNECT example.com HTTP/1.1\r\n\r\n",
    "port 0": b"CONNECT example.com:0 HTTP/1.1\r\n\r\n",
    "a port too large": b"CONNECT example.com:99999 HTTP/1.1\r\n\r\n",
    "a name with a user": b"CONNECT me@example.com:443 HTTP/1.1\r\n\r\n",
    "a name with a slash": b"CONNECT example.com/:443 HTTP/1.1\r\n\r\n",
    "an empty name": b"CONNECT :443 HTTP/1.1\r\n\r\n",
    "too many headers": b"CONNECT a:1 HTTP/1.1\r\n" + b"X: 1\r\n" * 101 + b"\r\n",
    "a long head": b"CONNECT a:1 HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
}


TOO_LARGE = ("too many headers", "a long head")


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_refused_with_a_sentence(server: RunningServer, name: str) -> None:
    with connected(server) as connection:
        connection.sendall(GARBAGE[name])
        status = b"431 Request Header Fields Too Large" if name in TOO_LARGE else b"400 Bad Request"
        assert everything(connection).startswith(b"HTTP/1.1 " + status + b"\r\n")


def test_clients_that_break_off_leave_nothing_behind(server: RunningServer) -> None:
    before = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
    for _ in range(20):
        connected(server).close()
        tunnel(server, "storage.googleapis.com:443").close()
        half = tunnel(server, "storage.googleapis.com:443")
        half.sendall(b"\x16\x03\x01")
        half.close()
        with tunnel(server, "storage.googleapis.com:443") as garbage:
            garbage.sendall(b"GET / HTTP/1.1\r\n\r\n")  # no TLS
            everything(garbage)
        for way in WAYS.values():
            way(server).close()
            begun = way(server)
            begun.sendall(b"PUT / HTTP/1.1\r\nHost: www.googleapis.com\r\nContent-Length: 10\r\n\r\nabc")
            begun.close()
    assert Caller(server.url)("GET", "/healthz")[0] == 200
    eventually(lambda: len(list(Path(f"/proc/{server.pid}/fd").iterdir())), lambda now: now <= before + 5)


# -- Google's names on the TLS port


def own_door(server: RunningServer) -> ssl.SSLSocket:
    return door(server, "localhost")


def test_the_ports_own_names_are_as_they_were(server: RunningServer) -> None:
    with own_door(server) as connection:
        connection.sendall(request("GET /healthz", "Connection: close", host="localhost"))
        answer = everything(connection)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"localhost" in connection.getpeercert(binary_form=True)  # type: ignore[operator]
    with door(server, "storage.googleapis.com") as connection:
        assert ("DNS", "*.googleapis.com") in connection.getpeercert()["subjectAltName"]  # type: ignore[index]


@pytest.mark.parametrize("host", ["storage.googleapis.com", "localhost", "127.0.0.1", "evil.example"])
def test_a_connection_for_one_name_carries_requests_for_no_other(server: RunningServer, host: str, way: Way) -> None:
    with way(server) as connection:
        connection.sendall(request("GET /healthz", host=host))
        answer = everything(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"to which the connection was asked for" in answer


@pytest.mark.parametrize("name", ["www.googleapis.com", "storage.googleapis.com", "localhost"])
def test_the_tls_port_leads_nowhere_else(server: RunningServer, name: str, echo: tuple[int, Path]) -> None:
    place = f"127.0.0.1:{echo[0]}"
    for text in (
        f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n",
        f"CONNECT {place} HTTP/1.1\r\nHost: {name}\r\nAuthorization: Bearer {server.token}\r\n\r\n",
        f"GET https://{place}/v1/projects/x/jobs HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n",
    ):
        with door(server, name) as connection:
            connection.sendall(text.encode())
            connection.settimeout(WAIT_S)
            status = connection.recv(1000).split(b" ")[1:2]
        assert status[0][:1] == b"4", (text, status)


def test_a_token_is_asked_for_at_either_end(server: RunningServer, bucket: str, way: Way) -> None:
    for bearer, wanted in (("x", ["401"]), (server.token, ["200"])):
        with way(server) as connection:
            text = request(f"GET /storage/v1/b/{bucket}", f"Authorization: Bearer {bearer}", "Connection: close")
            connection.sendall(text)
            assert _statuses(everything(connection)) == wanted


def test_an_open_connection_does_not_hold_up_the_end(own_server: RunningServer) -> None:
    with door(own_server) as idle:
        idle.sendall(request("GET /storage/v1/b"))
        assert idle.recv(1000).startswith(b"HTTP/1.1 401 ")
        assert own_server.stop() == 0
    assert "timeout graceful shutdown exceeded" not in own_server.log.read_text()  # after 10 s every connection is cut


# -- everyone else


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server on loopback that gives each connection to a thread of its own."""
    threads: list[threading.Thread] = []

    def serve(connection: socket.socket) -> None:
        with connection:
            answer(connection)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=serve, args=(connection,), daemon=True))
            threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        acceptor = threading.Thread(target=accept, daemon=True)
        acceptor.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        for thread in (acceptor, *threads):
            thread.join(WAIT_S)


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """A TLS server that is not ours: its port and its authority. It says what it hears, until the end of that."""
    made = ensure_certificates(tmp_path_factory.mktemp("echo") / "certificates", hosts=("localhost",))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.chain, made.key)

    def say_again(raw: socket.socket) -> None:
        with suppress(OSError), context.wrap_socket(raw, server_side=True) as connection:
            while data := connection.recv(65_536):
                connection.sendall(data)

    with listening(say_again) as port:
        yield port, made.authority


def echoed(server: RunningServer, port: int, authority: Path, size: int) -> None:
    context = ssl.create_default_context(cafile=authority)
    data = bytes(range(256)) * (size // 256)

    async def there_and_back() -> bytes:
        """Both at once, and in one thread: no two may use a TLS connection at the same time."""
        connection = tunnel(server, f"localhost:{port}")
        connection.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=connection, ssl=context, server_hostname="localhost")
        writer.write(data)
        try:
            async with asyncio.timeout(WAIT_S):
                return await reader.readexactly(size)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    assert asyncio.run(there_and_back()) == data


def test_other_hosts_are_reached_as_they_are(server: RunningServer, echo: tuple[int, Path]) -> None:
    echoed(server, *echo, size=4 << 20)


def test_a_host_that_is_not_there_is_said_to_be_so(server: RunningServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for place in (f"127.0.0.1:{port}", "no-such-host.invalid:443"):
        with connected(server) as connection:
            connection.sendall(f"CONNECT {place} HTTP/1.1\r\n\r\n".encode())
            answer = everything(connection)
        assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
        assert b"can't be reached" in answer


def test_google_on_another_port_is_not_us(server: RunningServer, echo: tuple[int, Path]) -> None:
    """Only port 443 is answered here; a name of ours elsewhere is someone else's, and has to be looked up."""
    with connected(server) as connection:
        connection.sendall(b"CONNECT storage.googleapis.com:1 HTTP/1.1\r\n\r\n")
        assert b" 502 " in everything(connection)[:20]


def test_the_machines_own_proxy_is_used(tmp_path: Path, echo: tuple[int, Path]) -> None:
    heard: list[bytes] = []

    def gate(near: socket.socket) -> None:
        heard.append(near.recv(65_536))
        with socket.create_connection(("127.0.0.1", echo[0])) as far:
            near.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            back = threading.Thread(target=_copy, args=(far, near), daemon=True)
            back.start()
            _copy(near, far)
            back.join(WAIT_S)

    with listening(gate) as port:
        env = {"https_proxy": f"http://me:secret@127.0.0.1:{port}", "no_proxy": "elsewhere"}
        server = RunningServer(tmp_path / "home", environment=env).start()
        try:
            echoed(server, *echo, size=1 << 20)
            with google(server) as connection:  # our own names need no way out
                connection.sendall(request("GET /storage/v1/b", "Connection: close"))
                assert b"401" in everything(connection)[:20]
        finally:
            server.kill()
    pair = base64.b64encode(b"me:secret").decode()
    assert len(heard) == 1
    assert heard[0].startswith(f"CONNECT localhost:{echo[0]} HTTP/1.1\r\n".encode())
    assert f"Proxy-Authorization: Basic {pair}\r\n".encode() in heard[0]
    assert "secret" not in server.log.read_text()


def _copy(source: socket.socket, to: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)


def test_a_taken_port_moves_the_proxy_and_is_said(own_server: RunningServer) -> None:
    port = proxy_port(own_server)
    assert own_server.stop() == 0
    with socket.create_server(("127.0.0.1", port), reuse_port=False):
        own_server.start()
        assert proxy_port(own_server) != port
    assert "proxy.moved" in own_server.log.read_text()
    with google(own_server) as connection:
        connection.sendall(request("GET /storage/v1/b", "Connection: close"))
        assert everything(connection).startswith(b"HTTP/1.1 401 ")
