"""A read-only registry of one image, on loopback."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class ImageRegistry:
    """Serves the image in `folder`, an OCI layout such as `podman save --format oci-dir` writes, under every name."""

    def __init__(self, folder: Path) -> None:
        index = json.loads((folder / "index.json").read_text())
        manifest = index["manifests"][0]
        self.digest: str = manifest["digest"]

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kind, _, reference = self.path.rpartition("/")
                if self.path == "/v2/":
                    self._answer(b"{}", "application/json")
                elif kind.endswith("/manifests"):
                    self._answer(_blob(folder, manifest["digest"]), manifest["mediaType"])
                elif kind.endswith("/blobs"):
                    self._answer(_blob(folder, reference), "application/octet-stream")
                else:
                    self.send_error(404)

            do_HEAD = do_GET

            def _answer(self, body: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            def log_message(self, *words: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> ImageRegistry:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _blob(folder: Path, digest: str) -> bytes:
    algorithm, _, name = digest.partition(":")
    return (folder / "blobs" / algorithm / name).read_bytes()
