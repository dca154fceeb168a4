"""What patches have in common: which paths a mask may name, and what becomes of labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainshed.errors import InvalidArgumentError


def check_mask(paths: Sequence[str], known: Sequence[str], given: Mapping[str, Any], *, what: str) -> None:
    """`InvalidArgumentError` for a path that is none of `known`, of labels, or the etag; and for an etag that isn't
    there.
    """
    for path in paths:
        if path not in (*known, "labels", "etag") and not path.startswith("labels."):
            offered = ", ".join((*known, "labels"))
            raise InvalidArgumentError(
                f"{path!r} can't be changed. The supported update masks are {offered}.", field="update_mask"
            )
    if "etag" in paths and "etag" not in given:
        raise InvalidArgumentError(f"The mask names etag, but the {what} in the body has none.", field=f"{what}.etag")


def merged(old: Mapping[str, str], new: Mapping[str, str], paths: Sequence[str]) -> dict[str, str]:
    """The labels after a patch: all new ones for the path `labels`, one set or taken away for `labels.KEY`."""
    result = dict(new) if "labels" in paths else dict(old)
    for path in paths:
        key = path.removeprefix("labels.")
        if path.startswith("labels."):
            result.pop(key, None)
            if key in new:
                result[key] = new[key]
    return result
