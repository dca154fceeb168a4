"""The life of a host's process: what it says of itself, where it listens, and when it ends."""

from __future__ import annotations

import io
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import orjson

from .spec import HostSpec

_BACKLOG = 64


class Stop(BaseException):
    """Raised into whatever serves, by a handler of signals, to end it."""


def keep_output() -> int:
    """A descriptor for standard output; what is printed there from now on goes to standard error."""
    output = os.dup(1)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return output


def say(output: int, event: dict[str, Any]) -> None:
    """The one line of JSON that a host says of itself."""
    with open(output, "wb") as file:
        file.write(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE))


def listen(spec: HostSpec) -> socket.socket:
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


def stop(number: int, frame: FrameType | None) -> NoReturn:
    """A handler of signals."""
    signal.signal(number, signal.SIG_IGN)  # once is enough, and twice would end what has to be finished
    raise Stop


def end_with_the_server() -> None:
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
