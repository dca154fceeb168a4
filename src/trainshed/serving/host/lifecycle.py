"""The life of a host's process: what it says of itself, where it listens, and when it ends."""

from __future__ import annotations

import io
import os
import select
import signal
import socket
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import orjson

from ..spec import ServingSpec

_BACKLOG = 64


class StopSignal:
    """SIGTERM as something to wait for. It interrupts nothing: what is being done is finished first."""

    def __init__(self) -> None:
        """From now on SIGTERM does nothing else."""
        self._told, self._tell = os.pipe()
        signal.signal(signal.SIGTERM, self._note)

    def fileno(self) -> int:
        """What can be read as soon as it has come."""
        return self._told

    def received(self, *, within_s: float = 0.0) -> bool:
        """Whether it has come; waits for it so long."""
        return bool(select.select([self], [], [], within_s)[0])

    def _note(self, number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # once is enough
        os.write(self._tell, b".")


def redirect_stdout() -> int:
    """A descriptor for standard output; what is printed there from now on goes to standard error."""
    output = os.dup(1)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return output


def announce(output: int, event: dict[str, Any]) -> None:
    """The one line of JSON that a host says of itself."""
    with open(output, "wb") as file:
        file.write(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE))


def listen(spec: ServingSpec) -> socket.socket:
    """Where a spec says: at a path of this machine, or at an address that others can reach."""
    return _listen_at(spec.socket) if spec.address is None else _listen_on(*spec.address)


def _listen_on(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


def _listen_at(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(_BACKLOG)
    return listener


def exit_with_server() -> None:
    """End this process as soon as the other end of standard input is closed."""
    life = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)

    def wait() -> None:
        while os.read(life, 4096):
            pass
        os._exit(0)

    threading.Thread(target=wait, name="life", daemon=True).start()
