"""The command line as a user types it: processes of their own, in a folder, that talk to one server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from trainshed.runtimes.catalogue import CATALOGUE
from trainshed.testing.processes.servers import RunningServer

TRAINSHED = Path(sys.executable).with_name("trainshed")
_LIMIT_S = 600

#: so that the documents' lines mean Trainshed
_WORDS = """
set -eu -o pipefail
gcloud() { trainshed "$@"; }
gsutil() { trainshed buckets "$@"; }
"""


class Shell:
    """Runs `trainshed`, or a script that calls it, to the end."""

    def __init__(self, server: RunningServer, folder: Path, project: str) -> None:
        self.server = server
        self.folder = folder
        self.env = server.env() | {"TRAINSHED_PROJECT": project, "TZ": "UTC"}
        self.env["PATH"] = f"{TRAINSHED.parent}:{os.environ['PATH']}"

    def __call__(self, *words: object, status: int = 0, given: str | None = None) -> tuple[str, str]:
        """`trainshed WORDS`, with `given` as its stdin: stdout and stderr. Must end with `status`, and no traceback."""
        done = self._run([str(TRAINSHED), *map(str, words)], self.env, given)
        assert done.returncode == status, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        assert "Traceback (most recent call last)" not in done.stderr, done.stderr
        return done.stdout, done.stderr

    def bash(self, script: str, **variables: str) -> tuple[str, str]:
        """A script in which `gcloud` and `gsutil` are ours: stdout and stderr. Must end well."""
        done = self._run(["bash", "-c", _WORDS + script], self.env | variables, None)
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout, done.stderr

    def in_runtime(self, runtime: str, program: str, *arguments: object) -> None:
        """Run a Python program in a runtime of the server's state folder, built if need be. Must end well."""
        self("runtimes", "install", runtime)
        python = self.server.home / "runtimes" / CATALOGUE[runtime].key / "bin" / "python"
        done = self._run([str(python), "-c", program, *map(str, arguments)], self.env, None)
        assert done.returncode == 0, done.stderr[-4000:]

    def _run(self, command: list[str], env: dict[str, str], given: str | None) -> Any:
        return subprocess.run(
            command, env=env, cwd=self.folder, input=given, capture_output=True, text=True, timeout=_LIMIT_S
        )
