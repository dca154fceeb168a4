"""How far a batch prediction has come, as its own process tells in a file of the attempt."""

from __future__ import annotations

import logging
import os
import stat
from dataclasses import dataclass
from pathlib import Path

import orjson

LOG = logging.getLogger("trainshed.attempts.batch_progress")

FOLDER = "prediction"  #: of an attempt: the plan, the model's files, and what is done
_LIMIT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """Rows and bytes of the input so far."""

    predictions: int
    errors: int
    read: int
    bytes: int

    @property
    def fraction(self) -> float:
        return min(1.0, self.read / self.bytes) if self.bytes > 0 else 1.0


def read_batch_progress(attempt: Path) -> BatchProgress | None:
    """None if nothing was told yet, or nothing that makes sense: models may write there too, and whatever they put
    there must not keep their job, or a list that it is in, from being shown.
    """
    path = attempt / FOLDER / "progress.json"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as exc:
        LOG.warning("prediction.unreadable path=%s reason=%s", path, exc.strerror)
        return None
    try:
        content = os.read(fd, _LIMIT) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    finally:
        os.close(fd)
    try:
        told = orjson.loads(content)
        values = {name: told[name] for name in ("predictions", "errors", "read", "bytes")}
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    if not all(type(value) is int and value >= 0 for value in values.values()):
        return None
    return BatchProgress(**values)
