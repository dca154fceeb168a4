"""What requests of a fuzz must leave alone: the resources of another project."""

from __future__ import annotations

from typing import Any

from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.reliability.checker import Violation
from trainshed.testing.reliability.fuzz import samples

PROJECT = "kept"
BUCKET = "kept-objects"
_OBJECT = bytes(range(256)) * 40
_SECRET = f"planted-{4 * '7d0c'}"


class Kept:
    """Resources of a project that no generated request names. They stay as they were."""

    secret = _SECRET

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._seen: dict[str, Any] = {}

    def create(self) -> None:
        """Create them, and the buckets and objects that generated requests begin with."""
        call = self._server.call
        call("POST", f"/storage/v1/b?project={PROJECT}", {"name": BUCKET})
        call("POST", f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=kept", _OBJECT)
        call("POST", f"/v1/projects/{PROJECT}/models", {"name": "kept", "description": "kept"})
        call("POST", f"/trainshed/v1/projects/{PROJECT}/secrets/kept:set", {"value": _SECRET})
        for bucket in samples.BUCKETS:
            call("POST", f"/storage/v1/b?project={samples.PROJECT}", {"name": bucket})
            call("POST", f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name=a", b"bytes")
        call("POST", f"/v1/projects/{samples.PROJECT}/models", {"name": samples.MODELS[0]})
        self._seen = self._read()

    def check(self) -> list[Violation]:
        """Return what is not as it was, and whether the planted secret is in the server's log."""
        now = self._read()
        found = [
            Violation("lost", f"{path} was {before!r} and is {now[path]!r}")
            for path, before in self._seen.items()
            if now[path] != before
        ]
        log = self._server.log.read_bytes()
        if any(each.encode() in log for each in (_SECRET, self._server.token)):
            found.append(Violation("survivors", "a secret is in the server's log"))
        return found

    def _read(self) -> dict[str, Any]:
        paths = (
            f"/storage/v1/b/{BUCKET}",
            f"/storage/v1/b/{BUCKET}/o",
            f"/storage/v1/b/{BUCKET}/o/kept?alt=media",
            f"/v1/projects/{PROJECT}/models",
            f"/v1/projects/{PROJECT}/jobs",
            f"/trainshed/v1/projects/{PROJECT}/secrets",
        )
        caller = Caller(self._server.url)
        return {path: caller("GET", path, token=self._server.token) for path in paths}
