"""The process of a test server: the product's `serve`, with an API that checks its answers.

python -m trainshed.testing.processes.server_process HOME
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from trainshed import server
from trainshed.config import Home, Settings
from trainshed.errors import CannotProceedError
from trainshed.node import crashpoints
from trainshed.testing.answers import checked_api


def serve(home: Path) -> None:
    """Serve until a signal ends it. Settings come from the environment. Exits with the reason if it can't start."""
    vars(server)["Api"] = checked_api(home)  # in this process alone
    server.log_to_stderr(Home(home).server_log)
    try:
        server.serve(Home(home), Settings.read(os.environ))
    except CannotProceedError as exc:
        sys.exit(str(exc))


def serve_forked(home: Path, environment: Mapping[str, str], log: Path) -> None:
    """Become the server in a process that was forked: with a session, an environment and a log of its own."""
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    crashpoints.arm()
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    serve(home)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
