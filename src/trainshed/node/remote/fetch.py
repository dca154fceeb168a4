"""Fetching the packages of a job, or the files of a version, from the server, on a machine with no other way to them.

What was fetched lies under its digest and may be shared by all replicas on the machine. It appears whole and with the
right content, or not at all. The token is sent to the server alone: there are no redirects, and no proxy is asked.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import ssl
import tempfile
import time

from .runtime_build import NodeSetupError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable
    from urllib.parse import SplitResult

PATIENCE_S = 300.0  #: without a single new byte
_SILENCE_S = 30.0  #: of one connection
_PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0)
_PIECE = 1 << 16
_NOT_NOW = (429, 500, 502, 503, 504)  #: any other refusal is for good


class FetchError(NodeSetupError):
    """A package can't be had. The text is for the user whose job it is."""


def fetch_all(
    packages: list[dict[str, Any]], kit: dict[str, Any], folder: str, say: Callable[[str], None]
) -> list[dict[str, str]]:
    """Have all packages of an attempt below `folder`. They come back with a `path`, as `packages.install` wants."""
    context = ssl.create_default_context(cadata=kit["ca"])
    found = []
    for package in packages:
        path = _place(folder, package)
        if not _is_there(path, package):
            say("Downloading the package: %s" % package["uri"])
            _Download(package, kit["token"], context).to(path)
        found.append({"uri": package["uri"], "sha256": package["sha256"], "path": path})
    return found


def fetch_files(files: list[dict[str, Any]], kit: dict[str, Any], folder: str) -> None:
    """Have the files of a version below `folder`, by their names there."""
    context = ssl.create_default_context(cadata=kit["ca"])
    for file in files:
        parts = file["name"].split("/")
        if not all(parts) or ".." in parts or "." in parts:
            raise FetchError("The version has a file %r, which can't be one's name." % file["name"])
        _Download(file, kit["token"], context).to(os.path.join(folder, *parts))


def _place(folder: str, package: dict[str, Any]) -> str:
    """Where a package lies: its own name, which says what it is, in a folder of its digest's name."""
    name = package["uri"].rpartition("/")[2]
    return os.path.join(folder, package["sha256"], "package" if name in ("", ".", "..") else name)


def _is_there(path: str, package: dict[str, Any]) -> bool:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for piece in iter(lambda: file.read(_PIECE), b""):
                digest.update(piece)
    except FileNotFoundError:
        return False
    return bool(digest.hexdigest() == package["sha256"])


class _TransferInterruptedError(Exception):
    """It can be tried again."""


class _Download:
    """One package on its way. What has come stays when a connection breaks: the next one asks for the rest."""

    def __init__(self, package: dict[str, Any], token: str, context: ssl.SSLContext) -> None:
        from urllib.parse import urlsplit

        self._package = package
        self._what = package.get("what", "package")
        self._url: SplitResult = urlsplit(package["url"])
        self._headers = {"Authorization": "Bearer " + token, "Accept-Encoding": "identity"}
        self._context = context
        self._got = 0
        self._digest = hashlib.sha256()

    def to(self, path: str) -> None:
        """Fetch it. `FetchError` if it can't be had, or is not what it should be."""
        folder = os.path.dirname(path)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fd, draft = tempfile.mkstemp(prefix=".fetching-", dir=folder)
        try:
            with open(fd, "wb") as file:
                self._fetch(file)
                file.flush()
                os.fsync(file.fileno())
            self._check()
            os.rename(draft, path)
        except BaseException:
            os.unlink(draft)
            raise

    def _check(self) -> None:
        if self._digest.hexdigest() != self._package["sha256"]:
            raise FetchError(
                "The %s %s came with another content than it should have. Submit the job, or create the version, again."
                % (self._what, self._package["uri"])
            )

    def _fetch(self, file: Any) -> None:
        tries, before, since = 0, 0, time.monotonic()
        while True:
            try:
                self._once(file)
                return
            except _TransferInterruptedError as exc:
                if self._got > before:
                    tries, before, since = 0, self._got, time.monotonic()
                if time.monotonic() - since > PATIENCE_S:
                    raise FetchError(
                        "The %s %s can't be fetched: the server at %s has not answered for %d s (%s). See that it "
                        "runs, and that this machine can reach it there."
                        % (self._what, self._package["uri"], self._url.netloc, PATIENCE_S, exc)
                    ) from exc
                time.sleep(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)])
                tries += 1

    def _once(self, file: Any) -> None:
        """Ask for what is missing, on a connection of its own."""
        assert self._url.hostname is not None
        connection = http.client.HTTPSConnection(
            self._url.hostname, self._url.port, context=self._context, timeout=_SILENCE_S
        )
        try:
            headers = dict(self._headers)
            if self._got:
                headers["Range"] = "bytes=%d-" % self._got
            connection.request("GET", self._url.path, headers=headers)
            with connection.getresponse() as answer:
                self._take(answer, file)
        except ssl.SSLCertVerificationError as exc:
            raise FetchError(
                "The server at %s shows a certificate that is not the one of this job's server: %s. See that the "
                "setting node_host names the server, and nobody else." % (self._url.netloc, exc)
            ) from exc
        except (OSError, http.client.HTTPException) as exc:
            raise _TransferInterruptedError("%s: %s" % (type(exc).__name__, exc)) from exc
        finally:
            connection.close()

    def _take(self, answer: http.client.HTTPResponse, file: Any) -> None:
        if answer.status in _NOT_NOW:
            raise _TransferInterruptedError("status %d" % answer.status)
        if answer.status != (206 if self._got else 200):
            raise FetchError("The %s %s can't be fetched: %s" % (self._what, self._package["uri"], _reason(answer)))
        if self._got and not answer.headers.get("Content-Range", "").startswith("bytes %d-" % self._got):
            raise FetchError(
                "The %s %s can't be fetched: what the server sent is not what was missing."
                % (self._what, self._package["uri"])
            )
        while self._got < self._package["size"]:
            piece = answer.read(min(_PIECE, self._package["size"] - self._got))
            if not piece:
                raise _TransferInterruptedError("the connection ended early")
            file.write(piece)
            self._digest.update(piece)
            self._got += len(piece)


def _reason(answer: http.client.HTTPResponse) -> str:
    """The server's own sentence."""
    try:
        return str(json.loads(answer.read(_PIECE).decode())["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return "the server answers with status %d." % answer.status
