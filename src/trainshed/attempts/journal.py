"""Reading the journal of an attempt. Its folder is the trainer's too, so nothing in it is taken on trust."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from trainshed.errors import EngineUnavailableError

PIECE = 4 << 20  #: bytes read at once; a supervisor writes a few hundred in the life of a job


def read_lines(attempt: Path, offset: int = 0) -> tuple[list[bytes], int]:
    """The whole lines of the journal after `offset`, at most a piece of them, and the offset behind the last.

    Nothing for an attempt that never was, and for anything but a regular file in its place.
    """
    journal = attempt / "journal.jsonl"
    try:
        fd = os.open(journal, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            return [], offset
        raise EngineUnavailableError(f"{journal} can't be read: {exc.strerror}.") from exc
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return [], offset
        read = os.pread(fd, PIECE, offset)
    finally:
        os.close(fd)
    if len(read) == PIECE and b"\n" not in read:
        return [], offset + PIECE  # no event is that long
    whole, end, _rest = read.rpartition(b"\n")  # what comes after the last line end is not yet whole
    return (whole.split(b"\n"), offset + len(whole) + 1) if end else ([], offset)
