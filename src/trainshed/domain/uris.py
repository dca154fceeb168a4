"""gs:// URIs: what is one, what it names, and where they stand in a text. Names are checked in `buckets/names.py`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from trainshed.errors import InvalidArgumentError

_SCHEME = "gs://"
_IN_TEXT = re.compile(_SCHEME + r"[a-z0-9][a-z0-9._-]*[a-z0-9](?:/[^\s,;'\"]*)?")


def is_uri(text: str) -> bool:
    """Return whether the text is in a bucket, and not a local path or something else."""
    return text.startswith(_SCHEME)


def uri_parts(uri: str) -> tuple[str, str]:
    """Return bucket and object, unchecked: `("bucket", "a/b")` of `gs://bucket/a/b`. Both may be empty.

    Raises `InvalidArgumentError` if it is no URI, or names an object without a bucket.
    """
    bucket, _, name = uri.removeprefix(_SCHEME).partition("/")
    if not is_uri(uri) or (name and not bucket):
        raise InvalidArgumentError(f"[{uri}] is not in a bucket. Write gs://BUCKET/NAME.")
    return bucket, name


def bucket_of(text: str) -> str:
    """Return the bucket of `bucket`, `gs://bucket` or `gs://bucket/`. What stands below it stays, for a check."""
    return text.removeprefix(_SCHEME).rstrip("/")


def resolve_uris(text: str, path_of: Callable[[str], Path | None]) -> str:
    """Replace each URI in a text that `path_of` resolves by its path. A trailing slash stays."""

    def to_path(match: re.Match[str]) -> str:
        path = path_of(match[0])
        if path is None:
            return match[0]
        return f"{path}/" if match[0].endswith("/") else str(path)

    return _IN_TEXT.sub(to_path, text)
