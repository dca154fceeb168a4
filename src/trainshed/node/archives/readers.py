"""What an archive is made of, whichever its format."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable


class BadArchiveError(Exception):
    """An archive that is damaged or that would do harm. The text is one sentence for its sender."""


class Member:
    """A file or folder in an archive. `read(n)` gives its next bytes, none at its end; use it before the next one."""

    __slots__ = ("folder", "mode", "name", "read")

    def __init__(self, name: str, folder: bool, mode: int, read: Callable[[int], bytes]) -> None:
        self.name = name
        self.folder = folder
        self.mode = mode
        self.read = read
