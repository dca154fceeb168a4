"""Creating a resource at most once, and following operations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from trainshed.client.context import ClientContext
from trainshed.client.transport import ConnectionLostError, segment

POLL_INTERVAL_S = 1.0  #: the longest interval
_FIRST_POLL_INTERVAL_S = 0.05


def create_once(context: ClientContext, path: str, body: dict[str, Any], *, check_command: str) -> dict[str, Any]:
    """Create a resource and return the server's response.

    Raises `ConnectionLostError`, with a command to check, if it is unknown whether the resource was created.
    """
    try:
        created: dict[str, Any] = context.client.call("POST", path, body=body)
    except ConnectionLostError as exc:
        if not exc.sent:
            raise
        raise ConnectionLostError(f"{exc} It may be there all the same; look with: {check_command}", sent=True) from exc
    return created


def id_of(operation: dict[str, Any]) -> str:
    """Return `create_m_v1-1605475055000` of projects/p/operations/create_m_v1-1605475055000."""
    return str(operation["name"]).rpartition("/")[2]


def fetch(context: ClientContext, name: str) -> dict[str, Any]:
    operation: dict[str, Any] = context.client.call("GET", context.ml(f"operations/{segment(name)}"))
    return operation


def follow(context: ClientContext, operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the operation, and again after each poll. The last one is done."""
    name, pause_s = id_of(operation), _FIRST_POLL_INTERVAL_S
    yield operation
    while not operation.get("done"):
        time.sleep(pause_s)
        pause_s = min(POLL_INTERVAL_S, pause_s * 1.5)
        operation = fetch(context, name)
        yield operation
