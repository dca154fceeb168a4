"""The process of a host whose version is a container: it starts that below itself and passes requests on to it."""

from __future__ import annotations

import subprocess
import sys
import time
import traceback
from pathlib import Path

from ..errors import LoaderError, ServingError
from ..host.lifecycle import StopSignal, announce, exit_with_server, listen, redirect_stdout
from ..memory import share_arenas
from ..spec import ServingSpec
from .container import HostContainer, HostContainerSpec
from .passing import ContainerEndpoint, ContainerHost

_CLEAR_S = 20.0


def run_host(path: Path) -> int:
    """As `process.run_host`, for a container. It ends with this process, however that ends."""
    output = redirect_stdout()
    share_arenas()
    exit_with_server()
    began = time.monotonic()
    container: HostContainer | None = None
    try:
        spec, order = _read(path)
        ending = StopSignal()
        container = HostContainer(order)
        container.await_health(ending)
    except ServingError as exc:
        traceback.print_exc()
        announce(output, {"event": "failed", "message": str(exc)})
        if container is not None:
            container.end()
        return 1
    way = ContainerEndpoint(port=order.port, path=order.predict, timeout_s=order.timeout_s)
    host = ContainerHost(way, queue_limit=spec.queue_limit, body_limit=spec.body_limit)
    if not ending.received():
        listener = listen(spec)
        container.watch(lambda: host.busy)
        announce(output, _ready(order, time.monotonic() - began))
        host.serve(listener, ending)
    container.end()
    return 0


def _read(path: Path) -> tuple[ServingSpec, HostContainerSpec]:
    try:
        spec = ServingSpec.read(path)
        return spec, HostContainerSpec.from_json(spec.container)
    except (OSError, ValueError, TypeError) as exc:
        raise LoaderError(f"The host can't read what it was told: {exc}") from exc


def _ready(order: HostContainerSpec, load_s: float) -> dict[str, object]:
    return {
        "event": "ready",
        "loader": "container",
        "detail": f"the container {order.image}"[:200],
        "batching": False,
        "sample": None,
        "signatures": {},
        "load_s": round(load_s, 3),
    }


def remove_container(path: str) -> None:
    """End and remove what is left of the container of a host that has ended, however it did. What can't be is left to
    the server."""
    try:
        _, order = _read(Path(path))
        subprocess.run(order.end, stdin=subprocess.DEVNULL, capture_output=True, timeout=_CLEAR_S, check=False)
    except (ServingError, OSError, subprocess.TimeoutExpired) as exc:
        sys.stderr.write(f"{exc}\n")
