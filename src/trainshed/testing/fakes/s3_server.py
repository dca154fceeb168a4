"""An S3 of one's own: moto's server, in a process of its own, with one bucket."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from trainshed.testing.processes.resources import held_port

START_S = 120.0
BUCKET = "lab-data"
_SIGNED = "AWS4-HMAC-SHA256 Credential=nobody/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=none"


@dataclass(frozen=True, slots=True)
class S3Server:
    """Where it listens on loopback."""

    port: int

    @property
    def env(self) -> Mapping[str, str]:
        """What leads clients to it, and to nothing else."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "nothing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def request(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
        """As any program would that has the right to: moto looks at no signature."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, body, {"authorization": _SIGNED, **(headers or {})})
            answer = connection.getresponse()
            data = answer.read()
            assert answer.status < 300, (answer.status, data)
            return data
        finally:
            connection.close()

    def put(self, name: str, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Write an object past the server that keeps a bucket there."""
        self.request("PUT", f"/{BUCKET}/{name}", data, headers)

    def get(self, name: str) -> bytes:
        return self.request("GET", f"/{BUCKET}/{name}")


@contextmanager
def s3_server(port: int = 0) -> Iterator[S3Server]:
    """One that is ready, with its bucket, and ended on the way out. On a free port, unless one is named."""
    with ExitStack() as stack:
        port = port or stack.enter_context(held_port())
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        _await(port, process)
        server = S3Server(port)
        server.request("PUT", f"/{BUCKET}")
        yield server


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError("moto's server did not start.")
