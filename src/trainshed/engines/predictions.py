"""How far a batch prediction has come, as its own process tells in a file of the attempt."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import orjson

from trainshed.errors import Damaged

FOLDER = "prediction"  #: of an attempt: the plan, the model's files, and what is done
_LIMIT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Rows and bytes of the input so far."""

    predictions: int
    errors: int
    read: int
    bytes: int

    @property
    def fraction(self) -> float:
        return min(1.0, self.read / self.bytes) if self.bytes > 0 else 1.0


def predicted(attempt: Path) -> Predicted | None:
    """None if nothing was told yet, or nothing that makes sense: models may write there too."""
    try:
        fd = os.open(attempt / FOLDER / "progress.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise Damaged(f"{attempt / FOLDER} can't be read: {exc.strerror}.") from exc
    with open(fd, "rb") as file:
        content = file.read(_LIMIT)
    try:
        told = orjson.loads(content)
        values = {name: told[name] for name in ("predictions", "errors", "read", "bytes")}
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    if not all(type(value) is int and value >= 0 for value in values.values()):
        return None
    return Predicted(**values)
