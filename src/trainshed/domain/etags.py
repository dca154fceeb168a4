"""Etags: the generation of a row as opaque bytes, as the API shows it."""

from __future__ import annotations

import base64
import binascii

from trainshed.errors import AbortedError


def etag(generation: int) -> str:
    return base64.b64encode(generation.to_bytes(8, "big")).decode()


def check_etag(etag_sent: str, generation: int, *, what: str) -> None:
    """Raises `AbortedError` unless `sent` is the etag of this generation. Accepts both alphabets of base64."""
    try:
        decoded = base64.b64decode(etag_sent.translate(str.maketrans("-_", "+/")).rstrip("=") + "==", validate=False)
    except (binascii.Error, ValueError):
        decoded = b""
    if decoded != generation.to_bytes(8, "big"):
        raise AbortedError(
            f"The etag sent is not the current one: {what} was changed since it was read. Read it, then write."
        )
