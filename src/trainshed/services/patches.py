"""Patches of resources: update masks and label changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainshed.errors import InvalidArgumentError


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
