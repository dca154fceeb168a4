"""Sends generated requests over connections of its own and says what is wrong with a response."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

from trainshed.domain.storage import xml_paths
from trainshed.gateway.protocols.wire_forms import mlflow_error, plain_error
from trainshed.testing.reliability.fuzz.generator import GeneratedRequest

RESPONSE_TIMEOUT_S = 60.0  #: a request without a response for so long hangs; the machine is shared
REFUSALS = (501, 503, 504, 507)  #: with a reason: not offered, busy, too slow, full
_PAGES = ("/console", "/tensorboard/")  #: whose errors are pages for people
_SIGN_IN = ("/token", "/oauth2/token", "/trainshed/v1/device-sign-in")  #: whose errors have the form of OAuth


@dataclass(frozen=True, slots=True, kw_only=True)
class WireResponse:
    """A whole response. `status` is 0 if the connection ended without one."""

    status: int
    media: str = ""
    body: bytes = b""


class WireClient:
    """One connection, which is opened again when the server has closed it."""

    def __init__(self, url: str, token: str) -> None:
        self._host = urlsplit(url).netloc
        self._token = token
        self._socket: socket.socket | None = None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def send(self, request: GeneratedRequest) -> WireResponse:
        """Send a request. Raises `TimeoutError` if no response comes.

        After one whose headers do not fit its body, the client sends no more: a server that waits for the rest sees
        the end.
        """
        reused = self._socket is not None and request.framed
        try:
            return self._exchange(request)
        except (ConnectionError, http.client.BadStatusLine, http.client.IncompleteRead) as exc:
            self.close()
            if reused:  # the server may close an idle connection at any moment
                return self.send(request)
            if request.framed:
                return WireResponse(status=0, body=repr(exc).encode())
            return WireResponse(status=400, media="text/plain")
        except TimeoutError:
            self.close()
            raise

    def _exchange(self, request: GeneratedRequest) -> WireResponse:
        if not request.framed:
            self.close()
        if self._socket is None:
            name, _, port = self._host.rpartition(":")
            self._socket = socket.create_connection((name, int(port)), timeout=RESPONSE_TIMEOUT_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(request.encoded(self._host, self._token))
        if not request.framed:
            self._socket.shutdown(socket.SHUT_WR)
        with http.client.HTTPResponse(self._socket, method=request.operation.method) as response:
            response.begin()
            answer = WireResponse(
                status=response.status, media=response.headers.get("content-type", ""), body=response.read()
            )
            closes = response.will_close or not request.framed
        if closes:
            self.close()
        return answer


def response_faults(request: GeneratedRequest, response: WireResponse, secrets: Sequence[str]) -> list[str]:
    """Return what is wrong with a response."""
    found = []
    if response.status == 0:
        found.append(f"the connection ended without a response: {response.body.decode()}")
    if response.status >= 500 and response.status not in REFUSALS:
        found.append(f"{response.status} {response.body[:400]!r}")
    elif response.status >= 400 and request.framed and not _is_error(request, response):
        found.append(f"{response.status} with another form than that of an error: {response.body[:400]!r}")
    elif 200 <= response.status < 300 and response.body and response.media.startswith("application/json"):
        found += _json_faults(request, response.body)
    found += [
        f"a secret is in the response: {response.body[:200]!r}" for each in secrets if each.encode() in response.body
    ]
    return found


def _json_faults(request: GeneratedRequest, body: bytes) -> list[str]:
    if "/o/" in request.target or "upload" in request.target:
        return []  # the content of an object, of whatever type it says that it has
    try:
        json.loads(body)
    except ValueError as exc:
        return [f"the body is no JSON: {exc}: {body[:200]!r}"]
    return []


def _is_error(request: GeneratedRequest, response: WireResponse) -> bool:
    if request.operation.method == "HEAD" or request.target.startswith(_PAGES):
        return True
    if request.operation.path.startswith(xml_paths.PREFIX) and _is_xml_error(response.body):
        return True  # what is refused before it has a route has the form of Google's JSON
    try:
        document: Any = json.loads(response.body)
    except ValueError:
        return False
    if not isinstance(document, dict):
        return False
    error = document.get("error")
    if isinstance(error, dict):
        return error.get("code") == response.status and bool(error.get("message")) and bool(error.get("status"))
    if request.operation.path.startswith(_SIGN_IN) or request.operation.error_form is plain_error:
        return isinstance(error, str) and bool(error)
    if request.operation.error_form is mlflow_error:
        return bool(document.get("error_code")) and isinstance(document.get("message"), str)
    return False


def _is_xml_error(body: bytes) -> bool:
    try:
        document = ElementTree.fromstring(body)  # noqa: S314 - the server under test wrote it
    except ElementTree.ParseError:
        return False
    return document.tag == "Error" and bool(document.findtext("Code")) and bool(document.findtext("Message"))
