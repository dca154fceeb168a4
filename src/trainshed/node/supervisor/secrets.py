"""The secrets of an attempt: variables of its replicas, and what is masked in its log."""

from __future__ import annotations

import json
import os

from ..files import remove_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_FILE = "secrets.json"
_FOLDER = "secrets"
_SHOWN = b"[secret]"


class Mask:
    """Replaces values in output. `longest` is the length of the longest one; 0: there is none."""

    def __init__(self, values: Iterable[str] = (), short: Iterable[str] = ()) -> None:
        """`short` has lines that are masked only as a whole, after a line in which something was masked."""
        encoded = {value.encode("utf-8", "surrogateescape") for value in values}
        self._short = {line.encode("utf-8", "surrogateescape") for line in short}
        self._values = sorted(encoded, key=len, reverse=True)  # one may be a part of another
        self.longest = max(map(len, self._values), default=0)

    def __call__(self, data: bytes) -> bytes:
        for value in self._values:
            if value in data:
                data = data.replace(value, _SHOWN)
        return data

    def line(self, line: bytes, after: bytes) -> bytes:
        """Mask a line that follows another one, which is masked already."""
        if self._short and _SHOWN in after and line.strip() in self._short:
            return _SHOWN
        return self(line)

    def lines(self, data: bytes) -> bytes:
        """Mask output of several lines."""
        masked = self(data)
        if not self._short:
            return masked
        lines: list[bytes] = []
        for line in masked.split(b"\n"):
            lines.append(self.line(line, lines[-1] if lines else b""))
        return b"\n".join(lines)

    def end_of_values(self, data: bytes, end: int) -> int:
        """The first place from `end` on that is within no value. `data` is longer than `end` by the longest value."""
        moved = True
        while moved:
            moved = False
            for value in self._values:
                start = data.find(value, max(0, end - len(value) + 1), end + len(value) - 1)
                if start >= 0 and start + len(value) > end:
                    end, moved = start + len(value), True
        return end


class AttemptSecrets:
    """What the server gave an attempt. The values of variables are on disk only until this is made."""

    def __init__(self, folder: str) -> None:
        self._folder = os.path.join(folder, _FOLDER)
        path = os.path.join(folder, _FILE)
        try:
            with open(path, encoding="utf-8") as file:
                given = json.load(file)
        except FileNotFoundError:
            given = {"variables": {}, "masked": [], "short": []}
        else:
            os.unlink(path)
        self.variables: dict[str, str] = given["variables"]
        self.mask = Mask(given["masked"], given["short"])

    def remove(self) -> None:
        """Remove the files. No replica may run any more."""
        remove_folder(self._folder)
