"""A local S3: moto's server in its own process, with one bucket."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.resources import held_port

START_TIMEOUT_S = 120.0
BUCKET = "lab-data"
_AUTHORIZATION = (
    "AWS4-HMAC-SHA256 Credential=nobody/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=none"
)


@dataclass(frozen=True, slots=True)
class S3Server:
    """A server on loopback."""

    port: int

    @property
    def env(self) -> Mapping[str, str]:
        """The variables that point clients to it, and to nothing else."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "nothing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def request(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
        """Send a request as any authorized program: moto checks no signature."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, body, {"authorization": _AUTHORIZATION, **(headers or {})})
            response = connection.getresponse()
            data = response.read()
            assert response.status < 300, (response.status, data)
            return data
        finally:
            connection.close()

    def put(self, name: str, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Write an object behind the back of the server that uses the bucket."""
        self.request("PUT", f"/{BUCKET}/{name}", data, headers)

    def get(self, name: str) -> bytes:
        return self.request("GET", f"/{BUCKET}/{name}")


@contextmanager
def s3_server(port: int = 0) -> Iterator[S3Server]:
    """Yield a server that is ready, with its bucket. Stops it on exit. On a free port by default."""
    with ExitStack() as stack:
        port = port or stack.enter_context(held_port())
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        _wait_until_ready(port, process)
        server = S3Server(port)
        server.request("PUT", f"/{BUCKET}")
        yield server


def _wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    def connects() -> bool:
        assert process.poll() is None, "moto's server did not start."
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True

    eventually(connects, within_s=START_TIMEOUT_S, retry_on=OSError)
