"""The process of a host whose version is a container: it starts that below itself and passes requests on to it."""

from __future__ import annotations

import subprocess
import sys
import time
import traceback
from pathlib import Path

from ..errors import LoaderError, ServingError
from ..host.lifecycle import Ending, end_with_the_server, keep_output, listen, say
from ..memory import share_arenas
from ..spec import HostSpec
from .container import Container, Order
from .passing import PassingHost, Way

_CLEAR_S = 20.0


def run_host(path: Path) -> int:
    """As `process.run_host`, for a container. It ends with this process, however that ends."""
    output = keep_output()
    share_arenas()
    end_with_the_server()
    began = time.monotonic()
    container: Container | None = None
    try:
        spec, order = _read(path)
        ending = Ending()
        container = Container(order)
        container.await_health(ending)
    except ServingError as exc:
        traceback.print_exc()
        say(output, {"event": "failed", "message": str(exc)})
        if container is not None:
            container.end()
        return 1
    way = Way(port=order.port, path=order.predict, timeout_s=order.timeout_s)
    host = PassingHost(way, queue_limit=spec.queue_limit, body_limit=spec.body_limit)
    if not ending.came():
        listener = listen(spec)
        container.watch(lambda: host.busy)
        say(output, _ready(order, time.monotonic() - began))
        host.serve(listener, ending)
    container.end()
    return 0


def _read(path: Path) -> tuple[HostSpec, Order]:
    try:
        spec = HostSpec.read(path)
        return spec, Order.from_json(spec.container)
    except (OSError, ValueError, TypeError) as exc:
        raise LoaderError(f"The host can't read what it was told: {exc}") from exc


def _ready(order: Order, load_s: float) -> dict[str, object]:
    return {
        "event": "ready",
        "loader": "container",
        "detail": f"the container {order.image}"[:200],
        "batching": False,
        "sample": None,
        "signatures": {},
        "load_s": round(load_s, 3),
    }


def clear(path: str) -> None:
    """End and remove what is left of the container of a host that has ended, however it did. What can't be is left to
    the server."""
    try:
        _, order = _read(Path(path))
        subprocess.run(order.end, stdin=subprocess.DEVNULL, capture_output=True, timeout=_CLEAR_S, check=False)
    except (ServingError, OSError, subprocess.TimeoutExpired) as exc:
        sys.stderr.write(f"{exc}\n")
