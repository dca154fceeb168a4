"""The secrets of an attempt or a host: variables of its processes, and what is masked in its log."""

from __future__ import annotations

import json
import os

from ..files import remove_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Optional

_FILE = "secrets.json"
_FOLDER = "secrets"
_SHOWN = b"[secret]"
_LINE_MAX_BYTES = 64 * 1024
FOLDER_VARIABLE = "TRAINSHED_SECRETS_FOR"  #: of a reaper: the folder that `AttemptSecrets` reads


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


class MaskedOutput:
    """Masks output that comes in pieces. A line is held back until it is complete, or too long."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._rest = self._before = b""

    def __call__(self, piece: bytes) -> bytes:
        """What can be shown after this piece of output. An empty one is the end."""
        if not self._mask.longest:
            return piece
        data = self._rest + piece
        end = data.rfind(b"\n") + 1 if piece else len(data)
        if len(data) - end > _LINE_MAX_BYTES + self._mask.longest:
            end = self._mask.end_of_values(data, len(data) - self._mask.longest)
        self._rest = data[end:]
        return b"".join(map(self._masked, data[:end].splitlines(keepends=True)))

    def _masked(self, line: bytes) -> bytes:
        text = line.rstrip(b"\r\n")
        self._before = self._mask.line(text, self._before)
        return self._before + line[len(text) :]


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


def take_secrets() -> Optional[AttemptSecrets]:
    """The secrets of the process that this reaper starts, whose variables are set here; None if it has none."""
    folder = os.environ.pop(FOLDER_VARIABLE, "")
    if not folder:
        return None
    given = AttemptSecrets(folder)
    os.environ.update(given.variables)
    return given
