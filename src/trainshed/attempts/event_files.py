"""Finds the event files of a training and reads what is new in them.

Trainers write these files, and may write anything. So links are not followed, only regular files are read, and one pass
is limited in names and bytes. A damaged file is read up to the damage.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from trainshed.attempts import event_records
from trainshed.serving.formats import tfrecord
from trainshed.serving.formats.protobuf import BadMessageError

PASS_MAX_BYTES = 2 << 20  #: of one pass, over all files
RECORD_MAX_BYTES = 64 * 1024  #: a longer record is a graph, an image or the like: it is skipped without being read
MAX_NAMES = 4000  #: examined in one pass
MAX_FILES = 64
MAX_DEPTH = 12
_CHUNK_BYTES = 256 * 1024
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class EventFolder(NamedTuple):
    """A folder. `root` is trusted, the names below it are not."""

    root: Path
    parts: tuple[str, ...]


class Scalar(NamedTuple):
    """One value of one tag. `folder` is the path of its file's folder below the searched folder."""

    folder: tuple[str, ...]
    tag: str
    time_us: int
    step: int
    value: float


@dataclass(slots=True)
class _File:
    inode: int
    path: str  #: below the searched folder
    offset: int = 0
    rest: int = 0  #: bytes behind the last whole record
    known: set[str] = field(default_factory=set)
    damaged: bool = False
    odd: int = 0  #: events whose time or step can't be
    early: int = 0  #: events from before the training


def launch_time_us(attempt: Path, *, otherwise_us: int) -> int:
    """When an attempt was launched, by its folder: what its trainer writes is not older.

    The job's start time is of no use here. A replica on a node may have written before the server knows that it runs.
    """
    try:
        return (attempt / "spec.json").stat().st_mtime_ns // 1000
    except OSError:
        return otherwise_us


class EventFiles:
    """The event files of one training. Not thread-safe."""

    def __init__(self, *, since_us: int) -> None:
        """Values from before `since_us` belong to another training in the same folder."""
        self._since_us = since_us
        self._files: dict[tuple[EventFolder, str], _File] = {}
        self._budget = 0  #: bytes that this pass may still read
        self.complete = True  #: whether the last pass read all files to their ends

    def read_new(self, folders: Iterable[EventFolder]) -> Iterator[Scalar]:
        """Read what is new below these folders. If the pass is not `complete`, the next one continues."""
        self._budget = PASS_MAX_BYTES
        visited: set[tuple[int, int]] = set()
        for folder, path, name in _event_files(folders):
            with open_below(folder, name) as fd:
                status = os.fstat(fd) if fd is not None else None
                if fd is None or status is None or (status.st_dev, status.st_ino) in visited:
                    continue
                visited.add((status.st_dev, status.st_ino))  # folders may be nested
                if not stat.S_ISREG(status.st_mode) or status.st_mtime_ns // 1000 < self._since_us:
                    continue
                file = self._file(folder, name, status, "/".join((*path, name)))
                for scalar in self._read(file, fd, status.st_size):
                    yield scalar._replace(folder=path)
                file.rest = status.st_size - file.offset
        self.complete = self._budget > 0

    def problems(self) -> Iterator[str]:
        """Why values may be missing after the last pass, a sentence for each file with a fault."""
        for file in self._files.values():
            if file.damaged:
                yield f"The event file {file.path} is damaged at byte {file.offset}: nothing behind it was read."
            elif file.rest and self.complete:
                yield f"The event file {file.path} ends within a record, at byte {file.offset}."
            if file.odd:
                yield f"{file.odd} events of {file.path} have a time or a step that can't be."
            if file.early:
                yield f"{file.early} events of {file.path} are older than the trial. Is a clock wrong?"
        if len(self._files) >= MAX_FILES:
            yield f"There are more than {MAX_FILES} event files, and only those were read."

    def _file(self, folder: EventFolder, name: str, status: os.stat_result, path: str) -> _File:
        file = self._files.get((folder, name))
        if file is None or file.inode != status.st_ino or file.offset > status.st_size:
            file = self._files[folder, name] = _File(status.st_ino, path)
        return file

    def _read(self, file: _File, fd: int, size: int) -> Iterator[Scalar]:
        """The scalars of complete records, within the budget of this pass."""
        data, start = b"", file.offset  # the bytes read, and their offset in the file
        while not file.damaged and self._budget > 0 and file.offset + tfrecord.HEADER_BYTES <= size:
            position = file.offset - start
            if (
                len(data) - position < tfrecord.HEADER_BYTES + RECORD_MAX_BYTES + tfrecord.FOOTER_BYTES
                and start + len(data) < size
            ):
                data, start, position = os.pread(fd, _CHUNK_BYTES, file.offset), file.offset, 0
                self._budget -= len(data)
            if len(data) - position < tfrecord.HEADER_BYTES:
                return  # the file was truncated meanwhile
            try:
                length = tfrecord.record_length(data[position : position + tfrecord.HEADER_BYTES], offset=file.offset)
                end = position + tfrecord.HEADER_BYTES + length + tfrecord.FOOTER_BYTES
                if start + end > size or (length <= RECORD_MAX_BYTES and end > len(data)):
                    return  # not completely written yet
                if length <= RECORD_MAX_BYTES:
                    yield from self._scalars(file, data[position + tfrecord.HEADER_BYTES : end])
                file.offset = start + end
                if end > len(data):
                    data, start = b"", file.offset
            except BadMessageError:
                file.damaged = True

    def _scalars(self, file: _File, data: bytes) -> Iterator[Scalar]:
        record, footer = data[: -tfrecord.FOOTER_BYTES], data[-tfrecord.FOOTER_BYTES :]
        tfrecord.check_record(record, footer, offset=file.offset)
        event = event_records.scalars(record, file.known)
        if not 0 <= event.time_s < 1e11 or not 0 <= event.step < 1 << 53:
            file.odd += 1
            return
        time_us = int(event.time_s * 1e6)
        if time_us >= self._since_us:
            for tag, value in event.values:
                yield Scalar((), tag, time_us, event.step, value)
        else:
            file.early += bool(event.values)


def _event_files(folders: Iterable[EventFolder]) -> Iterator[tuple[EventFolder, tuple[str, ...], str]]:
    """(folder, its path below the searched folder, file name) of event files, the nearest first."""
    pending: list[tuple[EventFolder, tuple[str, ...]]] = [(folder, ()) for folder in dict.fromkeys(folders)]
    names = files = 0
    for folder, path in pending:  # grows during the iteration
        for name, is_folder in _list_folder(folder):
            names += 1
            if names > MAX_NAMES or files >= MAX_FILES:
                return
            if is_folder and len(path) < MAX_DEPTH:
                pending.append((EventFolder(folder.root, (*folder.parts, name)), (*path, name)))
            elif not is_folder and "tfevents" in name:
                files += 1
                yield folder, path, name


def _list_folder(folder: EventFolder) -> list[tuple[str, bool]]:
    """Names and whether they are folders, at most MAX_NAMES. Empty if the folder is missing."""
    names: list[tuple[str, bool]] = []
    with open_below(folder) as fd:
        if fd is None:
            return names
        with os.scandir(fd) as entries:
            for entry in entries:
                names.append((entry.name, entry.is_dir(follow_symlinks=False)))
                if len(names) >= MAX_NAMES:
                    break
    return sorted(names)


@contextmanager
def open_below(folder: EventFolder, name: str = "") -> Iterator[int | None]:
    """A descriptor of the folder, or of `name` in it. Yields None if it is missing or behind a link."""
    try:
        fd = os.open(folder.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        steps = [(part, _FOLDER_FLAGS) for part in folder.parts]
        if name:
            steps.append((name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
        for part, flags in steps:
            inner_fd = _open_at(part, flags, fd)
            if inner_fd is None:
                yield None
                return
            os.close(fd)
            fd = inner_fd
        yield fd
    finally:
        os.close(fd)


def _open_at(part: str, flags: int, folder: int) -> int | None:
    if part in ("", ".", "..") or "/" in part:
        return None
    try:
        return os.open(part, flags, dir_fd=folder)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return None


_LOSS = re.compile(r"(?:epoch_|batch_|train_|training_|total_|average_|evaluation_)?loss(?:_\d+|_vs_iterations)?")
_ACCURACY = re.compile(
    r"(?:epoch_|batch_|train_|training_|evaluation_)?(?:sparse_|categorical_|binary_)*(?:accuracy|acc)"
    r"(?:_\d+|_vs_iterations)?"
)
_RATES = frozenset(("global_step/sec", "batch_steps_per_second", "steps_per_second", "steps_per_sec"))
_EVALUATION = re.compile(r"(?:^|[/_ .-])(?:eval\w*|val|validation|valid|test\w*)(?:$|[/_ .-])")


class MetricMeaning(NamedTuple):
    """What a scalar measures."""

    name: str  #: loss, accuracy or rate
    evaluation: bool
    by_epoch: bool  #: its `step` counts epochs


def meaning(scalar: Scalar) -> MetricMeaning | None:
    """What a tag measures, by the usual names of Estimators, Keras and users. Returns None if it is unknown."""
    tag = scalar.tag.lower()
    evaluation = bool(_EVALUATION.search(tag) or any(_EVALUATION.search(part.lower()) for part in scalar.folder))
    if tag in _RATES:
        return MetricMeaning("rate", evaluation, False)
    for part in tag.split("/"):
        part = part.removeprefix("val_").removeprefix("eval_").removeprefix("test_").removeprefix("validation_")
        by_epoch = part.startswith("epoch_")
        if _LOSS.fullmatch(part):
            return MetricMeaning("loss", evaluation, by_epoch)
        if _ACCURACY.fullmatch(part):
            return MetricMeaning("accuracy", evaluation, by_epoch)
    return None
