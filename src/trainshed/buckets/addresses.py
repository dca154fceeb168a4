"""gs:// addresses inside other texts, such as a trainer's arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

_URI = re.compile(r"gs://[a-z0-9][a-z0-9._-]*[a-z0-9](?:/[^\s,;'\"]*)?")


def resolve_uris(text: str, path_of: Callable[[str], Path | None]) -> str:
    """The text with each gs:// address that `path_of` knows replaced by its path; a slash at its end stays."""

    def replaced(match: re.Match[str]) -> str:
        path = path_of(match[0])
        if path is None:
            return match[0]
        return f"{path}/" if match[0].endswith("/") else str(path)

    return _URI.sub(replaced, text)
