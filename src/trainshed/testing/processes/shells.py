"""The command line as a user types it: processes in a folder that use one server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from trainshed.runtimes.catalogue import CATALOGUE
from trainshed.testing.processes.servers import RunningServer

TRAINSHED = Path(sys.executable).with_name("trainshed")
_TIMEOUT_S = 600

#: so that commands in documents call Trainshed
_PRELUDE = """
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

    def __call__(self, *words: object, status: int = 0, stdin: str | None = None) -> tuple[str, str]:
        """Run `trainshed WORDS` with `stdin`. Returns stdout and stderr.

        It must exit with `status` and without a traceback.
        """
        result = self._run([str(TRAINSHED), *map(str, words)], self.env, stdin)
        assert result.returncode == status, f"{words}\n{result.stdout[-2000:]}\n{result.stderr[-4000:]}"
        assert "Traceback (most recent call last)" not in result.stderr, result.stderr
        return result.stdout, result.stderr

    def bash(self, script: str, **variables: str) -> tuple[str, str]:
        """Run a script in which `gcloud` and `gsutil` are Trainshed's. Returns stdout and stderr. It must succeed."""
        result = self._run(["bash", "-c", _PRELUDE + script], self.env | variables, None)
        assert result.returncode == 0, f"{result.stdout[-2000:]}\n{result.stderr[-4000:]}"
        return result.stdout, result.stderr

    def in_runtime(self, runtime: str, program: str, *arguments: object) -> None:
        """Run a Python program in a runtime of the server's state folder, built if it is missing. It must succeed."""
        self("runtimes", "install", runtime)
        python = self.server.home / "runtimes" / CATALOGUE[runtime].key / "bin" / "python"
        result = self._run([str(python), "-c", program, *map(str, arguments)], self.env, None)
        assert result.returncode == 0, result.stderr[-4000:]

    def _run(self, command: list[str], env: dict[str, str], stdin: str | None) -> Any:
        return subprocess.run(
            command, env=env, cwd=self.folder, input=stdin, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
