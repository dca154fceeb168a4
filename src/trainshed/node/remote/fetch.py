"""Downloads the packages of a job, or the files of a version, from the server to a node.

A downloaded file is stored by digest, and all replicas on the node share it. It appears complete and verified, or not
at all. Only the server gets the token: redirects are not followed, and no proxy is used.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import ssl
import time

from ..files import atomic_file
from .runtime_build import NodeSetupError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable
    from urllib.parse import SplitResult

STALL_TIMEOUT_S = 300.0  #: without a single new byte
_SOCKET_TIMEOUT_S = 30.0  #: of one connection
_RETRY_INTERVALS_S = (0.5, 1.0, 2.0, 5.0, 10.0)
_CHUNK_BYTES = 1 << 16
_RETRYABLE = (429, 500, 502, 503, 504)  #: any other error status is final


class FetchError(NodeSetupError):
    """A package or file can't be downloaded. The message is for the user."""


def fetch_all(
    packages: list[dict[str, Any]], bundle: dict[str, Any], folder: str, log: Callable[[str], None]
) -> list[dict[str, str]]:
    """Download all packages of an attempt below `folder`. Returns them with a `path`, as `package_install` expects."""
    context = ssl.create_default_context(cadata=bundle["ca"])
    result = []
    for package in packages:
        path = _package_path(folder, package)
        if not _is_complete(path, package):
            log("Downloading the package: %s" % package["uri"])
            _Download(package, bundle["token"], context).to(path)
        result.append({"uri": package["uri"], "sha256": package["sha256"], "path": path})
    return result


def fetch_files(files: list[dict[str, Any]], bundle: dict[str, Any], folder: str) -> None:
    """Download the files of a version below `folder`, under their own names."""
    context = ssl.create_default_context(cadata=bundle["ca"])
    for file in files:
        parts = file["name"].split("/")
        if not all(parts) or ".." in parts or "." in parts:
            raise FetchError("The version has a file %r, which can't be one's name." % file["name"])
        _Download(file, bundle["token"], context).to(os.path.join(folder, *parts))


def _package_path(folder: str, package: dict[str, Any]) -> str:
    """Path of a package: its own name, which shows its format, in a folder named by digest."""
    name = package["uri"].rpartition("/")[2]
    return os.path.join(folder, package["sha256"], "package" if name in ("", ".", "..") else name)


def _is_complete(path: str, package: dict[str, Any]) -> bool:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""):
                digest.update(chunk)
    except FileNotFoundError:
        return False
    return bool(digest.hexdigest() == package["sha256"])


class _TransferInterruptedError(Exception):
    """The transfer broke off and can be retried."""


class _Download:
    """One download. Received bytes are kept when a connection breaks, and the next one requests the rest."""

    def __init__(self, package: dict[str, Any], token: str, context: ssl.SSLContext) -> None:
        from urllib.parse import urlsplit

        self._package = package
        self._kind = package.get("what", "package")
        self._url: SplitResult = urlsplit(package["url"])
        self._headers = {"Authorization": "Bearer " + token, "Accept-Encoding": "identity"}
        self._context = context
        self._received = 0
        self._digest = hashlib.sha256()

    def to(self, path: str) -> None:
        """Download to `path`. Raises `FetchError` if that fails or the digest differs."""
        folder = os.path.dirname(path)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with atomic_file(path, durable=True) as file:
            self._fetch(file)
            self._check()

    def _check(self) -> None:
        if self._digest.hexdigest() != self._package["sha256"]:
            raise FetchError(
                "The %s %s came with another content than it should have. Submit the job, or create the version, again."
                % (self._kind, self._package["uri"])
            )

    def _fetch(self, file: Any) -> None:
        attempts, progress, progress_s = 0, 0, time.monotonic()
        while True:
            try:
                self._request(file)
                return
            except _TransferInterruptedError as exc:
                if self._received > progress:
                    attempts, progress, progress_s = 0, self._received, time.monotonic()
                if time.monotonic() - progress_s > STALL_TIMEOUT_S:
                    raise FetchError(
                        "The %s %s can't be fetched: the server at %s has not answered for %d s (%s). See that it "
                        "runs, and that this machine can reach it there."
                        % (self._kind, self._package["uri"], self._url.netloc, STALL_TIMEOUT_S, exc)
                    ) from exc
                time.sleep(_RETRY_INTERVALS_S[min(attempts, len(_RETRY_INTERVALS_S) - 1)])
                attempts += 1

    def _request(self, file: Any) -> None:
        """Request the missing bytes on a new connection."""
        assert self._url.hostname is not None
        connection = http.client.HTTPSConnection(
            self._url.hostname, self._url.port, context=self._context, timeout=_SOCKET_TIMEOUT_S
        )
        try:
            headers = dict(self._headers)
            if self._received:
                headers["Range"] = "bytes=%d-" % self._received
            connection.request("GET", self._url.path, headers=headers)
            with connection.getresponse() as response:
                self._receive(response, file)
        except ssl.SSLCertVerificationError as exc:
            raise FetchError(
                "The server at %s shows a certificate that is not the one of this job's server: %s. See that the "
                "setting node_host names the server, and nobody else." % (self._url.netloc, exc)
            ) from exc
        except (OSError, http.client.HTTPException) as exc:
            raise _TransferInterruptedError("%s: %s" % (type(exc).__name__, exc)) from exc
        finally:
            connection.close()

    def _receive(self, response: http.client.HTTPResponse, file: Any) -> None:
        if response.status in _RETRYABLE:
            raise _TransferInterruptedError("status %d" % response.status)
        if response.status != (206 if self._received else 200):
            raise FetchError("The %s %s can't be fetched: %s" % (self._kind, self._package["uri"], _reason(response)))
        if self._received and not response.headers.get("Content-Range", "").startswith("bytes %d-" % self._received):
            raise FetchError(
                "The %s %s can't be fetched: what the server sent is not what was missing."
                % (self._kind, self._package["uri"])
            )
        while self._received < self._package["size"]:
            chunk = response.read(min(_CHUNK_BYTES, self._package["size"] - self._received))
            if not chunk:
                raise _TransferInterruptedError("the connection ended early")
            file.write(chunk)
            self._digest.update(chunk)
            self._received += len(chunk)


def _reason(response: http.client.HTTPResponse) -> str:
    """The server's error message, or else its status."""
    try:
        return str(json.loads(response.read(_CHUNK_BYTES).decode())["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return "the server answers with status %d." % response.status
