"""From names to paths. The only place where a user's string becomes a path, and it refuses what could lead astray."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from trainshed.errors import InvalidArgumentError

MAX_NAME = 1024  #: bytes of an object's name
MAX_COMPONENT = 255  #: bytes between two slashes

_BUCKET = re.compile(r"[a-z0-9](?:[a-z0-9_-]|\.(?!\.)){1,61}[a-z0-9]")
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")
_URI = re.compile(r"gs://([^/]+)(?:/(.*))?", re.DOTALL)
_URI_IN_TEXT = re.compile(r"gs://[a-z0-9][a-z0-9._-]*[a-z0-9](?:/[^\s,;'\"]*)?")


def bucket_name(text: str) -> str:
    """The name, if a bucket may have it."""
    if not _BUCKET.fullmatch(text) or _ADDRESS.fullmatch(text):
        raise InvalidArgumentError(
            f"Invalid bucket name: {text!r}. A bucket's name is 3 to 63 lower-case letters, digits, hyphens, "
            f"underscores and single dots, and starts and ends with a letter or a digit."
        )
    return text


def components(name: str) -> tuple[str, ...]:
    """The folders and the file of an object's name. One slash at the end, which marks a folder, is dropped.

    Each is safe below a directory. `InvalidArgumentError`, with the reason, for a name that is not kept here.
    """
    if not name:
        raise InvalidArgumentError("An object needs a name.")
    if len(name.encode(errors="surrogatepass")) > MAX_NAME:
        raise InvalidArgumentError(
            f"An object's name has at most {MAX_NAME} bytes; this one has {len(name.encode()):,}."
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
        if len(part.encode()) > MAX_COMPONENT:
            raise InvalidArgumentError(
                f"A part of an object's name between slashes has at most {MAX_COMPONENT} bytes: {name!r}."
            )
    return parts


def is_folder(name: str) -> bool:
    """Whether the name is that of a folder's mark, such as `exports/`."""
    return name.endswith("/")


def split_uri(uri: str) -> tuple[str, str]:
    """`gs://bucket/a/b` as `("bucket", "a/b")`. The name is empty for the bucket itself."""
    match = _URI.fullmatch(uri)
    if match is None:
        raise InvalidArgumentError(f"{uri!r} is not an address like gs://bucket/object.")
    return bucket_name(match[1]), match[2] or ""


def object_path(root: Path, bucket: str, name: str) -> Path:
    """Where an object is, or would be, below `root`. An empty name is the bucket's own folder. Never outside it."""
    path = root / bucket_name(bucket)
    return path.joinpath(*components(name)) if name else path


def resolve_uris(text: str, path_of: Callable[[str], Path | None]) -> str:
    """The text with each gs:// address that `path_of` knows replaced by its path; a slash at its end stays."""

    def replaced(match: re.Match[str]) -> str:
        path = path_of(match[0])
        if path is None:
            return match[0]
        return f"{path}/" if match[0].endswith("/") else str(path)

    return _URI_IN_TEXT.sub(replaced, text)
