"""Asking for something new, once: an answer that gets lost must not make two of it."""

from __future__ import annotations

from typing import Any

from trainshed.client.context import ClientContext
from trainshed.client.transport import ConnectionLostError


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
