"""A host's process: what it is told, the model that it loads, and what it says of itself."""

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
from .lifecycle import StopSignal, announce, exit_with_server, listen, redirect_stdout
from .server import Host


def run_host(path: Path) -> int:
    """Serve the version that a spec tells of, until SIGTERM. The exit status.

    Says one line of JSON on standard output: `ready`, or `failed` with the reason. What the model prints goes where
    standard error goes. When the other end of standard input is closed the server is gone, and the process ends.
    """
    output = redirect_stdout()
    share_arenas()
    began = time.monotonic()
    try:
        spec = _read(path)
        if spec.address is None:  # else whoever started it sees to its end
            exit_with_server()
        model = load_model(spec)
        host = _warm(spec, model)
    except ServingError as exc:
        traceback.print_exc()
        announce(output, {"event": "failed", "message": str(exc)})
        return 1
    listener = listen(spec)
    gc.collect()
    gc.freeze()  # what was loaded stays; it need not be looked at again and again
    ending = StopSignal()
    announce(output, _ready(spec, model, host, time.monotonic() - began))
    host.serve(listener, ending)
    return 0


def load_model(spec: ServingSpec) -> Model:
    """The model of a spec, with the packages and within the memory that it names."""
    if spec.memory_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (spec.memory_bytes, spec.memory_bytes))
    if spec.site:
        sys.path.insert(0, spec.site)
    return load(spec)


def _read(path: Path) -> ServingSpec:
    try:
        return ServingSpec.read(path)
    except (OSError, ValueError, TypeError) as exc:
        raise LoaderError(f"The host can't read what it was told: {exc}") from exc


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
        "batching": host.batching,
        "sample": host.sample.body if host.sample else None,
        "signatures": {name: signature.as_json() for name, signature in signatures.items()},
        "load_s": round(load_s, 3),
    }
