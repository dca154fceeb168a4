"""Asking for something new, once: an answer that gets lost must not make two of it."""

from __future__ import annotations

from typing import Any

from trainshed.client.context import Scope
from trainshed.client.transport import Lost


def create_once(here: Scope, path: str, body: dict[str, Any], *, look_with: str) -> dict[str, Any]:
    """What the server made of a body. `Lost`, with the command to look with, if nobody knows whether it did."""
    try:
        made: dict[str, Any] = here.client.call("POST", path, body=body)
    except Lost as exc:
        if not exc.sent:
            raise
        raise Lost(f"{exc} It may be there all the same; look with: {look_with}", sent=True) from exc
    return made
