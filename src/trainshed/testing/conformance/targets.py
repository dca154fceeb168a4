"""Servers that suites are run against: this one, and others by whose figures it is measured."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from trainshed.testing.cache import link_runtimes
from trainshed.testing.processes.servers import MeasuredServer
from trainshed.testing.processes.shells import TRAINSHED as COMMAND

TRAINSHED = "trainshed"
PROJECT = "conformance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A running server. All but the first two fields are for those that ask for tokens."""

    name: str
    url: str
    project: str = PROJECT
    tls_url: str = ""
    token: str = ""
    authority: Path | None = None  #: the certificate to trust at `tls_url`
    environment: Mapping[str, str] = field(default_factory=dict)  #: of commands, such as `trainshed`

    def in_shell(self, *command: str | Path) -> list[str]:
        """Return the command line that runs a program in `trainshed shell`, with nothing else set."""
        line = " ".join(f"'{word}'" for word in map(str, command))
        return [str(COMMAND), "shell", "--runtime-version", "none", "--project", self.project, "-c", line]


@contextlib.contextmanager
def _trainshed(folder: Path) -> Iterator[Target]:
    """A server as users start it, with the runtimes of this checkout."""
    server = MeasuredServer(link_runtimes(folder / "home"), {"public_data": False}).start()
    try:
        yield Target(
            name=TRAINSHED,
            url=server.url,
            tls_url=server.tls_url,
            token=server.token,
            authority=server.authority,
            environment={**server.env(), "PATH": f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"},
        )
    finally:
        server.close()


#: by name: a context that starts a server in an empty folder, and stops it
TARGETS: Mapping[str, Callable[[Path], AbstractContextManager[Target]]] = {TRAINSHED: _trainshed}
