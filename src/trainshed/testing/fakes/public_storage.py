"""A fake of the real Cloud Storage, behind a proxy as a machine's https_proxy names it."""

from __future__ import annotations

import json
import socketserver
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import unquote, urlsplit

from trainshed.certificates import Certificates

HOST = "storage.googleapis.com"


@dataclass
class PublicStorage:
    """Public objects by their path, `/BUCKET/OBJECT`. All else is refused with 403."""

    objects: dict[str, bytes]
    authority: Path  #: that its clients must trust
    proxy_url: str = ""
    seen: list[tuple[str, str, Mapping[str, str]]] = field(default_factory=list)  #: method, path, headers


@contextmanager
def serve_public_storage(objects: dict[str, bytes], certificates: Certificates) -> Iterator[PublicStorage]:
    """Serve on loopback until the end of the block, with this certificate."""
    storage = PublicStorage(objects, certificates.authority)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificates.chain, certificates.key)

    class Tunnel(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            words = self.rfile.readline().split()
            while self.rfile.readline().strip():
                pass
            if words[:2] != [b"CONNECT", f"{HOST}:443".encode()]:
                self.wfile.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
                return
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            with tls.wrap_socket(self.request, server_side=True) as connection:
                _handler(storage)(connection, self.client_address, self.server)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Tunnel) as server:
        server.daemon_threads = True
        storage.proxy_url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield storage
        finally:
            server.shutdown()
            thread.join()


def _handler(storage: PublicStorage) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            storage.seen.append((self.command, self.path, headers))
            path = unquote(urlsplit(self.path).path)
            if path.startswith("/storage/v1/b/"):
                bucket, _, name = path.removeprefix("/storage/v1/b/").partition("/o/")
                if f"/{bucket}/{name}" in storage.objects:
                    link = f"https://{HOST}/download{path}?alt=media"
                    self._send(
                        json.dumps({"name": name, "bucket": bucket, "mediaLink": link}).encode(), "application/json"
                    )
                    return
            elif path in storage.objects:
                self._send(storage.objects[path], "text/csv")
                return
            self.send_response(403)
            self.end_headers()

        do_HEAD = do_GET

        def _send(self, content: bytes, kind: str) -> None:
            start, end = 0, len(content)
            if (wanted := self.headers.get("range")) is not None:
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                start, end = int(first), int(last or len(content) - 1) + 1
            self.send_response(200 if wanted is None else 206)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(end - start))
            self.send_header("x-goog-hash", "crc32c=AAAAAA==")
            self.send_header("Set-Cookie", "tracked=yes")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content[start:end])

        def log_message(self, *args: object) -> None:
            """Print nothing."""

    return Handler
