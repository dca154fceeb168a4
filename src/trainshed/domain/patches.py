"""Changes of resources: update masks, label changes, and etags (the generation of a row as opaque bytes)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from trainshed.errors import AbortedError, InvalidArgumentError


def check_mask(paths: Sequence[str], known: Sequence[str], body: Mapping[str, Any], *, what: str) -> None:
    """Check an update mask. `known` are the fields that it may name, besides labels and the etag.

    Raises `InvalidArgumentError` for another path, and if it names an etag that the body lacks.
    """
    for path in paths:
        if path not in (*known, "labels", "etag") and not path.startswith("labels."):
            supported = ", ".join((*known, "labels"))
            raise InvalidArgumentError(
                f"{path!r} can't be changed. The supported update masks are {supported}.", field="update_mask"
            )
    if "etag" in paths and "etag" not in body:
        raise InvalidArgumentError(f"The mask names etag, but the {what} in the body has none.", field=f"{what}.etag")


def merge_labels(old: Mapping[str, str], new: Mapping[str, str], paths: Sequence[str]) -> dict[str, str]:
    """Return the labels after a patch. `labels` replaces all of them; `labels.KEY` sets or removes one."""
    result = dict(new) if "labels" in paths else dict(old)
    for path in paths:
        key = path.removeprefix("labels.")
        if path.startswith("labels."):
            result.pop(key, None)
            if key in new:
                result[key] = new[key]
    return result


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
