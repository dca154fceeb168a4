"""Asking for something new, once: an answer that gets lost must not make two of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from trainshed.client.context import ClientContext
from trainshed.client.transport import ConnectionLostError, segment

POLL_S = 1.0  #: between two looks, once it takes long
_FIRST_POLL_S = 0.05


def create_once(here: ClientContext, path: str, body: dict[str, Any], *, look_with: str) -> dict[str, Any]:
    """What the server made of a body.

    `ConnectionLostError`, with the command to look with, if nobody knows whether it did.
    """
    try:
        made: dict[str, Any] = here.client.call("POST", path, body=body)
    except ConnectionLostError as exc:
        if not exc.sent:
            raise
        raise ConnectionLostError(f"{exc} It may be there all the same; look with: {look_with}", sent=True) from exc
    return made


def id_of(operation: dict[str, Any]) -> str:
    """`create_m_v1-1605475055000` of projects/p/operations/create_m_v1-1605475055000"""
    return str(operation["name"]).rpartition("/")[2]


def fetch(here: ClientContext, name: str) -> dict[str, Any]:
    found: dict[str, Any] = here.client.call("GET", here.ml(f"operations/{segment(name)}"))
    return found


def follow(here: ClientContext, operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The operation as it was given, and at each look after that; the last one is done."""
    name, pause_s = id_of(operation), _FIRST_POLL_S
    yield operation
    while not operation.get("done"):
        time.sleep(pause_s)
        pause_s = min(POLL_S, pause_s * 1.5)
        operation = fetch(here, name)
        yield operation
