"""Names and paths of buckets and objects. User strings become paths only here, after validation."""

from __future__ import annotations

import re
from pathlib import Path

from trainshed.domain.uris import uri_parts
from trainshed.errors import InvalidArgumentError

MAX_NAME_BYTES = 1024  #: of an object's name
MAX_COMPONENT_BYTES = 255  #: between two slashes

_BUCKET = re.compile(r"[a-z0-9](?:[a-z0-9_-]|\.(?!\.)){1,61}[a-z0-9]")
_IP_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")


def bucket_name(text: str) -> str:
    """Return the name if it is valid for a bucket. Raises `InvalidArgumentError` if not."""
    if not _BUCKET.fullmatch(text) or _IP_ADDRESS.fullmatch(text):
        raise InvalidArgumentError(
            f"Invalid bucket name: {text!r}. A bucket's name is 3 to 63 lower-case letters, digits, hyphens, "
            f"underscores and single dots, and starts and ends with a letter or a digit."
        )
    return text


def components(name: str) -> tuple[str, ...]:
    """The path components of an object's name. The trailing slash of a folder's mark is dropped.

    Each component is safe below a directory. Raises `InvalidArgumentError`, with the reason, if the name is not
    supported.
    """
    if not name:
        raise InvalidArgumentError("An object needs a name.")
    if len(name.encode(errors="surrogatepass")) > MAX_NAME_BYTES:
        raise InvalidArgumentError(
            f"An object's name has at most {MAX_NAME_BYTES} bytes; this one has {len(name.encode()):,}."
        )
    if any(char in "\0\r\n" or "\ud800" <= char <= "\udfff" for char in name):
        raise InvalidArgumentError(
            f"The object name {name!r} holds a character that names may not hold: NUL or a line end."
        )
    parts = tuple(name.removesuffix("/").split("/"))
    for part in parts:
        if part in ("", ".", ".."):
            raise InvalidArgumentError(
                f"The object name {name!r} has an empty part, `.` or `..` between its slashes. Objects are kept as "
                f"files in folders, so choose a name without."
            )
        if len(part.encode()) > MAX_COMPONENT_BYTES:
            raise InvalidArgumentError(
                f"A part of an object's name between slashes has at most {MAX_COMPONENT_BYTES} bytes: {name!r}."
            )
    return parts


def is_folder(name: str) -> bool:
    """Whether the name is that of a folder's mark, such as `exports/`."""
    return name.endswith("/")


def split_uri(uri: str) -> tuple[str, str]:
    """Return the bucket and the object of a URI. The object is empty for the bucket itself.

    Raises `InvalidArgumentError` if it is no URI, or the bucket's name is invalid.
    """
    bucket, name = uri_parts(uri)
    return bucket_name(bucket), name


def object_path(root: Path, bucket: str, name: str) -> Path:
    """The path of an object below `root`, whether it exists or not.

    Never outside of it. An empty name is the bucket.
    """
    path = root / bucket_name(bucket)
    return path.joinpath(*components(name)) if name else path
