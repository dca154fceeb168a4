"""Progress of a batch prediction, read from the file that its process writes into the attempt's folder."""

from __future__ import annotations

import logging
import os
import stat
from dataclasses import dataclass
from pathlib import Path

import orjson

LOG = logging.getLogger("trainshed.attempts.batch_progress")

PREDICTION_FOLDER = "prediction"  #: of an attempt: what a batch prediction writes besides its results
_FILE_MAX_BYTES = 4096


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
    """The progress of an attempt. Returns None if there is none yet or it is invalid. Models can write to the file
    too, and its content must not keep their job, or a list with it, from being shown."""
    path = attempt / PREDICTION_FOLDER / "progress.json"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as exc:
        LOG.warning("prediction.unreadable path=%s reason=%s", path, exc.strerror)
        return None
    try:
        content = os.read(fd, _FILE_MAX_BYTES) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    finally:
        os.close(fd)
    try:
        fields = orjson.loads(content)
        values = {name: fields[name] for name in ("predictions", "errors", "read", "bytes")}
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    if not all(type(value) is int and value >= 0 for value in values.values()):
        return None
    return BatchProgress(**values)
