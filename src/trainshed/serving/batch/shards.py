"""The input of a batch prediction in shards: each is read, predicted and written whole, or not at all.

Files of lines are cut into pieces at the ends of lines; a file of records is one shard.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from ..formats.tfrecord import records

LINES = ("JSON", "TEXT")
RECORDS = ("TF_RECORD", "TF_RECORD_GZIP")
PIECE = 16 << 20  #: bytes of a file of lines that make a shard
MOST = 1000  #: shards, unless there are more files
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of a file: the lines that begin in it, or all its records."""

    number: int
    path: str
    start: int
    end: int
    first: int  #: number of its first line in the file, from 1 on

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class InputRow:
    """One line or record. `read` is how many bytes of the shard were read up to its end, as far as one can tell."""

    number: int  #: in its file, from 1 on
    content: bytes
    read: int


def cut(paths: Sequence[str], data_format: str, *, piece: int = PIECE) -> list[Shard]:
    """The shards of files. Files without a byte have none."""
    sizes = {path: Path(path).stat().st_size for path in paths}
    piece = max(piece, -(-sum(sizes.values()) // MOST))
    shards: list[Shard] = []
    for path in paths:
        whole = data_format in RECORDS or sizes[path] <= piece
        for start, end, first in [(0, sizes[path], 1)] if whole else _pieces(Path(path), piece):
            if end > start:
                shards.append(Shard(len(shards), path, start, end, first))
    return shards


def _pieces(path: Path, piece: int) -> Iterator[tuple[int, int, int]]:
    """Start, end and number of the first line, of pieces that end where a line ends."""
    start, line = 0, 1
    with open(path, "rb") as file:
        while True:
            lines, size = 0, 0
            while size < piece and (chunk := file.read(min(_CHUNK, piece - size))):
                lines += chunk.count(b"\n")
                size += len(chunk)
            rest = file.readline()
            lines += rest.endswith(b"\n")
            size += len(rest)
            if not size:
                return
            yield start, start + size, line
            start, line = start + size, line + lines


def rows(shard: Shard, data_format: str) -> Iterator[InputRow]:
    """What a shard holds; blank lines are left out. `BadMessageError`, or `OSError`, where a file is damaged."""
    with open(shard.path, "rb", buffering=_CHUNK) as file:
        if data_format in LINES:
            yield from _lines(file, shard)
            return
        packed = data_format == "TF_RECORD_GZIP"
        with gzip.GzipFile(fileobj=file) if packed else nullcontext(file) as content:
            for number, record in enumerate(records(cast(BinaryIO, content)), 1):
                yield InputRow(number, record, file.tell())


def _lines(file: BinaryIO, shard: Shard) -> Iterator[InputRow]:
    file.seek(shard.start)
    at, number = shard.start, shard.first
    while at < shard.end and (line := file.readline()):
        at += len(line)
        content = line.strip(b"\r\n")
        if content.strip():
            yield InputRow(number, content, at - shard.start)
        number += 1
