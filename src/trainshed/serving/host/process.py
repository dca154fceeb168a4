"""The host process: reads its spec, loads the model, announces itself and serves."""

from __future__ import annotations

import gc
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from ..errors import LoaderError, ServingError
from ..loaders import load
from ..loaders.base import Model, TensorModel
from ..memory import share_arenas
from ..spec import ServingSpec
from .lifecycle import StopSignal, announce, exit_with_server, listen, redirect_stdout, take_listener
from .server import Host


def run_host(path: Path) -> int:
    """Serve the version of a spec until SIGTERM. Returns the exit status.

    Writes one event line to standard output: `ready`, or `failed` with the reason. The model's prints go to standard
    error. The process exits when standard input is closed, because the server is gone then. If it is a listening
    socket, the host serves that one, and its reaper kills it.
    """
    output = redirect_stdout()
    share_arenas()
    started_s = time.monotonic()
    try:
        spec = _read(path)
        listener = take_listener(spec)
        if listener is None and spec.address is None:  # a remote host is stopped by its node agent
            exit_with_server()
        model = load_model(spec)
        host = _warm(spec, model)
    except ServingError as exc:
        traceback.print_exc()
        announce(output, {"event": "failed", "message": str(exc)})
        return 1
    listener = listener or listen(spec)
    gc.collect()
    gc.freeze()  # the loaded model stays; the collector need not traverse it
    stop = StopSignal()
    announce(output, _ready(spec, model, host, time.monotonic() - started_s))
    host.serve(listener, stop)
    return 0


def load_model(spec: ServingSpec) -> Model:
    """Load the model of a spec, with its packages and its memory limit."""
    if spec.memory_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (spec.memory_bytes, spec.memory_bytes))
    if spec.site:
        sys.path.insert(0, spec.site)
    return load(spec)


def _read(path: Path) -> ServingSpec:
    try:
        return ServingSpec.read(path)
    except (OSError, ValueError, TypeError) as exc:
        raise LoaderError(f"The host can't read its spec: {exc}") from exc


def _warm(spec: ServingSpec, model: Model) -> Host:
    try:
        return Host(spec, model)
    except LoaderError:
        raise
    except (Exception, SystemExit) as exc:
        raise LoaderError(f"The model can't answer its sample request: {exc or type(exc).__name__}") from exc


def _ready(spec: ServingSpec, model: Model, host: Host, load_s: float) -> dict[str, Any]:
    signatures = model.signatures if isinstance(model, TensorModel) else {}
    return {
        "event": "ready",
        "loader": spec.loader or type(model).__module__.rpartition(".")[2],
        "detail": model.detail,
        "batching": host.invariance.batching,
        "invariance": host.invariance.as_json(),
        "precision": host.precision.as_json() if host.precision else None,
        "sample": host.sample.body if host.sample else None,
        "signatures": {name: signature.as_json() for name, signature in signatures.items()},
        "load_s": round(load_s, 3),
    }
