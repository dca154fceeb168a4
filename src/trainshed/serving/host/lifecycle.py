"""The lifecycle of a host process: its event line, its listener, its stop signal."""

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
    """SIGTERM as a file descriptor to wait for. It interrupts nothing."""

    def __init__(self) -> None:
        """Install the handler of SIGTERM.

        The descriptor is written to by the interpreter itself, in whichever thread the signal arrives: handlers run in
        the main thread alone, which may be waiting for this very descriptor.
        """
        self._reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_signal)

    def fileno(self) -> int:
        """A descriptor that is readable once the signal has been received."""
        return self._reader

    def received(self, *, within_s: float = 0.0) -> bool:
        """Whether the signal has been received. Blocks for up to `within_s`."""
        return bool(select.select([self], [], [], within_s)[0])

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # the first signal is enough


def redirect_stdout() -> int:
    """Redirect prints to standard error. Returns a descriptor of the real standard output."""
    output = os.dup(1)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return output


def announce(output: int, event: dict[str, Any]) -> None:
    """Write the event line of a host: one line of JSON."""
    with open(output, "wb") as file:
        file.write(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE))


def take_listener(spec: ServingSpec) -> socket.socket | None:
    """The listening socket that is standard input. Returns None if the host listens by itself."""
    if spec.address is not None or spec.socket != Path():
        return None
    listener = socket.socket(fileno=os.dup(0))
    _discard_stdin()
    return listener


def listen(spec: ServingSpec) -> socket.socket:
    """Listen on the Unix socket or on the network address of a spec."""
    return _listen_unix(spec.socket) if spec.address is None else _listen_tcp(*spec.address)


def _listen_tcp(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


def _listen_unix(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(_BACKLOG)
    return listener


def exit_with_server() -> None:
    """Exit this process when standard input is closed, which means that the server is gone."""
    stdin = os.dup(0)
    _discard_stdin()

    def exit_on_eof() -> None:
        while os.read(stdin, 4096):
            pass
        os._exit(0)

    threading.Thread(target=exit_on_eof, name="stdin", daemon=True).start()


def _discard_stdin() -> None:
    """What reads from standard input finds nothing from now on."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
