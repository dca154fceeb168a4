"""Asking a container over HTTP, and what its answers are to who asked. Standard library and orjson."""

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
ANSWER_BYTES = 256 << 20  #: that an answer may have; the gateway takes no more
_WORDS = 2000  #: characters of a body that is no JSON, in an error
_CONTENT_TYPE = re.compile(r"[ -~]{1,1000}")

UPSTREAM_ERRORS = (OSError, http.client.HTTPException)  #: what a request that came to nothing raises


@dataclass(frozen=True, slots=True)
class UpstreamResponse:
    """What the container said."""

    status: int
    content_type: str
    body: bytes


class Upstream:
    """One connection to a container on this machine, opened when it is needed. For one thread."""

    def __init__(self, port: int, *, timeout_s: float) -> None:
        self._port = port
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None

    def post(self, path: str, body: bytes, content_type: str) -> UpstreamResponse:
        """One of `UPSTREAM_ERRORS` if there is no answer. A connection that the container closed while it was idle is
        opened again; a request that was begun on a new one is never sent twice."""
        headers = {"Content-Type": content_type} if content_type else {}
        if self._connection is not None:
            try:
                return self._ask("POST", path, body, headers)
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                self.close()
        return self._ask("POST", path, body, headers)

    def get(self, path: str) -> UpstreamResponse:
        """One of `UPSTREAM_ERRORS` if there is no answer."""
        return self._ask("GET", path, b"", {})

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> UpstreamResponse:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._timeout_s)
        try:
            self._connection.request(method, path, body or None, headers)
            response = self._connection.getresponse()
            given = response.read(ANSWER_BYTES + 1)
        except UPSTREAM_ERRORS:
            self.close()
            raise
        if response.will_close or len(given) > ANSWER_BYTES:
            self.close()
        return UpstreamResponse(response.status, response.headers.get("content-type", ""), given)


def as_answer(reply: UpstreamResponse, *, raw: bool) -> Answer:
    """What a caller gets. Good answers to a raw request are given back with their content type, whatever they are;
    others must be JSON. Errors keep their status, and their body too if it is JSON."""
    if len(reply.body) > ANSWER_BYTES:
        return error_answer(BadOutputsError(f"The container's answer has more than {ANSWER_BYTES:,} bytes."))
    if 200 <= reply.status < 300:
        if raw:
            kind = reply.content_type if _CONTENT_TYPE.fullmatch(reply.content_type) else "application/octet-stream"
            return 200, pack_raw(kind, reply.body)
        if _is_json(reply):
            return 200, reply.body
        return error_answer(
            BadOutputsError(
                "The container's answer is not JSON. Ask it with rawPredict if it is meant to be something else."
            )
        )
    if 400 <= reply.status < 600:
        if _is_json(reply):
            return reply.status, reply.body
        words = reply.body[: 4 * _WORDS].decode(errors="replace")[:_WORDS].strip()
        said = f": {words}" if words else "."
        return reply.status, error_body(
            reply.status, f"Prediction failed: The container answered with status {reply.status}{said}"
        )
    return error_answer(
        ModelRunError(f"The container answered with status {reply.status}, which is neither good nor an error.")
    )


def _is_json(reply: UpstreamResponse) -> bool:
    if reply.content_type.partition(";")[0].strip().lower() == JSON and reply.body:
        return True
    try:
        orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        return False
    return True
