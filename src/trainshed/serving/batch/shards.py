"""The input of a batch prediction in shards. Each shard is read, predicted and written completely, or not at all.

Line files are split at line ends. A record file is one shard.
"""

from __future__ import annotations

import errno
import gzip
import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from ..formats.tfrecord import records

LINES = ("JSON", "TEXT")
RECORDS = ("TF_RECORD", "TF_RECORD_GZIP")
SHARD_BYTES = 16 << 20  #: of a line file per shard
MAX_SHARDS = 1000  #: unless there are more files
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of a file: the lines that start in it, or all its records."""

    number: int
    path: str
    start: int
    end: int
    first: int  #: number of its first line in the file, from 1

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class InputRow:
    """One line or record. `read` is the approximate number of bytes of the shard up to its end."""

    number: int  #: in its file, from 1
    content: bytes
    read: int


def open_input(path: str, root: str) -> BinaryIO:
    """Open an input file. Below `root`, where jobs can put links to files of other projects, none is followed.

    Raises `OSError`.
    """
    if not Path(path).is_relative_to(root):
        return open(path, "rb", buffering=_CHUNK_BYTES)
    parts = Path(path).relative_to(root).parts
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY)  # in a sandbox, it can't be listed
    try:
        for part in parts[:-1]:
            child = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = child
        fd = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as exc:
        if exc.errno in (errno.ELOOP, errno.ENOTDIR):
            raise OSError(exc.errno, "The input was replaced by a link, which is not followed", path) from exc
        raise
    finally:
        os.close(folder)
    return open(fd, "rb", buffering=_CHUNK_BYTES)


def split_into_shards(
    paths: Sequence[str], data_format: str, *, root: str, shard_bytes: int = SHARD_BYTES
) -> list[Shard]:
    """The shards of files. Empty files have none."""
    sizes = {path: _size(path, root) for path in paths}
    shard_bytes = max(shard_bytes, -(-sum(sizes.values()) // MAX_SHARDS))
    shards: list[Shard] = []
    for path in paths:
        whole = data_format in RECORDS or sizes[path] <= shard_bytes
        for start, end, first in [(0, sizes[path], 1)] if whole else _line_shards(path, root, shard_bytes):
            if end > start:
                shards.append(Shard(len(shards), path, start, end, first))
    return shards


def _size(path: str, root: str) -> int:
    with open_input(path, root) as file:
        return os.fstat(file.fileno()).st_size


def _line_shards(path: str, root: str, shard_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Start, end and first line number of shards that end at line ends."""
    start, line = 0, 1
    with open_input(path, root) as file:
        while True:
            lines, size = 0, 0
            while size < shard_bytes and (chunk := file.read(min(_CHUNK_BYTES, shard_bytes - size))):
                lines += chunk.count(b"\n")
                size += len(chunk)
            line_rest = file.readline()
            lines += line_rest.endswith(b"\n")
            size += len(line_rest)
            if not size:
                return
            yield start, start + size, line
            start, line = start + size, line + lines


def rows(shard: Shard, data_format: str, *, root: str) -> Iterator[InputRow]:
    """The rows of a shard, without blank lines. Raises `BadMessageError` or `OSError` if a file is damaged."""
    with open_input(shard.path, root) as file:
        if data_format in LINES:
            yield from _lines(file, shard)
            return
        compressed = data_format == "TF_RECORD_GZIP"
        with gzip.GzipFile(fileobj=file) if compressed else nullcontext(file) as content:
            for number, record in enumerate(records(cast(BinaryIO, content)), 1):
                yield InputRow(number, record, file.tell())


def _lines(file: BinaryIO, shard: Shard) -> Iterator[InputRow]:
    file.seek(shard.start)
    position, number = shard.start, shard.first
    while position < shard.end and (line := file.readline()):
        position += len(line)
        content = line.strip(b"\r\n")
        if content.strip():
            yield InputRow(number, content, position - shard.start)
        number += 1
