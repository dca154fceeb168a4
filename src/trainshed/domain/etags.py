"""Etags: the generation of a row as the API's opaque bytes."""

from __future__ import annotations

import base64
import binascii

from trainshed.errors import AbortedError


def etag(generation: int) -> str:
    return base64.b64encode(generation.to_bytes(8, "big")).decode()


def check_etag(sent: str, generation: int, *, what: str) -> None:
    """`AbortedError` unless `sent` is the etag of this generation. Both alphabets of base64 are understood."""
    try:
        given = base64.b64decode(sent.translate(str.maketrans("-_", "+/")).rstrip("=") + "==", validate=False)
    except (binascii.Error, ValueError):
        given = b""
    if given != generation.to_bytes(8, "big"):
        raise AbortedError(
            f"The etag sent is not the current one: {what} was changed since it was read. Read it, then write."
        )
