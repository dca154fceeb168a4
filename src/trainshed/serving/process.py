"""The life of a host's process: what it is told, what it says of itself, and when it ends."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import orjson

from .errors import LoaderError, ServingError
from .host import Host, Stop
from .loaders import load
from .loaders.base import Model, TensorModel
from .memory import share_arenas
from .spec import HostSpec

_BACKLOG = 64


def run_host(path: Path) -> int:
    """Serve the version that a spec tells of, until SIGTERM. The exit status.

    Says one line of JSON on standard output: `ready`, or `failed` with the reason. What the model prints goes where
    standard error goes. When the other end of standard input is closed the server is gone, and the process ends.
    """
    output = keep_output()
    share_arenas()
    _end_with_the_server()
    began = time.monotonic()
    try:
        spec = _read(path)
        model = load_model(spec)
        host = _warm(spec, model)
    except ServingError as exc:
        traceback.print_exc()
        _say(output, {"event": "failed", "message": str(exc)})
        return 1
    listener = _listen(spec.socket)
    gc.collect()
    gc.freeze()  # what was loaded stays; it need not be looked at again and again
    with contextlib.suppress(Stop):  # one that comes before the host serves
        signal.signal(signal.SIGTERM, _stop)
        _say(output, _ready(spec, model, host, time.monotonic() - began))
        host.serve(listener)
    return 0


def keep_output() -> int:
    """A descriptor for standard output; what is printed there from now on goes to standard error."""
    output = os.dup(1)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return output


def load_model(spec: HostSpec) -> Model:
    """The model of a spec, with the packages and within the memory that it names."""
    if spec.memory_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (spec.memory_bytes, spec.memory_bytes))
    if spec.site:
        sys.path.insert(0, spec.site)
    return load(spec)


def _read(path: Path) -> HostSpec:
    try:
        return HostSpec.read(path)
    except (OSError, ValueError, TypeError) as exc:
        raise LoaderError(f"The host can't read what it was told: {exc}") from exc


def _warm(spec: HostSpec, model: Model) -> Host:
    try:
        return Host(spec, model)
    except LoaderError:
        raise
    except (Exception, SystemExit) as exc:
        raise LoaderError(f"The model can't answer its sample request: {exc or type(exc).__name__}") from exc


def _ready(spec: HostSpec, model: Model, host: Host, load_s: float) -> dict[str, Any]:
    signatures = model.signatures if isinstance(model, TensorModel) else {}
    return {
        "event": "ready",
        "loader": spec.loader or type(model).__module__.rpartition(".")[2],
        "detail": model.detail,
        "batching": host.batching,
        "sample": host.sample.body if host.sample else None,
        "signatures": {name: signature.as_json() for name, signature in signatures.items()},
        "load_s": round(load_s, 3),
    }


def _say(output: int, event: dict[str, Any]) -> None:
    with open(output, "wb") as file:
        file.write(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE))


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(_BACKLOG)
    return listener


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # once is enough, and twice would end what has to be finished
    raise Stop


def _end_with_the_server() -> None:
    life = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)

    def wait() -> None:
        while os.read(life, 4096):
            pass
        os._exit(0)

    threading.Thread(target=wait, name="life", daemon=True).start()
