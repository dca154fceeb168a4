"""HTTP requests to a container, and the mapping of its responses. Needs only the standard library and orjson."""

from __future__ import annotations

import http.client
import re
from dataclasses import dataclass

import orjson

from ..codec.json_documents import error_body
from ..codec.responses import Answer, error_answer
from ..errors import BadOutputsError, ModelRunError
from ..frames import pack_raw

JSON = "application/json"
MAX_RESPONSE_BYTES = 256 << 20  #: of a response; the gateway accepts no more
_MAX_EXCERPT_CHARACTERS = 2000  #: of a body that is not JSON, in an error
_CONTENT_TYPE = re.compile(r"[ -~]{1,1000}")

UPSTREAM_ERRORS = (OSError, http.client.HTTPException)  #: of a request without a response


@dataclass(frozen=True, slots=True)
class UpstreamResponse:
    """The container's response."""

    status: int
    content_type: str
    body: bytes


class Upstream:
    """One connection to a container on this machine, opened on demand. Not thread-safe."""

    def __init__(self, port: int, *, timeout_s: float) -> None:
        self._port = port
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None

    def post(self, path: str, body: bytes, content_type: str) -> UpstreamResponse:
        """Send a POST request. Raises one of `UPSTREAM_ERRORS` if there is no response.

        A connection that the container closed while idle is reopened. A request on a new connection is never sent
        twice.
        """
        headers = {"Content-Type": content_type} if content_type else {}
        if self._connection is not None:
            try:
                return self._send("POST", path, body, headers)
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                self.close()
        return self._send("POST", path, body, headers)

    def get(self, path: str) -> UpstreamResponse:
        """Send a GET request. Raises one of `UPSTREAM_ERRORS` if there is no response."""
        return self._send("GET", path, b"", {})

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> UpstreamResponse:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._timeout_s)
        try:
            self._connection.request(method, path, body or None, headers)
            response = self._connection.getresponse()
            data = response.read(MAX_RESPONSE_BYTES + 1)
        except UPSTREAM_ERRORS:
            self.close()
            raise
        if response.will_close or len(data) > MAX_RESPONSE_BYTES:
            self.close()
        return UpstreamResponse(response.status, response.headers.get("content-type", ""), data)


def as_answer(response: UpstreamResponse, *, raw: bool) -> Answer:
    """Map a container's response to the caller's.

    A successful response to a raw request keeps its content type and may be anything. To other requests it must be
    JSON. Errors keep their status, and their body too if it is JSON.
    """
    if len(response.body) > MAX_RESPONSE_BYTES:
        return error_answer(BadOutputsError(f"The container's answer has more than {MAX_RESPONSE_BYTES:,} bytes."))
    if 200 <= response.status < 300:
        if raw:
            content_type = (
                response.content_type if _CONTENT_TYPE.fullmatch(response.content_type) else "application/octet-stream"
            )
            return 200, pack_raw(content_type, response.body)
        if _is_json(response):
            return 200, response.body
        return error_answer(
            BadOutputsError(
                "The container's answer is not JSON. Ask it with rawPredict if it is meant to be something else."
            )
        )
    if 400 <= response.status < 600:
        if _is_json(response):
            return response.status, response.body
        excerpt = (
            response.body[: 4 * _MAX_EXCERPT_CHARACTERS].decode(errors="replace")[:_MAX_EXCERPT_CHARACTERS].strip()
        )
        suffix = f": {excerpt}" if excerpt else "."
        return response.status, error_body(
            response.status, f"Prediction failed: The container answered with status {response.status}{suffix}"
        )
    return error_answer(
        ModelRunError(f"The container answered with status {response.status}, which is neither good nor an error.")
    )


def _is_json(response: UpstreamResponse) -> bool:
    if response.content_type.partition(";")[0].strip().lower() == JSON and response.body:
        return True
    try:
        orjson.loads(response.body)
    except orjson.JSONDecodeError:
        return False
    return True
